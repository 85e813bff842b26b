#!/bin/sh
printf "a\nb\nc\n" > report.txt
mkdir -p out/cache
echo kept > out/run.sh
chmod +x out/run.sh
echo left > out/x.tmp
echo left > out/cache/y
