#!/bin/bash
cd /app || exit 1
cat draft.cfg
echo zinc > index.md
