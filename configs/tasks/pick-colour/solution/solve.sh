#!/bin/bash
cd /app || exit 1
ls
rm red.txt
