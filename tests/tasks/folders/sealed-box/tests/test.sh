#!/bin/sh
ls /sys/class/net > /tmp/interfaces 2>/dev/null || sed -n "s/^ *\(.*\):.*/\1/p" /proc/net/dev > /tmp/interfaces
[ "$(cat /tmp/interfaces)" = lo ] && [ "$(cat interfaces.txt)" = lo ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
