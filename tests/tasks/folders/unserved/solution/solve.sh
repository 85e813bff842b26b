#!/bin/sh
echo hello > answer
python3 -m http.server 8431 --bind 127.0.0.1 > /dev/null 2>&1 &
until python3 -c "import urllib.request as u; u.urlopen('http://127.0.0.1:8431/answer')" 2> /dev/null; do sleep 0.1; done
