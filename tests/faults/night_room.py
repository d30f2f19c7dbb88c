"""A room with a small disk: `python night_room.py DIR SIZE COMMAND...` runs a command with a file system of that size.

The file system is in memory and mounted on DIR in user and mount namespaces of the command's own: it needs no root,
nobody else sees it, and it is gone with the last process of the command.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path

MS_REC, MS_PRIVATE = 0x4000, 0x40000

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    """mount(2). Raises `OSError`."""
    if _libc.mount(source.encode(), target.encode(), kind.encode(), flags, data.encode()):
        number = ctypes.get_errno()
        raise OSError(number, f"mounting {kind or source} on {target}: {os.strerror(number)}")


def enter(directory: str, size: str, *, root: bool = True) -> None:
    """Move this process, which must have one thread, into the room. It stays the user that it is.

    Without `root`, a root user is told to be another one, and what it starts has no rights beyond that user's.
    """
    uid, gid = os.geteuid(), os.getegid()
    seen = uid if root or uid else 1000
    os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNS)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{seen} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{seen if seen != uid else gid} {gid} 1")
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    mount("tmpfs", directory, "tmpfs", 0, f"size={size},mode=0700")


def fill(directory: Path, leave: int) -> Path:
    """A file that leaves so many bytes free on the directory's disk."""
    filler = directory / "filler"
    disk = os.statvfs(directory)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize - leave)  # in one go
    return filler


def fill_up(directory: Path) -> None:
    """A file that leaves no room at all, whoever else writes meanwhile."""
    with (directory / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


if __name__ == "__main__":
    enter(sys.argv[1], sys.argv[2])
    os.execvp(sys.argv[3], sys.argv[3:])
