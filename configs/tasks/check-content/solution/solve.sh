#!/bin/bash
cd /app || exit 1
sh check.sh
echo rain > demo.cfg
