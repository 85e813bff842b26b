#!/bin/sh
/tests/bin/judge answer.txt > /logs/verifier/reward.txt
