#!/bin/bash
cd /app || exit 1
echo rain > index.txt
