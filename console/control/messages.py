"""What goes over the socket: one JSON object a line, told apart by `msg`. Journal lines travel in `events`, unchanged.

The server speaks first, with `hello`. A client sends `subscribe` and `attend` (once a connection), and any number of
`command`, `take_watch`, `ask` and `who`.
Unknown fields from the server are ignored by older clients; a request with unknown fields is refused, since ignoring a
word of a command may do the wrong thing. A change of meaning raises `PROTOCOL`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

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


class Attend(Request, tag="attend"):
    """This connection is a viewer: it shows up in the presence line, and acts only with the watch (the lease).

    Attributes:
        author: who, e.g. `ada@host`; act: wants the watch if nobody has it; without it the viewer only looks.
    """

    author: str
    act: bool = True


class TakeWatch(Request, tag="take_watch"):
    """Take the watch over, whoever has it; with `back` give it back. Only a connection that attends may ask.

    Attributes:
        id: the `Result` bears it.
        from_: who is believed to have it, empty for nobody; when that is no longer so, the request is refused. None
            takes it from whoever has it.
    """

    id: str = ""
    back: bool = False
    from_: str | None = msgspec.field(default=None, name="from")


class Who(Request, tag="who"):
    """Ask for the `Presence` once, without attending."""


ContentKind = Literal["transcript", "verifier", "tokens", "log", "result"]


class Ask(Request, tag="ask"):
    """Ask for content of a trial; the journal has none. Cursors are opaque and only grow.

    Attributes:
        id: the answer bears it; kind: transcript (turns as they are captured), verifier (its output), tokens (captured
            ids with text and log-probs of one call), log (Harbor's log of the trial), result (Harbor's, redacted).
        step, group, trial, try_: indices from 0; -1 for `try_` means the last one.
        cursor: where to go on, 0 for the start, -1 for the end: the last items there are, then on from there.
        limit: items or lines at most, bounded by the server.
        call: of kind tokens, which call, from 0; -1 for the last one.
    """

    id: str
    kind: ContentKind
    step: int
    group: int
    trial: int
    try_: int = msgspec.field(default=0, name="try")
    cursor: int = 0
    limit: int = 200
    call: int = -1


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


class Viewer(msgspec.Struct, kw_only=True):
    """One viewer that attends. `since`: Unix seconds; `acts`: it holds the watch; `you`: it is the receiver."""

    author: str
    since: float = 0.0
    acts: bool = False
    you: bool = False


class Presence(Reply, tag="presence"):
    """Who looks, who may act; sent to every viewer whenever it changes."""

    viewers: list[Viewer] = []


class Turn(msgspec.Struct, kw_only=True):
    """One piece of a transcript.

    Attributes:
        call: number of the model call, from 0; role: system, user, assistant, tool; text: bounded, not sanitised.
        ts: Unix seconds, None when unknown; prompt_tokens, sampled_tokens, seconds, stop_reason: of an assistant's
            turn; cut: characters that were left out of `text`.
    """

    call: int
    role: str
    text: str
    ts: float | None = None
    prompt_tokens: int | None = None
    sampled_tokens: int | None = None
    seconds: float | None = None
    stop_reason: str = ""
    cut: int = 0


class Token(msgspec.Struct, kw_only=True, array_like=True):
    """A sampled token: id, its text (not sanitised; empty when no tokenizer is at hand), log-prob in nats."""

    id: int
    text: str
    logprob: float


class Content(Reply, tag="content"):
    """The answer to `Ask`. One of `turns`, `tokens` and `lines` is filled, as the kind says.

    Attributes:
        cursor: for the next `Ask`; more: there is more already; over: nothing will be added any more.
        note: why there is nothing, or what is missing, in one sentence.
        calls: captured calls so far; call: of kind tokens, which one was meant, -1 for none; try_: which try.
    """

    id: str
    kind: ContentKind
    cursor: int = 0
    more: bool = False
    over: bool = False
    turns: list[Turn] = []
    tokens: list[Token] = []
    lines: list[str] = []
    calls: int = 0
    call: int = -1
    try_: int = msgspec.field(default=0, name="try")
    note: str = ""


class Failure(Reply, tag="error"):
    """What was wrong with the client's message; the server closes the connection after it."""

    text: str


AnyRequest = Subscribe | CommandRequest | Attend | TakeWatch | Ask | Who
AnyReply = Hello | HistoryRows | StateNow | Events | Heartbeat | Result | Presence | Content | Failure

_encoder = msgspec.json.Encoder()
_request_decoder: msgspec.json.Decoder[AnyRequest] = msgspec.json.Decoder(AnyRequest)
_reply_decoder: msgspec.json.Decoder[AnyReply] = msgspec.json.Decoder(AnyReply)


def encode(message: Request | Reply) -> bytes:
    """One line, newline included. Lone surrogates, which JSON cannot carry, become question marks."""
    try:
        return _encoder.encode(message) + b"\n"
    except UnicodeEncodeError:  # a file name that is no text, for instance
        return _encoder.encode(_carried(msgspec.to_builtins(message))) + b"\n"


def carried(text: str) -> str:
    """`text` as JSON can carry it: without lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _carried(value: object) -> object:
    if isinstance(value, str):
        return carried(value)
    if isinstance(value, dict):
        return {_carried(key): _carried(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_carried(item) for item in value]
    return value


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


# --- the engine's last word, when its journal takes nothing more ---------------------------------------------------

_LAST_WORD = re.compile(r"the run (\w{1,20}), exit (\d{1,3})(?:: (.*))?", re.DOTALL)


def last_word(status: str, exit_code: int, reason: str) -> str:
    """How the run ended, for people and for `read_last_word`."""
    return f"the run {status}, exit {exit_code}" + (f": {reason}" if reason else "")


def read_last_word(text: str) -> tuple[str, int, str] | None:
    """Status, exit code and reason of an end that the journal does not tell; None when the text says none."""
    found = _LAST_WORD.fullmatch(text)
    return None if found is None else (found[1], int(found[2]), found[3] or "")
