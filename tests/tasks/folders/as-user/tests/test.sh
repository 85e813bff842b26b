#!/bin/sh
[ "$(id -u)" = 1000 ] && [ "$PWD" = /srv/work ] && [ "$(cat id.txt)" = 1000 ] && [ "$(stat -c %u id.txt)" = 1000 ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
