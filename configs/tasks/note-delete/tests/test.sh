#!/bin/bash
score=0
if cd /app; then
  if [ ! -e data.txt ]; then score=0.3; fi
  if [ ! -e data.txt ] && [ "$(cat page.cfg 2>/dev/null)" = "desert" ]; then score=1; fi
fi
echo $score > /logs/verifier/reward.txt
