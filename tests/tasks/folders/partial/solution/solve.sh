#!/bin/sh
echo 5 > sum.txt
