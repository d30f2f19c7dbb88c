#!/bin/bash
score=0
if cd /app; then
  if [ ! -e red.txt ]; then score=0.3; fi
  if [ ! -e red.txt ] && [ "$(cat report.csv 2>/dev/null)" = "candle" ] && [ "$(cat item.cfg 2>/dev/null)" = "desert" ]; then score=1; fi
fi
echo $score > /logs/verifier/reward.txt
