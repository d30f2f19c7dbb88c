"""Files of captured calls made by hand: whole trials, and single records in the order that a test wants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from console.records.capture_format import (
    Delivered,
    Intent,
    KeptMessage,
    Opened,
    Outcome,
    Record,
    Sealed,
    SegmentLine,
    ids_bytes,
    logprobs_bytes,
)
from console.records.capture_frames import PLAIN, encode, header_seed, new_header, step_dir


class CallsFile:
    """The live file of a try, written record by record.

    Attributes:
        path: of the file; number: of the next call; last: the node that the next call extends.
    """

    def __init__(self, run_dir: Path, key: str = "s0.g0.t0.y0", step: int | None = None, **opened: Any) -> None:
        step = int(key[1:].partition(".")[0]) if step is None else step
        directory = step_dir(run_dir, step)
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / (key + PLAIN)
        header = new_header()
        self._seed = header_seed(header)
        self.number, self.last, self._length = 0, "", 0
        self.path.write_bytes(header)
        self.write(Opened(key=key, step=step, **opened))

    def write(self, *records: Record) -> None:
        with self.path.open("ab") as file:
            file.write(b"".join(self.frame(record) for record in records))

    def frame(self, record: Record) -> bytes:
        return encode(record, self._seed)

    def begin(
        self, messages: Sequence[tuple[str, str] | KeptMessage] = (), prompt: Sequence[int] = (1, 2, 3), **fields: Any
    ) -> Intent:
        """Write the intent of the next call, which extends the last answered one."""
        kept = [one if isinstance(one, KeptMessage) else KeptMessage(role=one[0], text=one[1]) for one in messages]
        intent = Intent(
            call=self.number, node=f"n{self.number}x0000abcd", parent=self.last, prompt_new=ids_bytes(prompt),
            prompt_tokens=self._length + len(prompt), messages=kept, dialect="chat",
        )  # fmt: skip
        if not self.last:
            intent.reason = "first"
        for name, value in fields.items():
            setattr(intent, name, value)
        self.number += 1
        self.write(intent)
        return intent

    def end(
        self, intent: Intent, reply: str = "", tokens: Sequence[int] = (7, 8),
        logprobs: Sequence[float] = (-0.5, -0.25), pieces: Sequence[str] = (), status: str = "stop", **fields: Any,
    ) -> None:  # fmt: skip
        """Write its outcome; an answered call is what the next one extends."""
        outcome = Outcome(call=intent.call, status=status, reply=reply, **{"ts": 5.0, "seconds": 0.25} | fields)
        if status in ("stop", "length"):
            outcome.tokens, outcome.logprobs = ids_bytes(tokens), logprobs_bytes(logprobs)
            outcome.stop_reason = outcome.stop_reason or status
            outcome.pieces = bytes(len(piece) for piece in pieces)
            self.last, self._length = intent.node, intent.prompt_tokens + len(tokens)
        self.write(outcome)

    def call(self, messages: Sequence[tuple[str, str] | KeptMessage] = (), reply: str = "", **fields: Any) -> str:
        """Write a whole call; its node. Keywords are those of `begin` and `end`."""
        begins = {name: fields.pop(name) for name in list(fields) if name in _OF_BEGIN}
        intent = self.begin(messages, **begins)
        self.end(intent, reply, **fields)
        self.write(Delivered(call=intent.call, ts=6.0))
        return intent.node

    def seal(self, nodes: Sequence[str], **fields: Any) -> None:
        """Write the last record: these nodes are one segment."""
        self.write(Sealed(segments=[SegmentLine(nodes=list(nodes), reason="first")], **{"calls": len(nodes)} | fields))


_OF_BEGIN = frozenset({"prompt", "parent", "node", "reason", "kept", "model", "temperature", "prompt_tokens"})
