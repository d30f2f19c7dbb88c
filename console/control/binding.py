"""Private directories, the listening socket, and who is at the other end of a connection."""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys
from pathlib import Path

from console.errors import ControlError

PATH_LIMIT = 100
"""Longest socket path used, in bytes: Linux takes 107, macOS 103."""


def ensure_private_dir(path: Path) -> Path:
    """Make the directory, or check it: ours, not a link, closed to others (0700).

    Raises:
        ControlError: it belongs to someone else, is not a directory, or cannot be made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise ControlError(f"{path} is not a directory of yours: remove it, or set QUARTERDECK_STATE_DIR")
        if found.st_mode & 0o077:
            path.chmod(0o700)
    except OSError as error:
        raise ControlError(f"{path} cannot be used ({error.strerror}): set QUARTERDECK_STATE_DIR") from None
    return path


def listen(path: Path) -> socket.socket:
    """A listening unix socket, 0600, in a private directory. A socket file that nobody listens on is replaced.

    Raises:
        ControlError: the path is too long, somebody listens there already, or it is no socket.
    """
    if len(os.fsencode(path)) > PATH_LIMIT:
        raise ControlError(f"socket path {path} is longer than {PATH_LIMIT} bytes: choose a shorter directory")
    ensure_private_dir(path.parent)
    _remove_stale(path)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        server.bind(os.fspath(path))
        path.chmod(0o600)  # before listen: until then nobody can connect
        server.listen(64)
        server.setblocking(False)
    except OSError as error:
        server.close()
        raise ControlError(f"socket {path} cannot be opened: {error.strerror}") from None
    return server


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ControlError(f"{path} is in the way and is not a socket: remove it")
    if _somebody_listens(path):
        raise ControlError(f"another engine listens at {path}: `quarterdeck runs` shows it")
    path.unlink(missing_ok=True)


def _somebody_listens(path: Path) -> bool:
    """A full backlog or a refusal for lack of rights also means that somebody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True


def peer_of(connection: socket.socket) -> tuple[int, int] | None:
    """(pid, uid) of the process at the other end; None where the system does not say."""
    if sys.platform != "linux":
        return None
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", raw)
    return pid, uid


def may_connect(peer: tuple[int, int] | None) -> bool:
    """The same user, or root. Without a known peer the directory's permissions decide."""
    return peer is None or peer[1] in (0, os.getuid())
