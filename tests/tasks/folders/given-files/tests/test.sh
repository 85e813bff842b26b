#!/bin/sh
cd /app && [ "$(cat count.txt)" = 3 ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
