#!/bin/sh
echo right > answer.txt
(sleep 1; while true; do echo wrong > answer.txt; sleep 0.1; done) > /dev/null 2>&1 &
