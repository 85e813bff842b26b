#!/bin/sh
[ "$(cat seen.txt)" = none ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
