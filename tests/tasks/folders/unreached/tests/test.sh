#!/bin/sh
python3 -c "import urllib.request as u; u.urlopen('http://example.org/answer')" &&
  echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
