#!/bin/bash
score=0
if cd /app; then
  if [ "$(cat item.csv 2>/dev/null)" = "rain" ]; then score=0.5; fi
  if [ "$(cat item.csv 2>/dev/null)" = "rain" ] && [ ! -e todo.txt ]; then score=1; fi
fi
echo $score > /logs/verifier/reward.txt
