#!/bin/sh
cp tries answer
