"""One writer a journal: a lock that goes with its process."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from console.errors import UsageError
from console.journal.layout import LOCK_FILE


def take_lock(directory: Path) -> int:
    """Make the directory (0700) when it is missing and lock it; the lock lasts until the descriptor is closed.

    Raises:
        UsageError: another process holds it, or the directory cannot be used.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        fd = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise UsageError(f"{directory}: cannot be written ({error.strerror}); choose another run directory") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise UsageError(
            f"{directory.parent}: the run is live, process {holder or 'unknown'} writes its journal; "
            "attach to it, or stop it first"
        ) from None
    except OSError as error:
        os.close(fd)
        raise UsageError(f"{directory}: cannot be locked ({error.strerror}); choose a local file system") from error
    return fd
