"""The two forms of a file of captured calls as one stream of bytes: plain while it grows, zstd frames when sealed.

Offsets are those of the stream, so a place found in one form is the same in the other.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

import zstandard

from console.records.capture_frames import BLOCK_BYTES, FRAME_OVERHEAD, HEADER_BYTES, PAYLOAD_LIMIT, Cut, FrameError
from console.records.regular import open_regular

CHUNK = 1 << 20
_PACKED_CHUNK = 64 << 10
_BLOCK_LIMIT = HEADER_BYTES + BLOCK_BYTES + FRAME_OVERHEAD + PAYLOAD_LIMIT
_ZSTD_HEADER = 18

Identity = tuple[int, int, int]
"""Inode, bytes and time of change of a file."""


def identity(path: Path) -> Identity | None:
    """What tells a file from another of the same name; None when there is none. Raises OSError."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def is_other(path: Path) -> bool:
    """Whether something is there that is no regular file: a link, a directory, a pipe. Raises OSError."""
    try:
        return not stat.S_ISREG(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


class PlainStream:
    """A file that is being written, or was when its engine died. It is open only while it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, offset: int, size: int) -> bytes | None:
        """At most `size` bytes; None when the file is gone. Raises OSError."""
        fd = open_regular(self.path)
        if fd is None:
            return None
        try:
            return os.pread(fd, size, offset)
        finally:
            os.close(fd)

    def frames(self, cut: Cut, limit: int) -> Iterator[tuple[int, memoryview]]:
        """New whole frames from `cut.offset` on; it stops after `limit` bytes, or at the end.

        Raises FrameError, also for what looks like a torn end and is none; OSError.
        """
        fd = open_regular(self.path)
        if fd is None:
            return
        try:
            cut.rest = None
            while limit > 0:
                before, wanted = cut.offset, max(CHUNK, cut.need)
                data = _pread(fd, before, wanted)
                yield from cut.frames(data)
                limit -= max(1, cut.offset - before)
                if cut.offset == before and len(data) < wanted:
                    if cut.frame_within(data):
                        raise FrameError("the length of a record is wrong")
                    cut.rest = len(data)
                    return
        finally:
            os.close(fd)


class SealedStream:
    """A sealed file. The block that was unpacked last is kept."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._starts: list[int] = []
        self._packed: list[tuple[int, int]] = []
        self._kept: tuple[int, bytes] = (-1, b"")

    def blocks(self) -> Iterator[bytes]:
        """The stream, a zstd frame after the other, noting where each lies.

        Raises FrameError: damaged, the file's offset in the message; OSError.
        """
        fd = open_regular(self.path)
        if fd is None:
            return
        try:
            at, stream = 0, 0
            size = os.fstat(fd).st_size
            while at < size:
                try:
                    data, end = _unpack(fd, at)
                except (zstandard.ZstdError, FrameError, MemoryError) as error:
                    raise FrameError(f"a compressed block at byte {at} is damaged ({error})") from error
                self._starts.append(stream)
                self._packed.append((at, end))
                self._kept = (len(self._starts) - 1, data)
                at, stream = end, stream + len(data)
                yield data
        finally:
            os.close(fd)

    def read(self, offset: int, size: int) -> bytes | None:
        """Bytes of one block at most; None when the file is gone or damaged. Raises OSError."""
        number = bisect_right(self._starts, offset) - 1
        block = self._block(number) if number >= 0 else None
        if block is None:
            return None
        start = offset - self._starts[number]
        return block[start : start + size]

    def _block(self, number: int) -> bytes | None:
        kept, data = self._kept
        if kept == number:
            return data
        fd = open_regular(self.path)
        if fd is None:
            return None
        try:
            data, _ = _unpack(fd, self._packed[number][0])
        except (zstandard.ZstdError, FrameError, MemoryError):
            return None
        finally:
            os.close(fd)
        self._kept = (number, data)
        return data


def _unpack(fd: int, at: int) -> tuple[bytes, int]:
    """The zstd frame that begins at a byte of the file, unpacked, and where the next one begins.

    Raises ZstdError, FrameError, OSError.
    """
    head = os.pread(fd, _ZSTD_HEADER, at)
    size = zstandard.get_frame_parameters(head).content_size
    if size > _BLOCK_LIMIT:  # also what a size that is not given is encoded as: ours is always given
        raise FrameError("its size is not one that is written")
    unpacker = zstandard.ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    left = size
    while not unpacker.eof:
        data = os.pread(fd, _PACKED_CHUNK, at)
        if not data:
            raise FrameError("it is not whole")
        parts.append(unpacker.decompress(data))
        left -= len(parts[-1])
        at += len(data)
        if left < 0:
            raise FrameError("it is longer than it says")
    return b"".join(parts), at - len(unpacker.unused_data)


def _pread(fd: int, offset: int, size: int) -> bytes:
    """All of `size` bytes, unless the file ends before."""
    data = os.pread(fd, size, offset)
    while 0 < len(data) < size:
        more = os.pread(fd, size - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data
