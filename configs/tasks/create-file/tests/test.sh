#!/bin/bash
score=0
if cd /app; then
  if [ -f index.txt ]; then score=0.2; fi
  if [ "$(cat index.txt 2>/dev/null)" = "rain" ]; then score=1; fi
fi
echo $score > /logs/verifier/reward.txt
