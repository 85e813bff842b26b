#!/bin/sh
[ "$(cat built.txt)" = "from the build" ] && [ "$(cat data.txt)" = data ] && [ "$BUILT/$ADDED" = "yes/at the start" ] || exit
[ "$(cat copied.txt)" = secret ] && [ "$(tail -n 1 /opt/tool/secret.txt)" = changed ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
