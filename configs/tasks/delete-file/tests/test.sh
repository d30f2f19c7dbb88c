#!/bin/bash
score=0
if cd /app; then
  if [ ! -e demo.cfg ]; then score=0.3; fi
  if [ ! -e demo.cfg ] && [ "$(cat out.cfg 2>/dev/null)" = "sugar" ]; then score=1; fi
fi
echo $score > /logs/verifier/reward.txt
