"""One chunk as a reader sees it, plain or sealed. The pieces that both have: an index, and blocks of lines."""

from __future__ import annotations

import bisect
from pathlib import Path
from typing import Protocol

from console.journal.layout import INDEX, PLAIN, SEALED, Damage, chunk_name
from console.journal.scan import Block, ChunkIndex, Scan, as_damage, lines_of
from console.journal.sealed import load_index, rebuild_index, scan_plain, unpack


class Chunk(Protocol):
    """A chunk. A plain one's `refresh` and `lines` raise FileNotFoundError once it was sealed."""

    first_seq: int
    path: Path

    @property
    def index(self) -> ChunkIndex: ...

    def refresh(self) -> None:
        """Take in what was written since."""

    def damage(self) -> list[Damage]:
        """What the index knows of."""

    def lines(self, block: Block) -> list[bytes] | None:
        """The lines of a block, None when it cannot be read."""


class PlainChunk:
    """A chunk of plain lines; the last one of a journal may still grow."""

    def __init__(self, directory: Path, first_seq: int) -> None:
        self.first_seq = first_seq
        self.path = directory / (chunk_name(first_seq) + PLAIN)
        self._directory = directory
        self._scan = Scan(first_seq)
        self._size = 0

    @property
    def index(self) -> ChunkIndex:
        return self._scan.index

    def refresh(self) -> None:
        status = self.path.stat()
        if status.st_size < self._scan.offset:  # cut below whole lines: not a writer's doing
            self._scan = Scan(self.first_seq)
        if status.st_size > self._scan.offset:
            scan_plain(self.path, self._scan)
        self._size = max(status.st_size, self._scan.offset)

    def damage(self) -> list[Damage]:
        found = as_damage(self.path.name, self._scan.damage)
        if self._size > self._scan.offset:
            found.append(Damage(self.path.name, self._scan.offset, self._size - self._scan.offset, "unfinished line"))
        return found

    def lines(self, block: Block) -> list[bytes] | None:
        with self.path.open("rb") as file:
            file.seek(block.offset)
            data = file.read(block.size)
        if len(data) < block.size:
            return None
        return list(lines_of(data, block.offset, self._scan.rejected))


class SealedChunk:
    """A compressed chunk; it does not change any more.

    Attributes:
        cut: its end is damaged, and no index says what stood there; known once `index` is.
    """

    def __init__(self, directory: Path, first_seq: int) -> None:
        self.first_seq = first_seq
        self.path = directory / (chunk_name(first_seq) + SEALED)
        self._directory = directory
        self.cut = False
        self._index: ChunkIndex | None = None
        self._damage: list[Damage] = []

    @property
    def index(self) -> ChunkIndex:
        if self._index is None:
            self._index = self._load()
        return self._index

    def _load(self) -> ChunkIndex:
        stored = load_index(self._directory, self.first_seq)
        try:
            if stored is None:
                self._damage.append(Damage(chunk_name(self.first_seq) + INDEX, 0, 0, "no usable index; made again"))
                data = self.path.read_bytes()
                index = rebuild_index(data, self.first_seq)
                self.cut = not data or any(offset + size == len(data) for offset, size, _ in index.damage)
                return index
            index, expected = stored
            size = self.path.stat().st_size
        except FileNotFoundError:
            self._damage.append(Damage(self.path.name, 0, 0, "the chunk is missing"))
            return ChunkIndex(last_seq=self.first_seq - 1)
        if size < expected:
            self._damage.append(Damage(self.path.name, size, expected - size, "the end is missing"))
        return index

    def refresh(self) -> None:
        pass

    def damage(self) -> list[Damage]:
        return as_damage(self.path.name, self.index.damage) + self._damage

    def lines(self, block: Block) -> list[bytes] | None:
        try:
            with self.path.open("rb") as file:
                file.seek(block.offset)
                lines = unpack(file.read(block.size))
        except OSError:
            return None
        return list(lines_of(lines)) if lines is not None else None


def block_at(index: ChunkIndex, seq: int) -> int:
    """Position of the first block that can hold `seq` or something later."""
    return bisect.bisect_left(index.blocks, seq, key=lambda block: block.last_seq)
