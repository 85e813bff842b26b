#!/bin/sh
cat reward.txt
