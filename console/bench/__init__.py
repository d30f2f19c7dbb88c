"""Benchmark runs: triage, figures, comparison, merging."""
