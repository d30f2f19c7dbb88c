"""Where the records of one try lie in its stream, and what they say of each other. No ids and no texts are kept."""

from __future__ import annotations

import msgspec

from console.records.capture_format import AnyRecord, Delivered, Intent, Opened, Outcome, Refusal, Sealed
from console.records.capture_frames import HEADER_BYTES, Cut, ForeignFileError, FrameError, decode, header_seed
from console.records.capture_streams import PlainStream, SealedStream

ODDITIES = 100


class CallEntry(msgspec.Struct):
    """A call. `intent`, `outcome`: offsets of its records, None when it has not ended."""

    number: int
    node: str
    parent: str
    reason: str
    intent: int
    outcome: int | None = None
    status: str = ""
    delivered: int = 0
    size: int = 0


class Ending(msgspec.Struct):
    """A call that ended, or the offset of a refusal.

    `answered`: calls that were answered before; `size`: bytes of the records.
    """

    what: CallEntry | int
    answered: int
    size: int


class CallIndex:
    """The index of a stream; the parts are lists that only grow.

    Attributes:
        seed: of the frames' CRCs; opened, sealed: first and last record; calls: by intent; answered: by outcome.
        endings, refused, oddities, complete, torn: as of `CapturedTrialFile`; damage: with the offset, "" for none.
    """

    def __init__(self) -> None:
        self.seed = 0
        self.opened: Opened | None = None
        self.sealed: Sealed | None = None
        self.calls: list[CallEntry] = []
        self.by_number: dict[int, CallEntry] = {}
        self.by_node: dict[str, CallEntry] = {}
        self.answered: list[CallEntry] = []
        self.endings: list[Ending] = []
        self.refused: dict[str, int] = {}
        self.oddities: list[str] = []
        self.complete = True
        self.torn = 0
        self.damage = ""
        self._header = b""
        self._cut: Cut | None = None
        self._refusal: str | None = None

    def continues(self, header: bytes) -> bool:
        """Whether a file that begins like this may be the one that was looked at."""
        return header == self._header

    def take_plain(self, header: bytes, stream: PlainStream, limit: int) -> None:
        """Go on in a file that grows. Raises ForeignFileError, OSError."""
        if self.damage:
            return
        self._header = header
        if len(header) < HEADER_BYTES:
            self.torn = len(header)
            return
        cut = self._begin(header)
        try:
            for offset, payload in stream.frames(cut, limit):
                self._take(offset, len(payload), decode(payload))
            self.complete = cut.rest is not None
            self.torn = cut.rest or 0
        except FrameError as error:
            self.complete = True
            self.damage = f"damaged at byte {cut.offset}: {error}; the calls before it can be read"

    def take_sealed(self, stream: SealedStream) -> None:
        """Take in a sealed file. Raises ForeignFileError, OSError."""
        cut: Cut | None = None
        try:
            for block in stream.blocks():
                data = block
                if cut is None:
                    if len(block) < HEADER_BYTES:
                        raise FrameError("it has no header")
                    cut = self._begin(block)
                    data = block[HEADER_BYTES:]
                begin = cut.offset
                for offset, payload in cut.frames(data):
                    self._take(offset, len(payload), decode(payload))
                if cut.offset != begin + len(data):
                    raise FrameError(f"a record is not whole at byte {cut.offset} of the stream")
            if self.sealed is None:
                raise FrameError("it ends without the record that ends it")
        except ForeignFileError:
            raise
        except FrameError as error:
            self.damage = f"{error}; the calls before it can be read"

    def _begin(self, header: bytes) -> Cut:
        if self._cut is None:
            self.seed = header_seed(header)
            self._cut = Cut(self.seed, HEADER_BYTES)
        return self._cut

    def _take(self, offset: int, size: int, record: AnyRecord | None) -> None:
        match record:
            case Intent():
                self._intent(offset, size, record)
            case Outcome():
                self._outcome(offset, size, record)
            case Delivered():
                entry = self.by_number.get(record.call)
                if entry is None or entry.outcome is None:
                    self._odd(f"call {record.call} was delivered and has no outcome")
                else:
                    entry.delivered += 1
            case Refusal():
                self.refused[record.reason] = self.refused.get(record.reason, 0) + 1
                if record.reason != self._refusal:
                    self.endings.append(Ending(offset, len(self.answered), size))
                self._refusal = record.reason
            case Opened():
                if self.opened is not None:
                    self._odd("it was opened twice")
                else:
                    self.opened = record
            case Sealed():
                self.sealed = record

    def _intent(self, offset: int, size: int, record: Intent) -> None:
        if record.call in self.by_number or record.node in self.by_node:
            self._odd(f"call {record.call} ({record.node}) is there twice")
            return
        entry = CallEntry(record.call, record.node, record.parent, record.reason, offset, size=size)
        self.calls.append(entry)
        self.by_number[record.call] = self.by_node[record.node] = entry

    def _outcome(self, offset: int, size: int, record: Outcome) -> None:
        entry = self.by_number.get(record.call)
        if entry is None or entry.outcome is not None:
            self._odd(f"call {record.call} has {'no intent' if entry is None else 'two outcomes'}")
            return
        entry.outcome, entry.status = offset, record.status
        self.endings.append(Ending(entry, len(self.answered), entry.size + size))
        self._refusal = None
        if record.status in ("stop", "length"):
            self.answered.append(entry)

    def _odd(self, what: str) -> None:
        if len(self.oddities) < ODDITIES:
            self.oddities.append(what)
