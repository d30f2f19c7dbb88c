"""The lock of a job: which Harbor wrote it, without the tens of megabytes that a lock of many trials has."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Any

import msgspec

from console.records.harbor.files import NoFileError, directory, read_ends, read_whole
from console.records.harbor.values import NOTHING, CorruptError, Scalar, built, count, parse, table, text

LOCK_LIMIT = 64 << 20
_HEAD = 64 << 10
_VERSION = re.compile(rb'"harbor"\s*:\s*\{[^{}]*?"version"\s*:\s*"([^"\\]{1,100})"')
_SCHEMA = re.compile(rb'"schema_version"\s*:\s*(\d{1,6})')


class LockHead(msgspec.Struct, frozen=True, kw_only=True):
    """What a job's lock says besides its trials.

    Attributes:
        harbor: version, "" when unknown; schema: of the lock, None without one; trials: number locked, None when it was
            not counted; values: the rest as parsed; problem: one line, "" when all is well.
    """

    harbor: str = ""
    schema: int | None = None
    trials: int | None = None
    values: dict[str, Any] = {}
    problem: str = ""


class _Skipped(msgspec.Struct, gc=False):
    """A locked trial, which is only counted."""


class _Lock(msgspec.Struct):
    schema_version: Scalar = None
    created_at: Scalar = None
    harbor: msgspec.Raw = NOTHING
    invocation: msgspec.Raw = NOTHING
    n_concurrent_trials: Scalar = None
    retry: msgspec.Raw = NOTHING
    trials: list[_Skipped] | None = None


_DECODER = msgspec.json.Decoder(_Lock)
_SHAPELESS = ("harbor", "invocation", "retry")
OBJECTS = 4_000_000
"""Objects of a lock: a hundred thousand trials have some ten each, and of a trial nothing is kept."""


def harbor_version(job_path: Path) -> str:
    """The version of Harbor that the job's lock tells, "" without one."""
    return read_lock(job_path).harbor


def read_lock(job_path: Path) -> LockHead:
    """The lock of a job, read again only when the file has changed."""
    try:
        info = os.lstat(job_path / "lock.json")
    except OSError:
        return LockHead()
    return _read(job_path, (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns))


@functools.lru_cache(maxsize=64)
def _read(job_path: Path, _version: tuple[int, ...]) -> LockHead:
    try:
        with directory(job_path) as dir_fd:
            try:
                data = read_whole(dir_fd, "lock.json", LOCK_LIMIT)
                return LockHead() if data is None else _head(parse(data, _DECODER, OBJECTS))
            except (NoFileError, CorruptError) as error:
                # Harbor's version stands in its first lines, also of a lock that is cut off or very large.
                begin = read_ends(dir_fd, "lock.json", _HEAD, 0) or b""
                problem = str(error) if isinstance(error, NoFileError) else f"lock.json {error}"
    except OSError:
        return LockHead()
    version, schema = _VERSION.search(begin), _SCHEMA.search(begin)
    return LockHead(
        harbor=version[1].decode("utf-8", "replace") if version else "",
        schema=int(schema[1]) if schema else None,
        problem=problem,
    )


def _head(value: Any) -> LockHead:
    if isinstance(value, _Lock):
        values, trials = msgspec.structs.asdict(value), value.trials
        values |= zip(_SHAPELESS, built([values[name] for name in _SHAPELESS]))
    else:
        values = table(value)
        trials = values.get("trials")
    return LockHead(
        harbor=text(table(values.get("harbor")).get("version")),
        schema=count(values.get("schema_version")),
        trials=len(trials) if isinstance(trials, list) else None,
        values={key: item for key, item in values.items() if key != "trials" and item is not None},
    )
