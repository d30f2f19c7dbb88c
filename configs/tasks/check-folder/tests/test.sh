#!/bin/bash
score=0
if cd /app; then
  if [ -e cache ]; then score=0.2; fi
  if [ -d cache ]; then score=1; fi
fi
echo $score > /logs/verifier/reward.txt
