"""The captured calls of a run's tries as viewers see them: turns and tokens, by places that stay while files grow.

A place is an ending: a call that was answered or failed, or a request that was refused. They are in the order in which
they were written, so that what was shown never moves. A try that a resumed run did again has a file of its own; how
many were set aside before it is part of a cursor, and one of an earlier file means the start of the newest.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import msgspec

from console.control.messages import Token, Turn, carried
from console.records.capture_format import Refusal
from console.records.capture_frames import split_name, step_dir
from console.records.captured_calls import CapturedTrialFile, KeptCall

FILES_INDEXED = 32
FIELD_CHARS = 16_000
ROLE_CHARS = 40


class TryCalls(msgspec.Struct):
    """The captured calls of one try. Whoever uses `file` holds `lock`."""

    file: CapturedTrialFile
    lock: threading.Lock


class RunCalls:
    """The files of a run's tries, of some of which indexes are kept. Safe to call from several threads."""

    def __init__(self, run_dir: Path) -> None:
        """Nothing is opened before the first question."""
        self._run_dir = run_dir
        self._tries: OrderedDict[tuple[int, str], TryCalls] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, step: int, key: str) -> TryCalls:
        """A try, whether there is a file of it or not."""
        with self._lock:
            found = self._tries.get((step, key))
            if found is None:
                file = CapturedTrialFile(step_dir(self._run_dir, step) / f"{key}.calls")
                found = self._tries[step, key] = TryCalls(file, threading.Lock())
                while len(self._tries) > FILES_INDEXED:
                    self._tries.popitem(last=False)
            self._tries.move_to_end((step, key))
            return found

    def keys(self, step: int) -> set[str]:
        """The tries of a step that calls were captured of. Raises OSError."""
        try:
            names = os.listdir(step_dir(self._run_dir, step))
        except (FileNotFoundError, NotADirectoryError):
            return set()
        return {split[0] for name in names if (split := split_name(name)) is not None}


def shortened(text: str, limit: int) -> tuple[str, int]:
    """The text's beginning, as JSON can carry it, and how many characters are left out."""
    return carried(text[:limit]), max(0, len(text) - limit)


def turns_of(ended: KeptCall | Refusal, number: int, first: bool) -> Iterator[Turn]:
    """What an ending adds to the transcript; `number`: answered calls before it; `first`: it is the first ending.

    What went wrong is a turn of the role `error`: the agent got an error instead of a reply.
    """
    if isinstance(ended, Refusal):
        yield _trouble(number, ended.reason, ended.message, ended.ts)
        return
    intent, outcome = ended.intent, ended.outcome
    if intent.kept and first and not intent.parent:
        yield Turn(call=number, role="system", text=f"[{intent.kept} earlier messages were not captured]")
    for message in intent.messages:
        text, cut = shortened(message.text, FIELD_CHARS)
        role = shortened(message.role, ROLE_CHARS)[0]
        yield Turn(call=number, role=role, text=text, cut=cut + max(0, message.cut))
    if outcome is None:
        return
    if not ended.answered:
        yield _trouble(number, outcome.status, outcome.error, outcome.ts)
        return
    text, cut = shortened(outcome.reply, FIELD_CHARS)
    yield Turn(
        call=number, role="assistant", text=text, ts=outcome.ts or None, prompt_tokens=intent.prompt_tokens,
        sampled_tokens=len(outcome.tokens) // 4, seconds=outcome.seconds,
        stop_reason=shortened(outcome.stop_reason, ROLE_CHARS)[0], cut=cut + max(0, outcome.reply_cut),
    )  # fmt: skip


def _trouble(number: int, kind: str, text: str, ts: float) -> Turn:
    shown, cut = shortened(f"{kind}: {text}" if text else kind, FIELD_CHARS)
    return Turn(call=number, role="error", text=shown, ts=ts or None, cut=cut)


def is_textless(ended: KeptCall | Refusal) -> bool:
    """Whether an answered call was captured without its text."""
    if isinstance(ended, Refusal) or ended.outcome is None:
        return False
    return not ended.outcome.reply and not ended.outcome.pieces and len(ended.outcome.tokens) > 4


def tokens_of(call: KeptCall) -> list[Token]:
    """The sampled tokens of a call, their texts empty where none was kept. Raises ValueError: the record is torn."""
    outcome = call.outcome
    if outcome is None:
        return []
    ids, logprobs = call.tokens(), call.logprobs()
    texts = [""] * len(ids)
    if len(outcome.pieces) == len(ids) and sum(outcome.pieces) == len(outcome.reply) + outcome.reply_cut:
        begin = 0
        for at, length in enumerate(outcome.pieces):
            texts[at] = outcome.reply[begin : begin + length]
            begin += length
    if outcome.end and ids and not texts[-1]:
        texts[-1] = outcome.end
    return [
        Token(id=id, text=shortened(text, FIELD_CHARS)[0], logprob=logprob)
        for id, text, logprob in zip(ids, texts, logprobs, strict=True)
    ]
