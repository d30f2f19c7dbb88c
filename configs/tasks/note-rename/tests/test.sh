#!/bin/bash
score=0
if cd /app; then
  if [ "$(cat demo.csv 2>/dev/null)" = "fire" ]; then score=0.5; fi
  if [ "$(cat demo.csv 2>/dev/null)" = "fire" ] && [ ! -e result.csv ]; then score=1; fi
fi
echo $score > /logs/verifier/reward.txt
