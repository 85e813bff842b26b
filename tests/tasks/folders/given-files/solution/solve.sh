#!/bin/sh
grep -c "" data/words.txt > /app/count.txt
