#!/bin/sh
[ "$(cat colour.txt)" = green ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
