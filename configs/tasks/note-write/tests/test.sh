#!/bin/bash
score=0
if cd /app; then
  if [ -f plan.md ]; then score=0.2; fi
  if [ "$(cat plan.md 2>/dev/null)" = "wheel" ]; then score=1; fi
fi
echo $score > /logs/verifier/reward.txt
