"""`python -m console.engine.benchmark --run-dir DIR --run-id ID ...`: what the command line starts; not for people."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from console.bench.running.options import BenchOptions
from console.engine.entry import engine_words, live, log_to_stderr

if TYPE_CHECKING:
    from console.engine.benchmark.engine import BenchEngine


def main() -> None:
    """Run the engine of a benchmark and end the process with the run's exit code."""
    args = engine_words("console.engine.benchmark").parse_args()
    log_to_stderr("httpx")
    live(args, _engine)


def _engine(args: argparse.Namespace) -> BenchEngine:
    from console.engine.benchmark.engine import BenchEngine

    options = BenchOptions.from_json(args.options.read_bytes())
    return BenchEngine(options, args.run_dir, args.run_id, args.owner_fd)


if __name__ == "__main__":
    main()
