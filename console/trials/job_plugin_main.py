"""Harbor's command in a process that ends with its engine: `python -m console.trials.job_plugin_main --fd N run ...`.

What follows the socket's number is Harbor's own command line. When the other side of the socket is gone, Harbor is
interrupted, as it is by the terminal: it takes its sandboxes down and ends. What makes Harbor give up is told on the
socket, by type.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator

import msgspec

from console.memory_order import RUNNER, yield_memory
from console.trials.job_plugin_protocol import JobFailed

ORPHAN_SECONDS = 60.0
"""How long Harbor may take its sandboxes down without an engine; without any it takes a moment."""
PLUGIN = "console.trials.job_plugin:Watch"

_MISTAKES = (ValueError, TypeError, LookupError, ImportError, AttributeError, FileExistsError, FileNotFoundError)
_MISTAKEN = frozenset(
    {"EmptyDatasetError", "UnavailableDatasetTasksError", "UsageError", "BadParameter", "NoSuchOption"}
)
"""What Harbor raises for a job that cannot be run as it is written. What the network or the disk raise is none."""
_EMPTY = frozenset({"SystemExit", "Exit", "Abort"})
"""Exceptions that only carry an exit code: what they were raised amid says why."""
_TEXT = 2_000


def main() -> None:
    fd = int(sys.argv[2])
    os.set_inheritable(fd, False)
    own = os.dup(fd)  # the plugin closes its own
    yield_memory(RUNNER)
    threading.Thread(target=_end_with, args=(own,), name="engine-watch", daemon=True).start()
    sys.argv = ["harbor", *sys.argv[3:]]
    try:
        from harbor.cli.main import app

        app()
    except SystemExit as error:
        if error.code not in (0, None):
            _tell(own, error)
        raise
    except BaseException as error:
        _tell(own, error)
        raise


def _end_with(fd: int) -> None:
    """Interrupt Harbor when nobody holds the other end of the socket any more."""
    poll = select.poll()
    poll.register(fd, 0)
    poll.poll()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(ORPHAN_SECONDS)
    os._exit(1)


def _tell(fd: int, error: BaseException) -> None:
    with contextlib.suppress(OSError, ValueError):
        channel = socket.socket(fileno=os.dup(fd))
        channel.setblocking(True)
        with channel:
            channel.sendall(msgspec.json.encode(failure(error)) + b"\n")


def failure(error: BaseException) -> JobFailed:
    """What ended Harbor: of a bare exit the exception behind it, of a group its first."""
    for cause in _behind(error):
        if isinstance(cause, SystemExit) and isinstance(cause.code, str):  # a preflight's own words
            return JobFailed(kind="SystemExit", text=cause.code[:_TEXT], mistake=True)
        name = type(cause).__name__
        if name not in _EMPTY and not isinstance(cause, BaseExceptionGroup):
            mistake = isinstance(cause, _MISTAKES) or name in _MISTAKEN
            return JobFailed(kind=name, text=str(cause)[:_TEXT], mistake=mistake)
    return JobFailed(kind="SystemExit", text="", mistake=isinstance(error, SystemExit) and error.code == 2)


def _behind(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        if isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        else:
            found = found.__context__ if type(found).__name__ in _EMPTY else None


if __name__ == "__main__":
    main()
