#!/bin/sh
# The text is wrong: reward.json counts.
echo 0.5 > /logs/verifier/reward.txt
[ "$(cat sum.txt)" = 5 ] && sum=1 || sum=0
[ "$(wc -l < sum.txt)" = 1 ] && format=true || format=false
echo "{\"accuracy\": $sum, \"format\": $format}" > /logs/verifier/reward.json
