#!/bin/bash
score=0
if cd /app; then
  if [ "$(cat result.cfg 2>/dev/null)" = "My name should be result.cfg from now on." ]; then score=0.5; fi
  if [ "$(cat result.cfg 2>/dev/null)" = "My name should be result.cfg from now on." ] && [ ! -e test.csv ]; then score=1; fi
fi
echo $score > /logs/verifier/reward.txt
