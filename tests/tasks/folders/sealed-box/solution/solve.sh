#!/bin/sh
sed -n "s/^ *\(.*\):.*/\1/p" /proc/net/dev > interfaces.txt
