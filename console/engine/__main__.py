"""`python -m console.engine --run-dir DIR --run-id ID ...`: what the command line starts; not for people."""

from __future__ import annotations

import argparse
import os
import warnings
from typing import TYPE_CHECKING

from console.engine.entry import engine_words, live, log_to_stderr
from console.training.options import RunOptions

if TYPE_CHECKING:
    from console.engine.supervisor import Engine

QUIET = {
    "HARBOR_TELEMETRY": "0",
    "TINKER_TELEMETRY": "0",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
}
"""The tools we drive phone home or draw progress bars unless told not to."""


def main() -> None:
    """Run the engine of a training run and end the process with the run's exit code."""
    parser = engine_words("console.engine")
    parser.add_argument("--on-failure", required=True)
    args = parser.parse_args()
    os.environ.update(QUIET)
    # The cookbook calls the SDK's deprecated forms at every step; that is for its authors, not for the run's log.
    warnings.filterwarnings("ignore", category=FutureWarning, message="DEPRECATED")
    log_to_stderr("httpx", "aiohttp.access", "tinker", "tinker_cookbook", "pylatexenc")
    live(args, _engine)


def _engine(args: argparse.Namespace) -> Engine:
    from console.engine.supervisor import Engine

    options = RunOptions.from_json(args.options.read_bytes())
    return Engine(options, args.run_dir, args.run_id, args.on_failure, args.owner_fd)


if __name__ == "__main__":
    main()
