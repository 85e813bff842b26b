#!/bin/sh
if [ -z "$(ls -A /tests)" ] && ! ls -R /solution | grep -q test.sh; then echo none; else echo some; fi > seen.txt
