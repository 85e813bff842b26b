#!/bin/sh
sleep 1
[ "$(cat answer.txt)" = right ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
