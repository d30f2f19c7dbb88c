"""The process of an engine, as the command line starts it: its words, its answer, and the run's exit code.

It says on `--announce-fd` one JSON line: the launch record once the socket is bound, or the error that prevented it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from console.engine.cause import one_line
from console.errors import QuarterdeckError
from console.launching import OPTIONS_FILE

if TYPE_CHECKING:
    from console.engine.life import EngineLife

type Maker = Callable[[argparse.Namespace], EngineLife]
"""Makes the engine from the parsed words; imports it only then. `options` is the file with its options."""


def engine_words(module: str) -> argparse.ArgumentParser:
    """The words that every engine is started with."""
    parser = argparse.ArgumentParser(prog=module)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--options", type=Path, required=True)
    parser.add_argument("--announce-fd", type=int, required=True)
    parser.add_argument("--owner-fd", type=int)
    return parser


def log_to_stderr(*chatty: str) -> None:
    """Log, and of those libraries warnings only."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for name in chatty:
        logging.getLogger(name).setLevel(logging.WARNING)


def live(args: argparse.Namespace, make: Maker) -> None:
    """Run the engine, and end the process with the run's exit code."""
    for fd in (args.announce_fd, args.owner_fd):
        if fd is not None:
            os.set_inheritable(fd, False)  # what the engine starts would hold them open
    asyncio.run(_live_and_exit(args, make))


async def _live_and_exit(args: argparse.Namespace, make: Maker) -> None:
    code = 7
    try:
        code = await _live(args, make)
    except BaseException:
        logging.getLogger(__name__).exception("the engine failed")
    sys.stdout.flush()
    sys.stderr.flush()
    # The journal is closed. Threads may be blocked for minutes, inside the SDK or on a disk: nobody waits for them.
    os._exit(code)


async def _live(args: argparse.Namespace, make: Maker) -> int:
    try:
        engine = make(args)
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
