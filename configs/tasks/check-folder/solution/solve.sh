#!/bin/bash
cd /app || exit 1
sh check.sh
mkdir cache
