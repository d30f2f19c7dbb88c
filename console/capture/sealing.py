"""Turns a trial's journal of calls into its sealed file. For a worker thread."""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path

import zstandard

from console.records.capture_frames import BLOCK_BYTES, HEADER_BYTES, Cut, FrameError, header_seed
from console.records.capture_streams import PlainStream

LEVEL = 6
"""Of zstd: 6 ms for a trial of 60 turns; level 3 takes half and leaves 4 % more, level 9 twice for 0.5 % less."""


def seal_file(plain: Path, sealed: Path, size: int) -> None:
    """Write `sealed` from the `size` bytes of `plain`, which is checked on the way and then goes.

    Nothing goes before the sealed file is on the disk under its name. Raises OSError, and FrameError: what lies on the
    disk is not what was written. `plain` is there then.
    """
    stream = PlainStream(plain)
    cut = Cut(header_seed(stream.read(0, HEADER_BYTES) or b""), HEADER_BYTES)
    begins = [0]
    for offset, _ in stream.frames(cut, size):
        if offset - begins[-1] >= BLOCK_BYTES:
            begins.append(offset)
    if cut.offset != size:
        raise FrameError(f"it has {cut.offset} bytes of whole records, and {size} were written")
    temporary = sealed.with_name(sealed.name + ".tmp")
    try:
        _write(temporary, stream, [*begins, size])
        os.replace(temporary, sealed)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_dirs([sealed.parent])
    plain.unlink()


def _write(path: Path, stream: PlainStream, bounds: list[int]) -> None:
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, write_content_size=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        for begin, end in itertools.pairwise(bounds):
            block = stream.read(begin, end - begin) or b""
            if len(block) != end - begin:
                raise FrameError("it became shorter")
            write_all(fd, compressor.compress(block))
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, in one call unless the system takes it in parts. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync_dirs(directories: list[Path]) -> None:
    """Make names in directories durable. Raises OSError."""
    for directory in directories:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
