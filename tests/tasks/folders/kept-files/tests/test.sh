#!/bin/sh
[ "$(cat /logs/artifacts/lines)" = 3 ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
