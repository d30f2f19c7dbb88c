#!/bin/bash
cd /app || exit 1
cat letter.txt
cat note.txt
cp order.txt result.csv
