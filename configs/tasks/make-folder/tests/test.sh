#!/bin/bash
score=0
if cd /app; then
  if [ -e charts ]; then score=0.2; fi
  if [ -d charts ]; then score=1; fi
fi
echo $score > /logs/verifier/reward.txt
