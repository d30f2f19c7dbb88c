#!/bin/bash
cd /app || exit 1
cat letter.txt
rm data.txt
