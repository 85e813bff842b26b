#!/bin/sh
cp /opt/tool/secret.txt copied.txt
echo changed >> /opt/tool/secret.txt
