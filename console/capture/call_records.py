"""What one trial's calls leave in the call journal, and when it is safe.

A record is with the operating system before the step that it stands for is taken: the intent before the sampler is
asked, the outcome before the reply leaves. That is enough against everything but the death of the machine, and with
the machine die the agents too, and the replies that they had. Forcing it to the disk goes on behind the calls, one
flush of all trials at a time, and is done before a batch trains on it (`CallJournal.sync`). A reply only waits for the
disk when so much is outstanding that the disk evidently does not keep up.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from console.capture.chat import ChatRequest
from console.capture.effective import Effective
from console.capture.kept_text import MESSAGE_CHARS, Keeper, piece_lengths
from console.capture.refusals import RefusedError
from console.errors import CaptureError
from console.records.capture_format import (
    Delivered,
    Intent,
    Outcome,
    Record,
    Refusal,
    Sealed,
    ids_bytes,
    logprobs_bytes,
)

if TYPE_CHECKING:
    from console.capture.journal import TrialJournal
    from console.capture.prompts import Prompt
    from console.capture.reading import Reading

UNFLUSHED_BYTES = 32 << 20
RETRY_AFTER = 5.0
REFUSALS_WRITTEN = 100
"""Refusals of one kind that are written down; the others are counted."""

_LOST = (OSError, ValueError, CaptureError)
log = logging.getLogger(__name__)


class NotWrittenError(RefusedError):
    """A record cannot be written, so that the call may not go on."""

    def __init__(self, why: str) -> None:
        super().__init__("capture", f"the call could not be written down: {why}", retry_after=RETRY_AFTER)


class CallRecords:
    """Writes one trial's records.

    Args:
        journal: the trial's file; keeper: bounds what is kept; on_unsafe: called once with the reason when something
            that was written cannot be forced to the disk.
    """

    def __init__(self, journal: TrialJournal, keeper: Keeper, on_unsafe: Callable[[str], None]) -> None:
        self._journal, self._keeper, self._on_unsafe = journal, keeper, on_unsafe
        self._refusals: dict[str, int] = {}
        self._flushing: asyncio.Task[None] | None = None
        self._flushed = 0
        self._unsafe = False

    def intent(self, number: int, node: str, request: ChatRequest, prompt: Prompt, effective: Effective) -> None:
        """A call goes to the sampler. Raises `NotWrittenError`."""
        keep = self._keeper
        messages = keep.messages(request.messages, prompt.match.fresh)
        record = Intent(
            call=number,
            node=node,
            parent=prompt.parent.name if prompt.parent is not None else "",
            reason=prompt.reason,
            prompt_new=ids_bytes(prompt.new),
            prompt_tokens=prompt.tokens,
            dialect=request.dialect,
            model=keep.names([request.model])[0],
            ts=time.time(),
            max_tokens=effective.max_tokens,
            temperature=effective.temperature,
            top_p=effective.top_p,
            top_k=effective.top_k,
            seed=effective.seed,
            stop=keep.names(effective.stop),
            fields_given=list(effective.given),
            neutralised=keep.names([*request.neutralised, *effective.overridden]),
            tools=_digest(request),
            tool_names=keep.names([tool.name for tool in request.tools]),
            kept=len(request.messages) - len(messages),
            messages=messages,
        )
        self._write(record)

    def answered(self, number: int, reading: Reading, seconds: float, note: str) -> None:
        """A call was sampled. Raises `NotWrittenError`."""
        raw = reading.raw
        record = Outcome(
            call=number,
            status=reading.stop_reason,
            ts=time.time(),
            seconds=seconds,
            tokens=ids_bytes(reading.tokens_T),
            logprobs=logprobs_bytes(reading.logprobs_T),
            stop_reason=reading.stop_reason,
            reply=self._keeper.bounded(raw, MESSAGE_CHARS),
            reply_cut=max(0, len(raw) - MESSAGE_CHARS),
            end=reading.end,
            pieces=b"" if self._keeper.hides(raw) else piece_lengths(reading.pieces, raw),
            malformed=reading.malformed,
            error=note,
        )
        self._write(record)

    def failed(self, number: int, status: str, seconds: float, text: str) -> None:
        """A call that went to the sampler has no answer. Never raises: its sample is not trained either way."""
        record = Outcome(call=number, status=status, ts=time.time(), seconds=seconds, error=self._keeper.error(text))
        with contextlib.suppress(NotWrittenError):
            self._write(record)

    def refused(self, refusal: RefusedError, dialect: str) -> None:
        """A request never came to the sampler. A flood of them does not fill the disk. Never raises."""
        written = self._refusals.get(refusal.kind, 0)
        self._refusals[refusal.kind] = written + 1
        if written < REFUSALS_WRITTEN:
            message = self._keeper.error(refusal.message)
            with contextlib.suppress(NotWrittenError):
                self._write(Refusal(ts=time.time(), reason=refusal.kind, message=message, dialect=dialect))

    def clean(self, text: str) -> str:
        """A failure's text as it may be shown."""
        return self._keeper.error(text)

    def delivered(self, number: int) -> None:
        """A reply was handed to the connection. Never raises: the sample is kept whether this is or not."""
        with contextlib.suppress(NotWrittenError):
            self._write(Delivered(call=number, ts=time.time()))

    async def keep_up(self) -> None:
        """Wait for the disk when too much is outstanding."""
        while self._flushing is not None and self._journal.size - self._flushed > UNFLUSHED_BYTES:
            await asyncio.shield(self._flushing)

    async def sealed(self, record: Sealed) -> str:
        """End the file. Returns what went wrong, "" when nothing did: the calls before are on the disk all the same."""
        await self.settled()
        try:
            await self._journal.seal(record)
        except _LOST as error:
            log.warning("the captured calls of a trial cannot be sealed: %s", error)
            return str(error)
        return ""

    async def settled(self) -> None:
        """Until what was written is on the disk, or it is known that it is not."""
        while self._flushing is not None:
            await asyncio.shield(self._flushing)

    def _write(self, record: Record) -> None:
        try:
            self._journal.write(record)
        except _LOST as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise NotWrittenError(why) from error
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        try:
            while self._flushed < (size := self._journal.size):
                await self._journal.durable()
                self._flushed = size
        except _LOST as error:
            if not self._unsafe:
                self._unsafe = True
                self._on_unsafe(str(error))
        finally:
            self._flushing = None


def _digest(request: ChatRequest) -> str:
    if not request.tools:
        return ""
    return hashlib.blake2b(msgspec.msgpack.encode(request.tools), digest_size=16).hexdigest()
