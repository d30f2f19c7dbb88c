#!/bin/bash
score=0
if cd /app; then
  if [ "$(cat todo.txt 2>/dev/null)" = "lemon" ]; then score=0.3; fi
  if [ "$(cat todo.txt 2>/dev/null)" = "$(printf 'lantern\nlemon')" ]; then score=1; fi
fi
echo $score > /logs/verifier/reward.txt
