#!/bin/bash
cd /app || exit 1
cat test.csv
mv test.csv result.cfg
