#!/bin/bash
score=0
if cd /app; then
  if [ -f index.md ]; then score=0.2; fi
  if [ "$(cat index.md 2>/dev/null)" = "zinc" ]; then score=1; fi
fi
echo $score > /logs/verifier/reward.txt
