"""The few Linux calls that the standard library lacks. Standard library only."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_MS_BIND_RECURSIVE = 4096 | 16384

# What Docker grants by default, less raw sockets, device nodes and the audit log: chown, dac_override, fowner, fsetid,
# kill, setgid, setuid, setpcap, net_bind_service, sys_chroot, setfcap.
_KEPT_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 31})


def _last_capability() -> int:
    try:
        return int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    except (OSError, ValueError):
        return 40


_LAST_CAPABILITY = _last_capability()  # read at import: a process inside a sandbox sees another /proc


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def die_with_parent() -> None:
    """SIGKILL for this process when its parent dies. Cleared by every change of user: call again after one."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def hide_memory() -> None:
    """No tracing and no reading of this process by others of its user; lasts until the next exec."""
    _prctl(_PR_SET_DUMPABLE, 0)


def restrict_privileges() -> None:
    """Keep Docker's default capabilities at most, from the next exec on, and gain none ever."""
    for capability in range(_LAST_CAPABILITY + 1):
        if capability not in _KEPT_CAPABILITIES:
            _prctl(_PR_CAPBSET_DROP, capability)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def mount(source: str, target: str, kind: str | None, options: str | None = None) -> None:
    """Mount a file system of `kind`, or, with `kind` None, bind `source` (with what is mounted below it) on `target`.

    Raises:
        OSError: the kernel refused.
    """
    flags = _MS_BIND_RECURSIVE if kind is None else 0
    arguments = [s.encode() if s is not None else None for s in (source, target, kind)]
    if _libc.mount(*arguments, flags, options.encode() if options else None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} on {target}: {os.strerror(number)}")
