#!/bin/sh
ask="import urllib.request as u; print(u.urlopen('http://127.0.0.1:8431/answer').read().decode())"
python3 -c "$ask" | grep -q hello && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
