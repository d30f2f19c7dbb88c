"""Copying files into and out of a sandbox.

Every path is resolved by the keeper, inside the sandbox, so a link that a process there has planted leads nowhere but
to the sandbox's own files; this process handles open descriptors only, and never follows a link of the sandbox itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import posixpath
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from console.trials.sandbox import Sandbox

_PIECE = 1 << 20
_DOWNLOAD_LIMIT = 2 << 30
"""Bytes of one download: sparse files cost an agent nothing, and must not fill the host's disk."""
_DEPTH = 64
"""Levels below the directory asked for; a deeper tree is an attack on the host's path lengths, and is cut there."""


async def upload_file(sandbox: Sandbox, source: Path, target: str) -> None:
    """Copy one host file, replacing whatever is there.

    Raises:
        OSError: unreadable source, or a target that cannot be written.
        SandboxLostError: the sandbox is gone.
    """
    with source.open("rb") as file:
        info = os.fstat(file.fileno())
        _, fd = await sandbox.request("write", path=target, mode=stat.S_IMODE(info.st_mode))
        assert fd is not None
        try:
            if info.st_size <= _PIECE:
                _write(fd, file.read())
            else:
                await asyncio.to_thread(_copy, file.fileno(), fd, info.st_size)
        finally:
            os.close(fd)


async def upload_dir(sandbox: Sandbox, source: Path, target: str, skip: frozenset[str] = frozenset()) -> None:
    """Copy a host directory's contents into a sandbox directory, links on the host followed.

    Args:
        skip: names left out at the top level.
    """
    if not source.is_dir():
        raise NotADirectoryError(f"{source} is not a directory")
    await sandbox.request("mkdir", path=target)
    for directory, directories, files in os.walk(source, followlinks=True):
        relative = os.path.relpath(directory, source)
        top = relative == "."
        here = target if top else posixpath.join(target, relative)
        if top:
            directories[:] = [name for name in directories if name not in skip]
        for name in directories:
            await sandbox.request("mkdir", path=posixpath.join(here, name))
        for name in files:
            if not (top and name in skip):
                await upload_file(sandbox, Path(directory, name), posixpath.join(here, name))


async def download_file(sandbox: Sandbox, source: str, target: Path) -> None:
    """Copy one sandbox file to the host, links followed inside the sandbox.

    Raises:
        OSError: no such regular file.
        SandboxLostError: the sandbox is gone.
    """
    _, fd = await sandbox.request("read", path=source)
    assert fd is not None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise IsADirectoryError(f"{source} is a directory")
        target.parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(_Reception().file, fd, target)
    finally:
        os.close(fd)


async def download_dir(sandbox: Sandbox, source: str, target: Path) -> None:
    """Copy a sandbox directory's contents to the host.

    A link to a file arrives as a copy of that file, if it leads to one inside the sandbox; links to directories, pipes,
    sockets and devices are left out.
    """
    _, fd = await sandbox.request("read", path=source)
    assert fd is not None
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            raise NotADirectoryError(f"{source} is not a directory")
        target.mkdir(parents=True, exist_ok=True)
        links = await asyncio.to_thread(lambda: list(_Reception().tree(fd, target, "", 0)))
    finally:
        os.close(fd)
    for relative in links:
        with contextlib.suppress(OSError):
            await download_file(sandbox, posixpath.join(source, relative), target / relative)


class _Reception:
    """One download, with its budget."""

    def __init__(self) -> None:
        self._left = _DOWNLOAD_LIMIT

    def tree(self, fd: int, target: Path, relative: str, depth: int) -> Iterator[str]:
        """Copy an open directory; yields the relative paths of the links in it."""
        with os.scandir(fd) as entries:
            found = [(entry.name, entry.stat(follow_symlinks=False).st_mode) for entry in entries]
        for name, mode in found:
            path = posixpath.join(relative, name)
            if stat.S_ISLNK(mode):
                yield path
            elif stat.S_ISREG(mode) or (stat.S_ISDIR(mode) and depth < _DEPTH):
                # Between the listing and here the entry may have become something else: hence the flags and the check.
                try:
                    child = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=fd)
                except OSError:
                    continue
                try:
                    opened = os.fstat(child).st_mode
                    if stat.S_ISDIR(opened):
                        _replace(target / name, directory=True)
                        yield from self.tree(child, target / name, path, depth + 1)
                    elif stat.S_ISREG(opened):
                        self.file(child, target / name)
                finally:
                    os.close(child)

    def file(self, fd: int, target: Path) -> None:
        """Copy an open regular file.

        Raises:
            OSError: the download's budget is used up.
        """
        self._left -= os.fstat(fd).st_size
        if self._left < 0:
            raise OSError(errno.EFBIG, f"download of more than {_DOWNLOAD_LIMIT >> 20} MiB refused", str(target))
        _replace(target, directory=False)
        out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        try:
            os.fchmod(out, 0o600 | stat.S_IMODE(os.fstat(fd).st_mode) & 0o777)
            _copy(fd, out, _DOWNLOAD_LIMIT)
        finally:
            os.close(out)


def _replace(target: Path, directory: bool) -> None:
    """Make room for a file or directory: links and entries of the other kind go."""
    if target.is_symlink() or (target.exists() and target.is_dir() != directory):
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink()
    if directory:
        target.mkdir(exist_ok=True)


def _copy(source: int, target: int, limit: int) -> None:
    """At most `limit` bytes: a file may grow while it is read."""
    while limit > 0 and (piece := os.read(source, min(_PIECE, limit))):
        limit -= len(piece)
        _write(target, piece)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
