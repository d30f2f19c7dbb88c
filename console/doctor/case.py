"""What the checks look at: the facts of a host, read from its files, and the options of a run, if there are any."""

from __future__ import annotations

import ctypes
import os
import pwd
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from console.control.registry import STATE_DIR_VARIABLE
from console.training.options import RunOptions, ValueFault

_TIME_ERROR = 5
"""What adjtimex(2) returns while nobody keeps the clock."""
_TIMEX_BYTES = 256
"""More than `struct timex` has anywhere."""
_LARGEST_FILE = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class Host:
    """A host, its account and its terminal.

    Attributes:
        root: where its file system begins; env: environment variables; uid, user: of the account.
        system: as `sys.platform`; python: version; site: directories with installed packages, None for this process'.
        now: Unix seconds; synchronised: whether somebody keeps the clock, None when it does not say.
        terminals: whether standard input, output and errors are terminals; size: columns and rows, None without one.
    """

    root: Path = Path("/")
    env: Mapping[str, str] = field(default_factory=dict)
    uid: int = 0
    user: str = ""
    system: str = "linux"
    python: tuple[int, ...] = (3, 13, 0)
    site: Sequence[str] | None = None
    now: float = 0.0
    synchronised: bool | None = None
    terminals: tuple[bool, bool, bool] = (False, False, False)
    size: tuple[int, int] | None = None

    def read(self, path: str) -> str | None:
        """The beginning of a file of the host, None when there is none or it may not be read."""
        try:
            with open(self.root / path.lstrip("/"), encoding="utf-8", errors="replace") as file:
                return file.read(_LARGEST_FILE)
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """A file that holds one number; None for another one, or none."""
        text = (self.read(path) or "").strip()
        return int(text) if text.isdigit() else None

    def has(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        return (self.root / path.lstrip("/")).exists()

    @property
    def state_dir(self) -> Path:
        """Where the registry and the sockets are; it need not exist."""
        override = self.env.get(STATE_DIR_VARIABLE)
        return Path(override).expanduser().absolute() if override else platformdirs.user_state_path("quarterdeck")


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is examined.

    Attributes:
        options: of the run that is meant, None for none; given: whether options were given at all.
        faults: of those options, what does not fit; live: whether gateways and sandbox providers may be asked.
    """

    host: Host
    options: RunOptions | None = None
    given: bool = False
    faults: Sequence[ValueFault] = ()
    live: bool = False

    @property
    def trials(self) -> int:
        """How many trials run at a time; those of the reference run when no run is meant."""
        if self.options is None:
            return 32
        value = self.options.value
        groups, size = value("config.dataset_builder.groups_per_batch"), value("config.dataset_builder.group_size")
        return int(groups) * min(int(size), self.options.harbor.max_parallel_trials_per_group)


def this_host() -> Host:
    """The host that this process runs on."""
    terminals = tuple(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    return Host(
        env=dict(os.environ),
        uid=os.getuid(),
        user=_user(),
        system=sys.platform,
        python=tuple(sys.version_info[:3]),
        now=time.time(),
        synchronised=_synchronised(),
        terminals=terminals,  # type: ignore[arg-type]
        size=_size() if terminals[1] else None,
    )


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # an id without a name, as in some containers
        return str(os.getuid())


def _size() -> tuple[int, int] | None:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return None
    return (size.columns, size.lines) if size.columns and size.lines else None


def _synchronised() -> bool | None:
    """Asks the kernel; containers may not."""
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR
