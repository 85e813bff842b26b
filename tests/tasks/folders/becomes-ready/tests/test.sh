#!/bin/sh
[ "$(wc -l < tries)" -eq 4 ] && cmp -s tries answer && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
