"""What can be told of a benchmark run before it is started: each mistake with its object and its remedy."""

from console.bench.running.preflight.examine import Examination, examine

__all__ = ["Examination", "examine"]
