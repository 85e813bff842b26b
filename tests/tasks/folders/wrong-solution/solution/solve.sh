#!/bin/sh
echo 3 > two.txt; exit 3
