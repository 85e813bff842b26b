#!/bin/sh
echo 1 > one.txt
