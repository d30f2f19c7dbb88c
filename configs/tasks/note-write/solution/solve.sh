#!/bin/bash
cd /app || exit 1
cat readme.txt
echo wheel > plan.md
