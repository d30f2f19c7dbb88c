#!/bin/bash
cd /app || exit 1
mv todo.txt item.csv
