#!/bin/bash
cd /app || exit 1
rm demo.cfg
