#!/bin/sh
if [ "$(cat hello.txt)" = hello ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
