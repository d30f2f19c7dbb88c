"""What goes over the socket: one JSON object a line, told apart by `msg`. Journal lines travel in `events`, unchanged.

The server speaks first, with `hello`. A client sends `subscribe` (once a connection) and any number of `command`.
Unknown fields from the server are ignored by older clients; a request with unknown fields is refused, since ignoring a
word of a command may do the wrong thing. A change of meaning raises `PROTOCOL`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from console.control.commands import Command
from console.journal.codec import decode_event, encode_event
from console.journal.events import SCHEMA_VERSION, Scalars, Snapshot, StepFinished

PROTOCOL = 1
MAX_INCOMING = 64 * 1024
"""Longest line that a server takes, in bytes."""
MAX_OUTGOING = 64 * 1024 * 1024
"""Longest line that a client takes, in bytes; the state of a large batch is a single line."""
BATCH_BYTES = 256 * 1024
ROWS_PER_BATCH = 500


class Request(msgspec.Struct, tag_field="msg", kw_only=True, forbid_unknown_fields=True):
    """Base of what a client sends."""


class Subscribe(Request, tag="subscribe"):
    """Ask for the stream. `cursor`: the last `seq` the client has, or None for history, state, and what follows."""

    cursor: int | None = None


class CommandRequest(Request, tag="command"):
    """A `Command` on the wire; same fields."""

    id: str
    command: str
    args: Scalars = {}
    author: str = ""
    reason: str = ""
    dry_run: bool = False

    @classmethod
    def of(cls, command: Command) -> CommandRequest:
        """The wire form of a command."""
        return cls(**msgspec.structs.asdict(command))

    def to_command(self) -> Command:
        """The command it carries."""
        return Command(**msgspec.structs.asdict(self))


class Reply(msgspec.Struct, tag_field="msg", kw_only=True):
    """Base of what a server sends."""


class Hello(Reply, tag="hello"):
    """The first line of a connection. `seq`: the last event so far."""

    protocol: int = PROTOCOL
    schema: int = SCHEMA_VERSION
    run_id: str = ""
    run_dir: str = ""
    pid: int = 0
    seq: int = 0


class HistoryRows(Reply, tag="history"):
    """Some finished steps, in order; the state follows after the last batch."""

    rows: list[StepFinished] = []


class StateNow(Reply, tag="state"):
    """The open state, in the reducer's own encoding; the history before it is complete."""

    state: msgspec.Raw = msgspec.Raw(b"{}")


class Events(Reply, tag="events"):
    """Journal lines, in order."""

    events: list[msgspec.Raw] = []


class Heartbeat(Reply, tag="heartbeat"):
    """The engine's loop turns. `seq`: the last event; `ts`: Unix seconds of the engine's clock."""

    seq: int = 0
    ts: float = 0.0


class Result(Reply, tag="result"):
    """The answer to the command `id`."""

    id: str
    status: str
    text: str = ""


class Failure(Reply, tag="error"):
    """What was wrong with the client's message; the server closes the connection after it."""

    text: str


AnyRequest = Subscribe | CommandRequest
AnyReply = Hello | HistoryRows | StateNow | Events | Heartbeat | Result | Failure

_encoder = msgspec.json.Encoder()
_request_decoder: msgspec.json.Decoder[AnyRequest] = msgspec.json.Decoder(AnyRequest)
_reply_decoder: msgspec.json.Decoder[AnyReply] = msgspec.json.Decoder(AnyReply)


def encode(message: Request | Reply) -> bytes:
    """One line, newline included."""
    return _encoder.encode(message) + b"\n"


def decode_request(line: bytes) -> AnyRequest:
    """A client's message. Raises `ValueError` when it is not one."""
    return _request_decoder.decode(line)


def decode_reply(line: bytes) -> AnyReply:
    """A server's message. Raises `ValueError` when it is not one."""
    return _reply_decoder.decode(line)


class _Seq(msgspec.Struct):
    seq: int


_seq_decoder = msgspec.json.Decoder(_Seq)


def seq_of(line: bytes) -> int:
    """The `seq` of a journal line. Raises `ValueError` when it has none."""
    return _seq_decoder.decode(line).seq


def for_wire(line: bytes) -> bytes:
    """A journal line as viewers get it: without newline, and a snapshot without its state, which a fold ignores."""
    line = line.rstrip(b"\n")
    if b'"snapshot"' in line[:256]:
        event = decode_event(line)
        if isinstance(event, Snapshot):
            return encode_event(Snapshot(seq=event.seq, ts=event.ts, steps_done=event.steps_done))
    return line


def event_batches(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Journal lines as encoded `events` messages of about `BATCH_BYTES` each."""
    batch: list[msgspec.Raw] = []
    size = 0
    for line in lines:
        batch.append(msgspec.Raw(line))
        size += len(line)
        if size >= BATCH_BYTES:
            yield encode(Events(events=batch))
            batch, size = [], 0
    if batch:
        yield encode(Events(events=batch))
