#!/bin/sh
[ "$PLAIN" = "a b" ] && [ "$(cat env.txt)" = "$EXPECTED" ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
