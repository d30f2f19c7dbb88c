"""`python -m console.engine.benchmark --run-dir DIR --run-id ID ...`: what the command line starts; not for people.

Says on `--announce-fd` one JSON line: the launch record once the socket is bound, or the error that prevented it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from pathlib import Path

import msgspec

from console.bench.running.options import BenchOptions
from console.engine.cause import one_line
from console.errors import QuarterdeckError
from console.launching import OPTIONS_FILE


def main() -> None:
    """Run the engine and end the process with the run's exit code."""
    parser = argparse.ArgumentParser(prog="console.engine.benchmark")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--options", type=Path, required=True)
    parser.add_argument("--announce-fd", type=int, required=True)
    parser.add_argument("--owner-fd", type=int)
    args = parser.parse_args()
    for fd in (args.announce_fd, args.owner_fd):
        if fd is not None:
            os.set_inheritable(fd, False)  # Harbor would hold them open
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    asyncio.run(_main_and_exit(args))


async def _main_and_exit(args: argparse.Namespace) -> None:
    code = 7
    try:
        code = await _main(args)
    except BaseException:
        logging.getLogger(__name__).exception("the engine failed")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the journal is closed; a thread that still reads a trial's files is not waited for


async def _main(args: argparse.Namespace) -> int:
    from console.engine.benchmark.engine import BenchEngine

    try:
        options = BenchOptions.from_json(args.options.read_bytes())
        engine = BenchEngine(options, args.run_dir, args.run_id, args.owner_fd)
        args.options.replace(args.run_dir / OPTIONS_FILE)  # only now: the directory may have been a live run's
        await engine.start()
    except (QuarterdeckError, OSError, msgspec.MsgspecError) as error:
        code = error.exit_code if isinstance(error, QuarterdeckError) else 7
        _announce(args.announce_fd, {"type": "error", "message": one_line(str(error)), "exit_code": code})
        return code
    launch = {"type": "launch", "pid": os.getpid(), "socket": str(engine.board.server.path)}
    _announce(args.announce_fd, launch)
    return (await engine.run()).exit_code


def _announce(fd: int, record: dict[str, object]) -> None:
    with contextlib.suppress(BrokenPipeError):  # whoever started us is gone; the run goes on
        os.write(fd, msgspec.json.encode(record) + b"\n")
    os.close(fd)


if __name__ == "__main__":
    main()
