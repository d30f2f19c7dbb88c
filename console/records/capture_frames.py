"""How records lie in a file of captured calls: a header, then frames. What is in them is in `capture_format`.

    header  8 bytes `QDCALLS\\n`, the format's version (u32), 8 random bytes that name the file
    frame   length of the payload (u32, 1 to 64 MiB), CRC-32 (u32), payload: one record in MessagePack

Numbers are little-endian. The CRC is of the file's 8 bytes, the length and the payload, so that neither a frame of
another file nor bytes that an agent wrote into a message are ever taken for a frame. A file that is being written, or
whose engine was killed, ends in `<key>.calls`; a frame is whole or it is not there. The sealed file `<key>.calls.zst`
is the same stream in zstd frames of about `BLOCK_BYTES` which begin and end with our frames: `zstd -d` gives the first
form back. Names of files are made of the engine's keys, never of anything that an agent said.
"""

from __future__ import annotations

import re
import secrets
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from console.records.capture_format import VERSION, AnyRecord, Record

MAGIC = b"QDCALLS\n"
HEADER_BYTES = 20
PAYLOAD_LIMIT = 64 << 20
BLOCK_BYTES = 4 << 20
"""Bytes of the stream in one zstd frame; a record that is longer has one of its own."""
PLAIN, SEALED = ".calls", ".calls.zst"

_KEY = re.compile(r"[A-Za-z0-9._-]{1,128}")
_HEADER = struct.Struct("<8sI8s")
_PREFIX = struct.Struct("<II")
_TAG = b"\xa4kind"
"""How each record begins, behind the byte or three of its map."""

FRAME_OVERHEAD = _PREFIX.size


class FrameError(ValueError):
    """Bytes that are no frame. The message says why, without file or offset."""


class ForeignFileError(FrameError):
    """Bytes that are no header, or one of a later version."""


def is_key(key: str) -> bool:
    """Whether it may name files."""
    return _KEY.fullmatch(key) is not None and key not in (".", "..")


def step_dir(run_dir: Path | str, step: int) -> Path:
    """The directory of a step's files of captured calls."""
    return Path(run_dir) / "capture" / f"step-{step:06d}"


def split_name(name: str) -> tuple[str, str] | None:
    """Key and suffix (`PLAIN` or `SEALED`) of a file's name; None for other files, such as a try's earlier one."""
    for suffix in (SEALED, PLAIN):
        if name.endswith(suffix) and is_key(name.removesuffix(suffix)):
            return name.removesuffix(suffix), suffix
    return None


def new_header() -> bytes:
    """The header of a new file."""
    return _HEADER.pack(MAGIC, VERSION, secrets.token_bytes(8))


def header_seed(data: bytes) -> int:
    """What the CRCs of a file with this header begin with. Raises `ForeignFileError`.

    `data` has at least `HEADER_BYTES`.
    """
    magic, version, name = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise ForeignFileError("it is no file of captured calls")
    if version > VERSION:
        raise ForeignFileError(f"it was written by a later version (format {version}; this one reads {VERSION})")
    return zlib.crc32(name)


def encode(record: Record, seed: int) -> bytes:
    """A record as a frame. Raises `ValueError`: it is too large, or has text that is not Unicode."""
    payload = _encoder.encode(record)
    if len(payload) > PAYLOAD_LIMIT:
        raise ValueError(f"a record of {len(payload)} bytes is too large to be kept (at most {PAYLOAD_LIMIT})")
    size = len(payload).to_bytes(4, "little")
    return b"".join((size, zlib.crc32(payload, zlib.crc32(size, seed)).to_bytes(4, "little"), payload))


def decode(payload: bytes | memoryview) -> AnyRecord | None:
    """The record of a frame; None for a kind that this version does not know. Raises `FrameError`."""
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        try:
            known = _kind_decoder.decode(payload).kind in _KINDS
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            known = True
        if known:
            raise FrameError(f"a record cannot be understood ({error})") from error
        return None


class Cut:
    """Cuts bytes of a stream into frames.

    Attributes:
        offset: in the stream, of the next frame; need: bytes that must be at hand from there on before there is one.
        rest: bytes behind the last whole frame, None as long as the end has not been seen.
    """

    def __init__(self, seed: int, offset: int) -> None:
        self.offset = offset
        self.need = FRAME_OVERHEAD
        self.rest: int | None = None
        self._seed = seed

    def frames(self, data: bytes) -> Iterator[tuple[int, memoryview]]:
        """Offset and payload of each whole frame in `data`, which begins at `self.offset`.

        Raises `FrameError` at bytes that are none; `offset` is theirs then, as it is of a frame while it is in hand.
        """
        view, at = memoryview(data), 0
        while True:
            size = payload_size(view[at : at + FRAME_OVERHEAD])
            self.need = FRAME_OVERHEAD + size
            if size == 0 or len(view) - at < self.need:
                return
            payload = view[at + FRAME_OVERHEAD : at + self.need]
            check(view[at : at + FRAME_OVERHEAD], payload, self._seed)
            yield self.offset, payload
            self.offset += self.need
            at += self.need

    def frame_within(self, data: bytes) -> bool:
        """Whether a whole frame lies in what looks like the beginning of one: its length is wrong then, not its end."""
        found = data.find(_TAG)
        while found >= 0:
            for head in (1, 3):
                begin = found - head - FRAME_OVERHEAD
                if begin > 0 and self._is_frame(data, begin):
                    return True
            found = data.find(_TAG, found + 1)
        return False

    def _is_frame(self, data: bytes, begin: int) -> bool:
        prefix = data[begin : begin + FRAME_OVERHEAD]
        size = int.from_bytes(prefix[:4], "little")
        payload = data[begin + FRAME_OVERHEAD : begin + FRAME_OVERHEAD + size]
        if not 0 < size <= PAYLOAD_LIMIT or len(payload) < size:
            return False
        try:
            check(prefix, payload, self._seed)
        except FrameError:
            return False
        return True


def payload_size(prefix: bytes | memoryview) -> int:
    """The length that a frame begins with, 0 when not all of it is there. Raises `FrameError`."""
    if len(prefix) < FRAME_OVERHEAD:
        return 0
    size, _ = _PREFIX.unpack(prefix)
    if not 0 < size <= PAYLOAD_LIMIT:
        raise FrameError(f"a record of {size} bytes cannot be")
    return int(size)


def check(prefix: bytes | memoryview, payload: bytes | memoryview, seed: int) -> None:
    """Raise `FrameError` unless the payload is what was written."""
    if zlib.crc32(payload, zlib.crc32(prefix[:4], seed)) != int.from_bytes(prefix[4:8], "little"):
        raise FrameError("a record does not match its checksum")


class _Kind(msgspec.Struct):
    kind: str


_KINDS = frozenset({"opened", "intent", "outcome", "refusal", "delivered", "sealed"})
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyRecord] = msgspec.msgpack.Decoder(AnyRecord)
_kind_decoder = msgspec.msgpack.Decoder(_Kind)
