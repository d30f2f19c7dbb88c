"""`python -m console.engine --run-dir DIR --run-id ID ...`: what the command line starts; not for people.

Says on `--announce-fd` one JSON line: the launch record once the socket is bound, or the error that prevented it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
import warnings
from pathlib import Path

import msgspec

from console.engine.cause import one_line
from console.errors import QuarterdeckError
from console.launching import OPTIONS_FILE
from console.training.options import RunOptions

QUIET = {
    "HARBOR_TELEMETRY": "0",
    "TINKER_TELEMETRY": "0",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
}
"""The tools we drive phone home or draw progress bars unless told not to."""


def main() -> None:
    """Run the engine and end the process with the run's exit code."""
    parser = argparse.ArgumentParser(prog="console.engine")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--options", type=Path, required=True)
    parser.add_argument("--on-failure", required=True)
    parser.add_argument("--announce-fd", type=int, required=True)
    parser.add_argument("--owner-fd", type=int)
    args = parser.parse_args()
    os.environ.update(QUIET)
    # The cookbook calls the SDK's deprecated forms at every step; that is for its authors, not for the run's log.
    warnings.filterwarnings("ignore", category=FutureWarning, message="DEPRECATED")
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("httpx", "aiohttp.access", "tinker", "tinker_cookbook", "pylatexenc"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    asyncio.run(_main_and_exit(args))


async def _main_and_exit(args: argparse.Namespace) -> None:
    code = 7
    try:
        code = await _main(args)
    except BaseException:
        logging.getLogger(__name__).exception("the engine failed")
    sys.stdout.flush()
    sys.stderr.flush()
    # The journal is closed. Threads may be blocked for minutes, inside the SDK or on a disk: nobody waits for them.
    os._exit(code)


async def _main(args: argparse.Namespace) -> int:
    from console.engine.supervisor import Engine

    try:
        options = RunOptions.from_json(args.options.read_bytes())
        engine = Engine(options, args.run_dir, args.run_id, args.on_failure, args.owner_fd)
        args.options.replace(args.run_dir / OPTIONS_FILE)  # only now: the directory may have been a live run's
        await engine.start()
    except (QuarterdeckError, OSError) as error:
        code = error.exit_code if isinstance(error, QuarterdeckError) else 7
        _announce(args.announce_fd, {"type": "error", "message": one_line(str(error)), "exit_code": code})
        return code
    launch = {"type": "launch", "pid": os.getpid(), "socket": str(engine.board.server.path)}
    _announce(args.announce_fd, launch)
    cause = await engine.run()
    return cause.exit_code


def _announce(fd: int, record: dict[str, object]) -> None:
    with contextlib.suppress(BrokenPipeError):  # whoever started us is gone; the run goes on
        os.write(fd, msgspec.json.encode(record) + b"\n")
    os.close(fd)


if __name__ == "__main__":
    main()
