#!/bin/bash
score=0
if cd /app; then
  if [ ! -e goat.md ]; then score=0.3; fi
  if [ ! -e goat.md ] && [ "$(cat item.md 2>/dev/null)" = "thunder" ] && [ "$(cat index.md 2>/dev/null)" = "maple" ]; then score=1; fi
fi
echo $score > /logs/verifier/reward.txt
