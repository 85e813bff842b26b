#!/bin/sh
[ "$(cat two.txt)" = 2 ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
