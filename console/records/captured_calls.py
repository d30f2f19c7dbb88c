"""Reads what was captured of a try: its calls joined with how they ended, prompts, what is trained.

Works on files that grow, on sealed ones and on those of killed engines. Only an index is kept in memory; ids and
texts are read when they are asked for. How the files are made: `capture_format`, `capture_frames`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from console.errors import RecordingError
from console.records.capture_format import (
    Delivered,
    Intent,
    Opened,
    Outcome,
    Refusal,
    Sealed,
    SegmentLine,
    ids_of,
    logprobs_of,
)
from console.records.capture_frames import (
    FRAME_OVERHEAD,
    HEADER_BYTES,
    PLAIN,
    SEALED,
    ForeignFileError,
    FrameError,
    check,
    decode,
    payload_size,
    split_name,
)
from console.records.capture_index import CallEntry, CallIndex
from console.records.capture_paths import earlier_files, find_trial_file, step_of, trial_files
from console.records.capture_streams import Identity, PlainStream, SealedStream, identity, is_other

__all__ = ["CapturedTrialFile", "KeptCall", "SegmentTokens", "find_trial_file", "is_answer", "trial_files"]

SCAN_BYTES = 128 << 20
"""Bytes of a growing file that are looked through at most in one go."""


class KeptCall(msgspec.Struct, kw_only=True, frozen=True):
    """A call as it was written down.

    Attributes:
        intent: what went to the sampler; outcome: how it ended, None when it is under way or was when the engine died.
        delivered: how often its reply was handed to the agent's connection.
    """

    intent: Intent
    outcome: Outcome | None = None
    delivered: int = 0

    @property
    def answered(self) -> bool:
        """Whether it was sampled and its reply may have left."""
        return self.outcome is not None and is_answer(self.outcome.status)

    def prompt_new(self) -> array[int]:
        """Ids behind those of the parent. Raises ValueError for a torn record."""
        return ids_of(self.intent.prompt_new)

    def tokens(self) -> array[int]:
        """Sampled ids. Raises ValueError for a torn record."""
        return ids_of(self.outcome.tokens) if self.outcome is not None else array("i")

    def logprobs(self) -> array[float]:
        """Their log-probs. Raises ValueError for a torn record."""
        return logprobs_of(self.outcome.logprobs) if self.outcome is not None else array("f")


class SegmentTokens(msgspec.Struct, kw_only=True, frozen=True):
    """A segment as one sequence of T tokens.

    Attributes:
        tokens_T: ids; mask_T: 1 where the token was sampled by a call of this segment, else 0.
        logprobs_T: log-probs where it was, 0 elsewhere.
    """

    tokens_T: array[int]
    mask_T: bytes
    logprobs_T: array[float]


class CapturedTrialFile:
    """One try's captured calls. It may be replaced by its sealed form, or by a later run of the same try, meanwhile.

    Args:
        path: of either form, whether it is there or not; also an earlier one that was set aside.

    Attributes:
        key: the try; step: of the run, None when the directory does not say.
        earlier: how many files of the same try were set aside before the one that is read was begun.

    Nothing is read before `refresh`. Not for use by several threads at a time.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        named = split_name(self.path.name)
        self.key = named[0] if named is not None else self.path.name.partition(PLAIN)[0]
        self.step = step_of(self.path.parent.name)
        if named is not None:
            self._plain = self.path.with_name(self.key + PLAIN)
            self._sealed: Path | None = self.path.with_name(self.key + SEALED)
        elif self.path.suffix == ".zst":
            self._plain, self._sealed = self.path.with_suffix(""), self.path
        else:
            self._plain, self._sealed = self.path, None
        self.earlier = 0
        self._index = CallIndex()
        self._stream: PlainStream | SealedStream = PlainStream(self._plain)
        self._seen: Identity | None = None

    # --- what there is ---

    def refresh(self, limit: int = SCAN_BYTES) -> bool:
        """Take in what is new, of a growing file about `limit` bytes at most. False when there is no file at all.

        Damage is not raised: see `damage`, which also tells of something that is no regular file.
        Raises OSError, and RecordingError for a file of another kind or version.
        """
        if self._take_sealed():
            return True
        stream = PlainStream(self._plain)
        header = stream.read(0, HEADER_BYTES)
        if header is None:
            self._seen = None
            if self._take_sealed():  # just now; or it is all there is, damaged as it is
                return True
            self._take_up(CallIndex(), stream)
            if is_other(self._plain):
                self._index.damage = "is not a file"
            return False
        if not isinstance(self._stream, PlainStream) or not self._index.continues(header):
            self._take_up(CallIndex(), stream)
        try:
            self._index.take_plain(header, self._stream, limit)  # type: ignore[arg-type]
        except ForeignFileError as error:
            raise RecordingError(f"{self._plain}: {error}") from error
        return True

    def _take_sealed(self) -> bool:
        """Whether the sealed form is there and counts: it is whole, or nothing else is there."""
        now = identity(self._sealed) if self._sealed is not None else None
        if now is None or self._sealed is None:
            return False
        if now == self._seen:
            return isinstance(self._stream, SealedStream)
        index, stream = CallIndex(), SealedStream(self._sealed)
        try:
            if is_other(self._sealed):
                index.damage = "is not a file"
            else:
                index.take_sealed(stream)
        except ForeignFileError as error:
            raise RecordingError(f"{self._sealed}: {error}") from error
        self._seen = now
        if index.damage and identity(self._plain) is not None:
            return False
        self._take_up(index, stream)
        return True

    def _take_up(self, index: CallIndex, stream: PlainStream | SealedStream) -> None:
        self._index, self._stream, self.earlier = index, stream, 0
        while any(identity(path) is not None for path in earlier_files(self._plain, self.earlier + 1)):
            self.earlier += 1

    @property
    def shown_path(self) -> Path:
        """The file that is read."""
        return self._stream.path

    @property
    def opened(self) -> Opened | None:
        """The first record."""
        return self._index.opened

    @property
    def sealed(self) -> Sealed | None:
        """The last record, None as long as the trial goes on or when its engine was killed."""
        return self._index.sealed

    @property
    def complete(self) -> bool:
        """Whether all that was there when it was last looked at is known."""
        return self._index.complete

    @property
    def torn(self) -> int:
        """Bytes at the end that are no whole record: one that is being written, or was when the engine died."""
        return self._index.torn

    @property
    def damage(self) -> str:
        """Which bytes of which file cannot be read, one line; "" for none. What lies before them is here."""
        return f"{self._stream.path}: {self._index.damage}" if self._index.damage else ""

    @property
    def oddities(self) -> list[str]:
        """Records that contradict others, one line each: they were written by something that is not right."""
        return list(self._index.oddities)

    # --- calls ---

    def __len__(self) -> int:
        return len(self._index.calls)

    def __iter__(self) -> Iterator[KeptCall]:
        """The calls in the order in which they went to the sampler. Raises RecordingError, OSError."""
        return (self._call(entry) for entry in list(self._index.calls))

    def call(self, number: int) -> KeptCall:
        """The call with this number. Raises KeyError, RecordingError, OSError."""
        return self._call(self._index.by_number[number])

    def node(self, name: str) -> KeptCall:
        """The call with this node. Raises KeyError, RecordingError, OSError."""
        return self._call(self._index.by_node[name])

    def open_calls(self) -> list[Intent]:
        """Calls without an outcome: under way, or lost when the engine died. Raises RecordingError, OSError."""
        return [self._call(entry).intent for entry in self._index.calls if entry.outcome is None]

    @property
    def answered(self) -> int:
        """How many calls were answered."""
        return len(self._index.answered)

    def answer(self, position: int) -> KeptCall:
        """An answered call by the order of the answers. Raises IndexError, RecordingError, OSError."""
        return self._call(self._index.answered[position])

    @property
    def endings(self) -> int:
        """How many endings there are; they only become more: calls that ended, and refusals but for repeated ones."""
        return len(self._index.endings)

    def ending(self, position: int) -> tuple[KeptCall | Refusal, int]:
        """An ending, and how many calls were answered before it. Raises IndexError, RecordingError, OSError."""
        ended = self._index.endings[position]
        if isinstance(ended.what, CallEntry):
            return self._call(ended.what), ended.answered
        record = self._record(ended.what)
        assert isinstance(record, Refusal)
        return record, ended.answered

    def answered_before(self, position: int) -> int:
        """How many calls were answered before an ending. Raises IndexError."""
        return self._index.endings[position].answered

    def ending_bytes(self, position: int) -> int:
        """Bytes that are read for an ending. Raises IndexError."""
        return self._index.endings[position].size

    @property
    def refused(self) -> dict[str, int]:
        """How many requests were refused, by reason."""
        return dict(self._index.refused)

    def refusals(self) -> Iterator[Refusal]:
        """The refusals, of those that follow each other with the same reason the first. Raises as `ending`."""
        for ended in list(self._index.endings):
            if not isinstance(ended.what, CallEntry):
                record = self._record(ended.what)
                assert isinstance(record, Refusal)
                yield record

    # --- tokens ---

    def prompt(self, node: str) -> array[int]:
        """All ids that were sent to the sampler for a call: its chain of parents. Raises RecordingError, OSError."""
        entry = self._entry(node)
        chain = [entry]
        while entry.parent:
            parent = self._index.by_node.get(entry.parent)
            if parent is None or parent.outcome is None or parent.intent >= entry.intent:
                raise RecordingError(f"{self._stream.path}: the parent of {entry.node} is not there before it")
            chain.append(parent)
            entry = parent
        ids = array("i")
        try:
            for part in reversed(chain):
                kept = self._call(part)
                ids += kept.prompt_new()
                if part is not chain[0]:
                    ids += kept.tokens()
        except ValueError as error:
            raise RecordingError(f"{self._stream.path}: ids of {part.node} are torn") from error
        return ids

    def segment(self, nodes: Sequence[str]) -> SegmentTokens:
        """The sequence of a segment, `nodes` in its order, each one the parent of the next.

        Raises RecordingError: they are not, or cannot be read; OSError.
        """
        tokens_T, mask_T, logprobs_T = array("i"), bytearray(), array("f")
        before = ""
        for name in nodes:
            kept = self._call(self._entry(name))
            if before and kept.intent.parent != before:
                raise RecordingError(f"{self._stream.path}: {name} does not extend {before}, as its segment says")
            try:
                prompt = kept.prompt_new() if before else self.prompt(name)
                sampled, logprobs = kept.tokens(), kept.logprobs()
            except ValueError as error:
                raise RecordingError(f"{self._stream.path}: ids of {name} are torn") from error
            if len(sampled) != len(logprobs):
                raise RecordingError(f"{self._stream.path}: {name} has {len(sampled)} ids, {len(logprobs)} log-probs")
            tokens_T += prompt + sampled
            mask_T += bytes(len(prompt)) + b"\1" * len(sampled)
            logprobs_T += array("f", bytes(4 * len(prompt))) + logprobs
            before = name
        return SegmentTokens(tokens_T=tokens_T, mask_T=bytes(mask_T), logprobs_T=logprobs_T)

    def segments(self) -> list[SegmentLine]:
        """What is trained; of a file that is not sealed, every answered call in sequences that extend each other."""
        if self.sealed is not None:
            return self.sealed.segments
        found: list[SegmentLine] = []
        ends: dict[str, SegmentLine] = {}
        for entry in self._index.calls:
            if entry.outcome is None or not is_answer(entry.status):
                continue
            line = ends.pop(entry.parent, None) if entry.parent else None
            if line is None:
                line = SegmentLine(nodes=[], reason=entry.reason or "branch")
                found.append(line)
            line.nodes.append(entry.node)
            ends[entry.node] = line
        return found

    def _entry(self, node: str) -> CallEntry:
        entry = self._index.by_node.get(node)
        if entry is None:
            raise RecordingError(f"{self._stream.path}: there is no call {node}")
        return entry

    def _call(self, entry: CallEntry) -> KeptCall:
        intent = self._record(entry.intent)
        outcome = self._record(entry.outcome) if entry.outcome is not None else None
        assert isinstance(intent, Intent) and (outcome is None or isinstance(outcome, Outcome))
        return KeptCall(intent=intent, outcome=outcome, delivered=entry.delivered)

    def _record(self, offset: int) -> Intent | Outcome | Refusal | Opened | Delivered | Sealed | None:
        payload, seed = self._payload(offset), self._index.seed
        if payload is None and self._replaced():
            raise RecordingError(self._begun_anew())
        if payload is None and isinstance(self._stream, PlainStream) and self.refresh():
            if self._index.seed != seed:
                raise RecordingError(self._begun_anew())
            payload = self._payload(offset)  # sealed just now: the same stream
        if payload is None:
            raise RecordingError(f"{self._stream.path}: what was there at byte {offset} is gone")
        return payload

    def _payload(self, offset: int) -> Intent | Outcome | Refusal | Opened | Delivered | Sealed | None:
        prefix = self._stream.read(offset, FRAME_OVERHEAD)
        if not prefix:
            return None
        try:
            size = payload_size(prefix)
            payload = self._stream.read(offset + FRAME_OVERHEAD, size)
            if payload is None or len(payload) < size:
                return None
            check(prefix, payload, self._index.seed)
            return decode(payload)
        except FrameError as error:
            if self._replaced():
                raise RecordingError(self._begun_anew()) from error
            raise RecordingError(f"{self._stream.path}: damaged at byte {offset}: {error}") from error

    def _replaced(self) -> bool:
        """Whether another file has taken the place of the one that the index is of. Raises OSError."""
        if isinstance(self._stream, PlainStream):
            header = self._stream.read(0, HEADER_BYTES)
            return header is not None and not self._index.continues(header)
        now = identity(self._stream.path)
        return now != self._seen and (now is not None or identity(self._plain) is not None)

    def _begun_anew(self) -> str:
        return f"{self._stream.path}: the try was begun anew, and the file replaced, while it was read"


def is_answer(status: str) -> bool:
    """Whether an outcome's status says that the call was answered."""
    return status in ("stop", "length")
