#!/bin/bash
cd /app || exit 1
cat message.txt
mv result.csv demo.csv
