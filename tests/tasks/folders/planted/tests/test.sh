#!/bin/sh
[ -e /tests/planted ] || [ -e /logs/verifier/planted ] && exit
[ "$(cat done.txt)" = done ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
