#!/bin/sh
echo wrong > answer.txt; sleep 60; echo right > answer.txt
