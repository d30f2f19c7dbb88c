#!/bin/bash
score=0
if cd /app; then
  if [ "$(cat notes.txt 2>/dev/null)" = "kettle" ]; then score=0.5; fi
  if [ "$(cat notes.txt 2>/dev/null)" = "kettle" ] && [ "$(cat out.txt 2>/dev/null)" = "kettle" ]; then score=1; fi
fi
echo $score > /logs/verifier/reward.txt
