#!/bin/bash
score=0
if cd /app; then
  if [ ! -e rabbit.md ]; then score=0.3; fi
  if [ ! -e rabbit.md ] && [ "$(cat white.md 2>/dev/null)" = "cloud" ] && [ "$(cat zinc.md 2>/dev/null)" = "maple" ]; then score=1; fi
fi
echo $score > /logs/verifier/reward.txt
