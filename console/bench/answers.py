"""Whole answers kept beside the verdicts: a tally of unchanged jobs is shown again without counting anything."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import zlib
from pathlib import Path

import msgspec

from console.bench.cache import ANSWER, NEW
from console.records.regular import open_regular

KEPT = 200
"""Answers that stay, the newest ones."""
_LARGEST = 64 << 20
_MAGIC = b"quarterdeck bench answer 1\n"


def recall[T](directory: Path | None, key: str | None, kind: type[T]) -> T | None:
    """The answer that was kept under this key; None without one, or where it is damaged."""
    if directory is None or key is None:
        return None
    try:
        fd = open_regular(_path(directory, key))
        if fd is None:
            return None
        with os.fdopen(fd, "rb") as file:
            data = file.read(_LARGEST)
    except OSError:
        return None
    body = data[len(_MAGIC) + 4 :]
    if data[: len(_MAGIC)] != _MAGIC or data[len(_MAGIC) : len(_MAGIC) + 4] != _check(body):
        return None
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except msgspec.MsgspecError:
        return None


def keep(directory: Path | None, key: str | None, answer: object) -> None:
    """Keep an answer; that it cannot be is no failure of anything else."""
    if directory is None or key is None:
        return
    try:
        body = msgspec.msgpack.encode(answer)
        with tempfile.NamedTemporaryFile(dir=directory, suffix=NEW, delete=False) as file:
            try:
                file.write(_MAGIC + _check(body) + body)
                file.close()
                os.replace(file.name, _path(directory, key))
            except OSError:
                os.unlink(file.name)
        _drop_old(directory)
    except (OSError, UnicodeEncodeError, OverflowError):
        return


def _drop_old(directory: Path) -> None:
    found = []
    for path in directory.glob(f"*{ANSWER}"):
        with contextlib.suppress(OSError):
            found.append((path.lstat().st_mtime, path))
    for _, path in sorted(found, reverse=True)[KEPT:]:
        with contextlib.suppress(OSError):
            path.unlink()


def _path(directory: Path, key: str) -> Path:
    return directory / (hashlib.sha256(key.encode()).hexdigest()[:32] + ANSWER)


def _check(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(4, "little")
