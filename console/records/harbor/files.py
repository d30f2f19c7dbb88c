"""Files of a job directory, opened with care: regular ones only, never through a link, bounds before reading."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from console.records.regular import open_regular
from console.records.trial_files import is_name

SHOWN = 300


class NoFileError(Exception):
    """A file that is not read. `problem`: "unreadable" or "too_large"; the message is one line without the path."""

    def __init__(self, problem: str, text: str) -> None:
        """`text`: what is wrong with it, as the end of a sentence that begins with its name."""
        super().__init__(text)
        self.problem = problem


def shown(path: Path | str) -> str:
    """A path or name on one line, whatever bytes it has, cut to 300 characters from its end.

    Line breaks, escapes and bytes that are no UTF-8 are written as Python would write them.
    """
    text = clean(str(path))
    if not text.isprintable():
        text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return text if len(text) <= SHOWN else "…" + text[1 - SHOWN :]


def clean(text: str) -> str:
    """The text with lone surrogates written out: bytes of a name that are no UTF-8 cannot be encoded again."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def why(error: OSError) -> str:
    """What the operating system said, in its words."""
    return os.strerror(error.errno).lower() if error.errno else str(error)


@contextlib.contextmanager
def directory(path: Path) -> Iterator[int]:
    """A descriptor of the directory itself, never of what a link points to. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def below(dir_fd: int, name: str) -> Iterator[tuple[int, int] | None]:
    """A regular file at the relative path `name` and its size in bytes, no part of which is a link; None without one.

    Raises OSError.
    """
    *parts, last = name.split("/")
    fd = os.dup(dir_fd)
    try:
        for part in parts:
            inner = _directory_in(fd, part)
            if inner is None:
                yield None
                return
            os.close(fd)
            fd = inner
        found = open_regular(last, fd) if is_name(last) else None
        if found is None:
            yield None
            return
        try:
            yield found, os.fstat(found).st_size
        finally:
            os.close(found)
    finally:
        os.close(fd)


def _directory_in(fd: int, name: str) -> int | None:
    if not is_name(name):
        return None
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if isinstance(error, PermissionError):
            raise
        return None


def read_whole(dir_fd: int, name: str, limit: int) -> bytes | None:
    """A whole file of at most `limit` bytes, None when there is none.

    Raises NoFileError for one that is larger, may not be read, or is no regular file.
    """
    try:
        with below(dir_fd, name) as found:
            if found is None:
                if "/" not in name and _exists(dir_fd, name):
                    raise NoFileError("unreadable", f"{shown(name)} is no regular file, and no link is followed")
                return None
            fd, size = found
            if size > limit:
                raise NoFileError(
                    "too_large", f"{shown(name)} has {size:,} bytes, more than the {limit:,} that are read"
                )
            return _read(fd, size)
    except OSError as error:
        raise NoFileError("unreadable", f"{shown(name)} cannot be read: {why(error)}") from error


def read_ends(dir_fd: int, name: str, head: int, tail: int) -> bytes | None:
    """A file's first `head` and last `tail` bytes, a line with an ellipsis between them when it has more; None without.

    What cannot be read is not there.
    """
    try:
        with below(dir_fd, name) as found:
            if found is None:
                return None
            fd, size = found
            if size <= head + tail:
                return _read(fd, size)
            return os.pread(fd, head, 0) + "\n…\n".encode() + os.pread(fd, tail, size - tail)
    except OSError:
        return None


def changed(dir_fd: int, *names: str) -> float | None:
    """When the latest of these was changed: seconds since 1970; None when none is there."""
    times = []
    for name in names:
        with contextlib.suppress(OSError):
            times.append(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mtime)
    return max(times, default=None)


def _read(fd: int, size: int) -> bytes:
    """What the file has now, at most `size` bytes: a file that grows meanwhile is cut, one that shrinks ends."""
    data = os.read(fd, size)
    if len(data) == size:
        return data
    parts = [data]
    rest = size - len(data)
    while rest > 0 and (data := os.read(fd, rest)):
        parts.append(data)
        rest -= len(data)
    return b"".join(parts)


def _exists(dir_fd: int, name: str) -> bool:
    try:
        return not stat.S_ISREG(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
    except OSError:
        return False
