"""Sealed chunks: independent zstd frames of whole lines, and an index beside them.

A frame has a checksum and its size in its header, so a damaged frame is known as such and bounded before it is
unpacked. The index can always be made again from the chunk.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
import zstandard

from console.journal.events import Snapshot
from console.journal.layout import DAMAGED, FRAME_LIMIT, INDEX, PLAIN, SEALED, chunk_name, read_event
from console.journal.scan import ROW_TYPES, Block, ChunkIndex, Scan, lines_of

LEVEL = 3
_MAGIC = b"\x28\xb5\x2f\xfd"
_READ = 4 << 20


class _IndexFile(msgspec.Struct):
    """An index as stored: `crc` is of the bytes of `index`; `size` is that of the chunk."""

    v: int
    size: int
    crc: int
    index: msgspec.Raw


def scan_plain(path: Path, scan: Scan) -> None:
    """Let `scan` go on to the end of the plain chunk. Raises OSError."""
    with path.open("rb") as file:
        file.seek(scan.offset)
        want = _READ
        while True:
            data = file.read(want)
            used = scan.feed(data)
            if len(data) < want:
                return
            want = _READ if used else want * 2
            file.seek(scan.offset)


def seal(directory: Path, first_seq: int) -> None:
    """Turn a complete plain chunk into a sealed one.

    Everything is on disk before the plain form goes. Damaged lines are kept aside in a file of their own. A chunk
    without any event is removed. Raises OSError; the plain chunk is then still there.
    """
    name = chunk_name(first_seq)
    plain = directory / (name + PLAIN)
    scan = Scan(first_seq)
    scan_plain(plain, scan)
    scan.finish(plain.stat().st_size)
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, write_content_size=True)
    index = ChunkIndex(
        snapshots=scan.index.snapshots, rows=scan.index.rows, last_seq=scan.index.last_seq, last_ts=scan.index.last_ts
    )
    index.damage = scan.index.damage
    offset = 0
    chunk_tmp = directory / (name + SEALED + ".tmp")
    with plain.open("rb") as source, _create(chunk_tmp) as target:
        for block in scan.index.blocks:
            source.seek(block.offset)
            data = source.read(block.size)
            if scan.rejected:
                data = b"".join(line + b"\n" for line in lines_of(data, block.offset, scan.rejected))
            frame = compressor.compress(data)
            target.write(frame)
            index.blocks.append(Block(offset, len(frame), block.first_seq, block.last_seq, block.first_ts, len(data)))
            offset += len(frame)
        if scan.rejected:
            _keep_damaged(source, scan.rejected, directory / (name + DAMAGED))
        _sync(target)
    if index.blocks:
        write_index(directory, first_seq, index, offset)
        os.replace(chunk_tmp, directory / (name + SEALED))
        sync_directory(directory)
    else:
        chunk_tmp.unlink()
    plain.unlink()


def write_index(directory: Path, first_seq: int, index: ChunkIndex, size: int) -> None:
    """Write the index of a sealed chunk of `size` bytes. Raises OSError."""
    body = msgspec.json.encode(index)
    tmp = directory / (chunk_name(first_seq) + INDEX + ".tmp")
    with _create(tmp) as file:
        file.write(msgspec.json.encode(_IndexFile(1, size, zlib.crc32(body), msgspec.Raw(body))))
        _sync(file)
    os.replace(tmp, directory / (chunk_name(first_seq) + INDEX))


def load_index(directory: Path, first_seq: int) -> tuple[ChunkIndex, int] | None:
    """The stored index and the chunk size that it was made for; None when it is missing or damaged."""
    try:
        stored = _index_decoder.decode((directory / (chunk_name(first_seq) + INDEX)).read_bytes())
        if stored.v != 1 or zlib.crc32(stored.index) != stored.crc:
            return None
        return msgspec.json.decode(stored.index, type=ChunkIndex), stored.size
    except (OSError, ValueError, RecursionError):
        return None


def unpack(frame: bytes) -> bytes | None:
    """The lines of a frame, None when it is damaged or too large."""
    try:
        size = zstandard.get_frame_parameters(frame).content_size
        if size > FRAME_LIMIT:  # also what "unknown" is encoded as: our frames always carry their size
            return None
        data = _decompressor().decompress(frame, max_output_size=size)
    except (zstandard.ZstdError, MemoryError):
        return None
    return data if len(data) == size and data.endswith(b"\n") else None


def frames_in(data: bytes) -> Iterator[tuple[int, int, bytes | None]]:
    """Find frames without an index: (offset, size, lines), None for bytes that are no intact frame."""
    position = bad_from = 0
    while position < len(data):
        found = data.find(_MAGIC, position)
        size, lines = _frame_at(data, found) if found >= 0 else (0, None)
        if lines is None:
            position = found + 1 if found >= 0 else len(data)
            continue
        if bad_from < found:
            yield bad_from, found - bad_from, None
        yield found, size, lines
        position = bad_from = found + size
    if bad_from < len(data):
        yield bad_from, len(data) - bad_from, None


def _frame_at(data: bytes, offset: int) -> tuple[int, bytes | None]:
    view = memoryview(data)[offset:]
    try:
        size = zstandard.get_frame_parameters(view[:32]).content_size
        if size > FRAME_LIMIT:
            return 0, None
        unpacker = _decompressor().decompressobj()
        lines = bytearray()
        step, used = 64 << 10, 0
        while not unpacker.eof and used < len(view):
            lines += unpacker.decompress(view[used : used + step])
            used += step
            if len(lines) > size:
                return 0, None
        if not unpacker.eof or len(lines) != size or not lines.endswith(b"\n"):
            return 0, None
        return min(used, len(view)) - len(unpacker.unused_data), bytes(lines)
    except (zstandard.ZstdError, MemoryError):
        return 0, None


def rebuild_index(data: bytes, first_seq: int) -> ChunkIndex:
    """The index of a sealed chunk's bytes."""
    index = ChunkIndex(last_seq=first_seq - 1)
    for offset, size, lines in frames_in(data):
        if lines is None:
            index.damage.append((offset, size, "not an intact frame"))
            continue
        block: Block | None = None
        for line in lines_of(lines):
            event = read_event(line)
            if event is None or event.seq <= index.last_seq:
                continue
            index.last_seq, index.last_ts = event.seq, event.ts
            if isinstance(event, Snapshot):
                index.snapshots.append((event.seq, event.ts))
            elif type(event) in ROW_TYPES:
                index.rows.append(event.seq)
            if block is None:
                block = Block(offset, size, event.seq, event.seq, event.ts, len(lines))
                index.blocks.append(block)
            block.last_seq = event.seq
    return index


def sync_directory(directory: Path) -> None:
    """Make renames and new names durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _create(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _keep_damaged(source: BinaryIO, rejected: dict[int, int], path: Path) -> None:
    with _create(path) as kept:
        for offset, size in rejected.items():
            source.seek(offset)
            kept.write(source.read(size))
        _sync(kept)


def _decompressor() -> zstandard.ZstdDecompressor:
    """A new one each time (9 us): one that two threads share crashes the process."""
    return zstandard.ZstdDecompressor(max_window_size=FRAME_LIMIT)


_index_decoder = msgspec.json.Decoder(_IndexFile)
