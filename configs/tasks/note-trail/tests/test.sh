#!/bin/bash
score=0
if cd /app; then
  if [ "$(cat result.csv 2>/dev/null)" = "island" ]; then score=0.5; fi
  if [ "$(cat result.csv 2>/dev/null)" = "island" ] && [ "$(cat order.txt 2>/dev/null)" = "island" ]; then score=1; fi
fi
echo $score > /logs/verifier/reward.txt
