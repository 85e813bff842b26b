#!/bin/sh
id -u > id.txt
