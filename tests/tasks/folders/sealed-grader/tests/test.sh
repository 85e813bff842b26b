#!/bin/sh
if [ "$(./answer)" = 42 ] && [ ! -e undeclared ] && [ ! -e /tests/planted ] && [ -z "$(ls -A /solution)" ] && [ "$FROM" = verifier ]
then echo 1; else echo 0; fi > /logs/verifier/reward.txt
