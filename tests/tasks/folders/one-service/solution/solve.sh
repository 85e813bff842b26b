#!/bin/sh
echo "$COLOUR" > colour.txt
