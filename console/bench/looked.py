"""Which files a verdict on a trial rests on, and whether anything has happened to them since."""

from __future__ import annotations

import hashlib
import os
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

SETTLED = 2.0
"""Seconds for which a file must have been left alone: one that is written now may change within its timestamp."""
_STAT = struct.Struct("<qqqQQ")
_MOST_FILES = 2_000
_FOLDERS = (b"agent", b"verifier")
_READ = (b".json", b".txt", b".log", b".toml", b".jsonl")


class Looked(msgspec.Struct, frozen=True):
    """The files and directories below a trial on which a verdict rests, and the digest of their stats.

    `settled`: none of them was written just now.
    """

    names: list[bytes]
    digest: bytes
    settled: bool


def look(trial: Path) -> Looked | None:
    """What there is to look at in a trial's directory; None for one that cannot be listed or holds too much."""
    names: list[bytes] = [b""]
    root = os.fsencode(trial)
    try:
        for name, folder in _entries(root, b""):
            if folder and name == b"steps":
                names.append(name)
                for step, inner in _entries(root, name):
                    names += _below(root, step) if inner else [step]
            elif folder and name in _FOLDERS:
                names += _inside(root, name)
            elif not folder:
                names.append(name)
            if len(names) > _MOST_FILES:
                return None
        digest, newest = _stats(root, names)
    except OSError:
        return None
    return Looked(names, digest, newest < time.time_ns() - int(SETTLED * 1e9))


def _below(root: bytes, step: bytes) -> list[bytes]:
    """A step's directory and names in it."""
    found = [step]
    for name, folder in _entries(root, step):
        if not folder:
            found.append(name)
        elif name.rsplit(b"/", 1)[-1] in _FOLDERS:
            found += _inside(root, name)
    return found


def _inside(root: bytes, folder: bytes) -> list[bytes]:
    """A folder, names in it and in its folders."""
    found = [folder]
    for name, deeper in _entries(root, folder):
        found.append(name)
        if deeper:
            found += [inner for inner, _ in _entries(root, name)]
    return found


def _entries(root: bytes, folder: bytes) -> Iterator[tuple[bytes, bool]]:
    """Name below the root and whether it is a directory, of the directories and of the files that readers may open."""
    with os.scandir(os.path.join(root, folder)) as found:
        for count, entry in enumerate(found):
            if count > _MOST_FILES:
                raise OSError("too many files")
            deeper = entry.is_dir(follow_symlinks=False)
            if deeper or entry.name.endswith(_READ):
                yield (folder + b"/" + entry.name if folder else entry.name), deeper


def unchanged(trial: Path, names: Sequence[bytes], digest: bytes) -> bool:
    """Whether the stats of these files still have this digest."""
    try:
        return _stats(os.fsencode(trial), names)[0] == digest
    except OSError:
        return False


def stats_digest(directory: Path, names: Sequence[bytes]) -> str:
    """Digest of the stats of files that may be missing."""
    found, root = hashlib.blake2b(digest_size=8), os.fsencode(directory)
    for name in names:
        try:
            found.update(_stats(root, [name])[0])
        except OSError:
            found.update(b"-")
    return found.hexdigest()


def _stats(root: bytes, names: Sequence[bytes]) -> tuple[bytes, int]:
    """Digest of the stats, and the newest change in nanoseconds since 1970. Raises OSError where one is gone."""
    found, newest = hashlib.blake2b(digest_size=16), 0
    prefix = root + b"/"
    for name in names:
        seen = os.lstat(prefix + name)
        changed, written = seen.st_ctime_ns, seen.st_mtime_ns
        found.update(_STAT.pack(written, changed, seen.st_size, seen.st_ino, seen.st_mode))
        newest = max(newest, changed, written)
    return found.digest(), newest
