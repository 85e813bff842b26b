#!/bin/sh
echo "$PLAIN/$LITERAL/$DEFAULTED/$OWN" > env.txt
