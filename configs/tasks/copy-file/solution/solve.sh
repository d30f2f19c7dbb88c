#!/bin/bash
cd /app || exit 1
cp out.txt notes.txt
