"""Keys and values: the dense batch of the running rows, and what is kept of finished ones for the next turn."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from console.gateway.embedded.config import ModelConfig

Tokens = npt.NDArray[np.int32]
_BLOCK = 16
_ROUND = 64


class KVBatch:
    """Dense keys and values of one adapter's running rows, `(layers, rows, kv_heads, capacity, head_dim)`.

    Rows are kept packed from 0, so that a step works on views and copies nothing.
    """

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._keys = self._empty(0, 0)
        self._values = self._empty(0, 0)

    def _empty(self, rows: int, capacity: int) -> Tensor:
        # Zeros, not empty: padded positions are masked by -inf, and 0 * NaN would still be NaN.
        return torch.zeros(self._config.layers, rows, self._config.kv_heads, capacity, self._config.head_dim)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._keys.nbytes + self._values.nbytes

    def reserve(self, rows: int, length: int) -> None:
        """Make room for `rows` rows of `length` positions; what is there stays."""
        _, old_rows, _, old_length, _ = self._keys.shape
        if rows <= old_rows and length <= old_length:
            return
        if rows > old_rows:
            rows = max(rows, 2 * old_rows)
        if length > old_length:
            length = max(-(-length // _ROUND) * _ROUND, min(old_length * 3 // 2, self._config.context_window))
        rows, length = max(rows, old_rows), max(length, old_length)
        keys, values = self._empty(rows, length), self._empty(rows, length)
        keys[:, :old_rows, :, :old_length] = self._keys
        values[:, :old_rows, :, :old_length] = self._values
        self._keys, self._values = keys, values

    def append(
        self, layer: int, first: int, positions: Tensor, keys: Tensor, values: Tensor, reach: int
    ) -> tuple[Tensor, Tensor]:
        """Write `keys`, `values` (B, S, kv_heads, head_dim) at `positions` (B, S) of rows `first..first+B`.

        Returns views (B, kv_heads, reach, head_dim) of those rows' keys and values.
        """
        rows = positions.shape[0]
        all_keys, all_values = self._keys[layer, first : first + rows], self._values[layer, first : first + rows]
        at = (torch.arange(rows)[:, None], slice(None), positions)
        all_keys[at] = keys
        all_values[at] = values
        return all_keys[:, :, :reach], all_values[:, :, :reach]

    def read(self, row: int, length: int) -> tuple[Tensor, Tensor]:
        """Views of a row's first `length` positions, each (layers, kv_heads, length, head_dim)."""
        return self._keys[:, row, :, :length], self._values[:, row, :, :length]

    def write(self, row: int, keys: Tensor, values: Tensor) -> None:
        """Copy keys and values (layers, kv_heads, length, head_dim) to the head of a row."""
        length = keys.shape[2]
        self._keys[:, row, :, :length] = keys
        self._values[:, row, :, :length] = values

    def move(self, source: int, target: int, length: int) -> None:
        """Copy one row over another."""
        self.write(target, *self.read(source, length))


class Source(Protocol):
    """Something whose keys and values can be copied: a running row, or a kept sequence."""

    @property
    def adapter(self) -> str:
        """The key of the adapter that made the values."""
        ...

    @property
    def cached(self) -> Tokens:
        """The tokens whose keys and values exist."""
        ...

    def read(self, length: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the first `length` tokens, each (layers, kv_heads, length, head_dim)."""
        ...


class KeptSequence:
    """The keys and values of a finished row, copied out of the batch."""

    def __init__(self, adapter: str, tokens: Tokens, keys: Tensor, values: Tensor) -> None:
        self.adapter = adapter
        self.cached = tokens
        self._keys, self._values = keys.contiguous().clone(), values.contiguous().clone()
        self.blocks = _block_hashes(adapter, tokens)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._keys.nbytes + self._values.nbytes + self.cached.nbytes

    def read(self, length: int) -> tuple[Tensor, Tensor]:
        """See `Source`."""
        return self._keys[:, :, :length], self._values[:, :, :length]


class PrefixCache:
    """Finds, for a prompt, the sequence of the same adapter that shares the longest prefix with it.

    Prefixes are indexed by a running hash at every 16th token; the tokens themselves are compared before use. Kept
    sequences are dropped least recently used first once they exceed `budget` bytes.

    Attributes:
        kept_tokens: tokens whose keys and values are kept.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._size = 0
        self.kept_tokens = 0
        self._kept: OrderedDict[int, KeptSequence] = OrderedDict()
        self._index: dict[int, Source] = {}

    @property
    def nbytes(self) -> int:
        """Bytes held by kept sequences."""
        return self._size

    def find(self, adapter: str, prompt: Tokens, limit: int) -> tuple[Source | None, int]:
        """The best source and how many of the prompt's tokens it covers, at most `limit`."""
        for block in reversed(_block_hashes(adapter, prompt)):
            source = self._index.get(block)
            if source is not None and source.adapter == adapter:
                known = source.cached
                size = min(len(known), len(prompt), limit)
                differing = np.flatnonzero(known[:size] != prompt[:size])
                common = int(differing[0]) if len(differing) else size
                if common >= _BLOCK:
                    if isinstance(source, KeptSequence):
                        self._kept.move_to_end(id(source))
                    return source, common
        return None, 0

    def announce(self, adapter: str, source: Source) -> list[int]:
        """Index a running row's prompt; returns the hashes, which `withdraw` needs."""
        blocks = _block_hashes(adapter, source.cached)
        self._index.update(dict.fromkeys(blocks, source))
        return blocks

    def withdraw(self, source: Source, blocks: list[int]) -> None:
        """Forget a source's entries that no newer source has taken over."""
        for block in blocks:
            if self._index.get(block) is source:
                del self._index[block]

    def keep(self, sequence: KeptSequence, replaces: Source | None) -> None:
        """Keep a finished sequence; `replaces` is the one that it extends whole."""
        if isinstance(replaces, KeptSequence):
            self._drop(replaces)
        if sequence.nbytes > self._budget or len(sequence.cached) < _BLOCK:
            return
        self._kept[id(sequence)] = sequence
        self._size += sequence.nbytes
        self.kept_tokens += len(sequence.cached)
        self._index.update(dict.fromkeys(sequence.blocks, sequence))
        while self._size > self._budget:
            self._drop(next(iter(self._kept.values())))

    def forget(self, adapter: str) -> None:
        """Drop everything that was kept for an adapter."""
        for sequence in [kept for kept in self._kept.values() if kept.adapter == adapter]:
            self._drop(sequence)

    def _drop(self, sequence: KeptSequence) -> None:
        if self._kept.pop(id(sequence), None) is not None:
            self._size -= sequence.nbytes
            self.kept_tokens -= len(sequence.cached)
            self.withdraw(sequence, sequence.blocks)


def _block_hashes(adapter: str, tokens: Tokens) -> list[int]:
    running, hashes = hash(adapter), []
    raw, width = tokens.tobytes(), _BLOCK * tokens.itemsize
    for last in range(width, len(raw) + 1, width):
        running = hash((running, raw[last - width : last]))
        hashes.append(running)
    return hashes
