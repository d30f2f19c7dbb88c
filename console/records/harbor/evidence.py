"""A trial's text files for whoever looks for reasons: the end of each, however long it is, and which there are."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from console.records.harbor.files import below, directory

TAIL = 64 << 10
COUNTED = 8 << 20
"""Bytes of a file up to which the lines before its tail are counted."""

FILES = 64
NAMES = 2_000
STEPS = 50

_HARNESS = ("trial.log", "exception.txt")
_VERIFIER = ("verifier/test-stdout.txt", "verifier/test-stderr.txt")
_ENDINGS = (".txt", ".log")


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a text file.

    Attributes:
        text: whole lines, unless one line is longer than what was read; bytes that are no UTF-8 are U+FFFD.
        first_line: number of its first line, from 1, where only line feeds end a line; None when it was not counted.
        size: of the file in bytes, None without a file that can be read.
    """

    text: str = ""
    first_line: int | None = None
    size: int | None = None


def tail(trial_path: Path, name: str, limit: int = TAIL) -> Tail:
    """The last `limit` bytes of the file `name` below the trial's directory, e.g. "agent/claude-code.txt".

    An empty text for what is no regular file, is reached through a link, or cannot be read. The lines of a file of more
    than 8 MiB are not counted.
    """
    try:
        with directory(trial_path) as dir_fd, below(dir_fd, name) as found:
            if found is None:
                return Tail()
            fd, size = found
            start = max(0, size - limit)
            data = os.pread(fd, limit, start)
            if start:
                # What stands before the first line break is the end of a line whose beginning was not read.
                skipped = data.find(b"\n") + 1
                data, start = data[skipped:], start + skipped
            first = _lines(fd, start) + 1 if size <= COUNTED or not start else None
            return Tail(text=data.decode("utf-8", "replace"), first_line=first, size=size)
    except OSError:
        return Tail()


def agent_texts(trial_path: Path, most: int = FILES) -> tuple[str, ...]:
    """Names, relative to the trial's directory, of the text files that there are, at most `most`.

    First those of the agent (`agent/*.txt`, `agent/*.log`, and one level below), then trial.log and exception.txt, then
    the verifier's output; those of the steps of a multi-step trial after those of the trial itself. Empty files, links,
    and files whose names are no UTF-8 are left out. Of very many, the agent's later ones by name go first.
    """
    agent: list[str] = []
    others: list[str] = []
    try:
        with directory(trial_path) as dir_fd:
            others += [name for name in (*_HARNESS, *_VERIFIER) if _has_text(dir_fd, name)]
            for place in ("", *(f"steps/{step}/" for step in _steps(trial_path))):
                agent += _agent_files(trial_path / f"{place}agent", f"{place}agent/")
                others += [place + name for name in _VERIFIER if place and _has_text(dir_fd, place + name)]
    except OSError:
        pass
    others = others[:most]
    return (*agent[: most - len(others)], *others)


def _agent_files(path: Path, place: str) -> list[str]:
    files: list[str] = []
    inner: list[str] = []
    for name, kind in _entries(path):
        if kind == "dir":
            inner += [f"{place}{name}/{deep}" for deep, what in _entries(path / name) if what == "text"]
        elif kind == "text":
            files.append(place + name)
    return sorted(files) + sorted(inner)


def _steps(trial_path: Path) -> list[str]:
    return sorted(name for name, kind in _entries(trial_path / "steps") if kind == "dir")[:STEPS]


def _entries(path: Path) -> Iterator[tuple[str, str]]:
    """Names and kinds, "dir" or "text", of what a directory has; of very many, some. No link is followed."""
    try:
        with directory(path) as fd, os.scandir(fd) as entries:
            for number, entry in enumerate(entries):
                if number == NAMES:
                    return
                if not _sayable(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    yield entry.name, "dir"
                elif entry.name.endswith(_ENDINGS) and _is_text(entry.stat(follow_symlinks=False)):
                    yield entry.name, "text"
    except OSError:
        return


def _sayable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _has_text(dir_fd: int, name: str) -> bool:
    try:
        info = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except OSError:
        return False
    return _is_text(info)


def _is_text(info: os.stat_result) -> bool:
    return stat.S_ISREG(info.st_mode) and info.st_size > 0


def _lines(fd: int, end: int) -> int:
    """Line feeds in the first `end` bytes."""
    count, at = 0, 0
    while at < end and (block := os.pread(fd, min(1 << 20, end - at), at)):
        count += block.count(b"\n")
        at += len(block)
    return count
