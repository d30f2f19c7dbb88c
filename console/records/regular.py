"""Files that are read although somebody else may have put them there: regular ones only, never through a link."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_NO_FILE = (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENAMETOOLONG)


def open_regular(path: Path | str, dir_fd: int | None = None) -> int | None:
    """A descriptor of a regular file, never of what a link points to; None when there is none. Raises OSError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, dir_fd=dir_fd)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None
