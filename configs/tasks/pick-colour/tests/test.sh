#!/bin/bash
score=0
if cd /app; then
  if [ ! -e yellow.txt ]; then score=0.3; fi
  if [ ! -e yellow.txt ] && [ "$(cat fox.csv 2>/dev/null)" = "candle" ] && [ "$(cat steel.cfg 2>/dev/null)" = "desert" ]; then score=1; fi
fi
echo $score > /logs/verifier/reward.txt
