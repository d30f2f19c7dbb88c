"""One call on its way: prompt, intent, sample, check, outcome, graph.

A call is owned by its trial and not by the connection that it came in on: a client that asks again may wait for it
too. It is cancelled when nobody waits any more and when the trial ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from console.capture import ids
from console.capture.budgets import Spent, used_up
from console.capture.call_records import CallRecords, NotWrittenError
from console.capture.chat import ChatReply, ChatRequest
from console.capture.effective import Effective, effective
from console.capture.evidence import Evidence, failure_of
from console.capture.places import Places
from console.capture.reading import Reading, read
from console.capture.refusals import RefusedError, UnforeseenError, overflow, traced
from console.capture.retries import Answered, Replies
from console.capture.sampler import Sample, SampleFailedError, sample
from console.capture.workers import Overloaded
from console.errors import CaptureError

if TYPE_CHECKING:
    from console.capture.graph import Graph
    from console.capture.prompts import Prompt, Prompts
    from console.capture.service import CallService

BACKEND_RETRY_AFTER = 5.0
_NO_LOGPROBS_RETRY_AFTER = 1.0

log = logging.getLogger(__name__)

type Ending = Literal["", "client", "sealed"]


class TrialParts:
    """What the calls of one trial share; see `TrialCalls` for the arguments."""

    def __init__(
        self,
        service: CallService,
        client: Any,
        *,
        key: str,
        graph: Graph,
        prompts: Prompts,
        records: CallRecords,
        evidence: Evidence,
        policy_version: int | None,
    ) -> None:
        self.service, self.client, self.key, self.policy_version = service, client, key, policy_version
        self.graph, self.prompts, self.records, self.evidence = graph, prompts, records, evidence
        settings = service.settings
        self.spent = Spent(settings.budgets)
        self.replies = Replies(settings.replies_kept)
        self.places = Places(settings.inflight, settings.waiting, settings.wait_seconds)
        self.stop = service.renderer.sampling_stop()
        self.numbers = 0
        self.late: list[str] = []
        self.terminals = 0
        """Replies in a row that only said that a budget is used up."""

    def refuse(self, refusal: RefusedError, dialect: str, *, text: str = "", prompt_tokens: int = 0) -> None:
        """Note a request that never came to the sampler, once. `text`: what was wrong, when the agent is told less."""
        if refusal.noted:
            return
        refusal.noted = True
        self.service.figures.refused(refusal.kind)
        self.records.refused(refusal, dialect)
        if isinstance(refusal, NotWrittenError):
            self.evidence.lost()
        failure = "backend" if isinstance(refusal, Overloaded | UnforeseenError) else failure_of(refusal.kind)
        if failure is not None:
            said = self.records.clean(text or refusal.message)
            self.evidence.failed(failure, said, prompt_tokens, time.monotonic())


class CallRun:
    """One call; `start` begins it.

    Args:
        parts: of the trial; request, digest: as they came; on_end: called when nothing more happens to it.

    Attributes:
        ready: done when the prompt is known and the intent is written, or it is clear that it will not be.
        answer: the reply, or why there is none; waiters: those who want it.
        number, node, prompt_tokens: of the call, once it is ready.
    """

    def __init__(
        self, parts: TrialParts, request: ChatRequest, digest: bytes, on_end: Callable[[CallRun], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        self._parts, self.request, self.digest, self._on_end = parts, request, digest, on_end
        self.ready: asyncio.Future[None] = loop.create_future()
        self.answer: asyncio.Future[ChatReply] = loop.create_future()
        self.waiters = 0
        self.number = -1
        self.node = ""
        self.prompt_tokens = 0
        self._wanted = asyncio.Event()
        self._started = time.monotonic()
        self._ending: Ending = ""
        self._sampling = False
        self._max_tokens = 0
        self._reply: ChatReply | None = None
        self._task: asyncio.Task[None] | None = None

    # --- for those who wait ---

    def start(self) -> None:
        """Begin, at once up to the first wait: a task that is cancelled before it began would tell nobody."""
        self._task = asyncio.Task(self._run(), loop=asyncio.get_running_loop(), eager_start=True)

    @property
    def open(self) -> bool:
        """Whether somebody who comes now can still wait for it."""
        return not self._ending and not self.answer.done()

    def want(self) -> None:
        """Somebody is ready for the reply: sample."""
        self._wanted.set()

    def end(self, ending: Literal["client", "sealed"]) -> None:
        """Cancel it: nobody waits (client), or the trial is over (sealed)."""
        if not self._ending and self._task is not None and not self._task.done():
            self._ending = ending
            self._task.cancel()

    async def ended(self) -> None:
        """Until nothing more happens to it."""
        if self._task is not None:
            await asyncio.wait([self._task])

    # --- the call ---

    async def _run(self) -> None:
        figures = self._parts.service.figures
        figures.inflight += 1
        try:
            await self._served()
        except asyncio.CancelledError:
            if self._ending:
                self._cancelled()
            else:  # by the SDK, or by the end of the loop
                self._failed(_backend("the sample was cancelled at the gateway"), "the sample was cancelled")
        except SampleFailedError as error:
            if error.forgotten:
                self._parts.service.forgotten(self._parts.records.clean(error.text))
            self._failed(self._refusal_of(error), error.text)
        except RefusedError as refusal:
            self._failed(refusal, str(refusal.__cause__ or refusal.message))
        except Exception as error:
            log.warning("a model call failed in the capture gateway: %s", traced(error))
            self._failed(_backend("the capture gateway failed"), f"capture gateway: {type(error).__name__}")
        finally:
            figures.inflight -= 1
            self._on_end(self)

    async def _served(self) -> None:
        async with self._parts.places.place():
            prompt, values = await self._prepare()
            self.ready.set_result(None)
            await self._wanted.wait()
            self._sampling = True
            drawn, note = await self._sampled(prompt, values)
            reading = await self._read(drawn, prompt)
            self._sampling = False
            self._keep(prompt, reading, len(drawn.tokens_T), note)
            await self._parts.records.keep_up()
            self.answer.set_result(reading.reply)

    async def _prepare(self) -> tuple[Prompt, Effective]:
        """Prompt and parameters; the intent is written."""
        parts, service, request = self._parts, self._parts.service, self.request
        prompt = await parts.prompts.build(request, service.window)
        self.prompt_tokens = prompt.tokens
        if service.window is not None and prompt.tokens + 1 > service.window:
            raise overflow(prompt.tokens, service.window)
        option = parts.spent.exhausted(prompt.tokens)
        if option:
            raise used_up(option)
        rooms = (None if service.window is None else service.window - prompt.tokens, parts.spent.room())
        values = effective(
            request.sampling,
            mode=service.settings.sampling,
            default_max_tokens=service.settings.max_tokens,
            room=min((room for room in rooms if room is not None), default=None),
        )
        number, node = parts.numbers, ids.new_node(parts.numbers)
        parts.numbers += 1
        self._max_tokens = values.max_tokens
        parts.records.intent(number, node, request, prompt, values)
        self.number, self.node = number, node
        parts.graph.asked(prompt.match)
        parts.spent.sent(prompt.tokens)
        service.figures.sampled_at(values.temperature)
        return prompt, values

    async def _sampled(self, prompt: Prompt, values: Effective) -> tuple[Sample, str]:
        """The sample, and what is to be noted with it."""
        parts = self._parts
        try:
            return await sample(parts.client, prompt.input, values, parts.stop), ""
        except SampleFailedError as error:
            shorter = self._learned(error, values)
            if shorter is None:
                raise
        note = f"sampled again with max_tokens {shorter.max_tokens}: the gateway's window is smaller than was known"
        return await sample(parts.client, prompt.input, shorter, parts.stop), note

    def _learned(self, error: SampleFailedError, values: Effective) -> Effective | None:
        """An overflow that names a window which was not known: the parameters that fit it, None when none do."""
        service = self._parts.service
        if error.kind != "overflow" or error.window is None or error.window == service.window:
            return None
        service.window = error.window
        room = error.window - self.prompt_tokens
        if room < 1 or room >= values.max_tokens:
            return None
        return effective(
            self.request.sampling,
            mode=service.settings.sampling,
            default_max_tokens=service.settings.max_tokens,
            room=room,
        )

    async def _read(self, drawn: Sample, prompt: Prompt) -> Reading:
        service = self._parts.service
        return await service.workers.finish(
            self._parts.key,
            read,
            service.renderer,
            drawn,
            self.request,
            self.node,
            prompt_tokens=prompt.tokens,
            cached=prompt.cached,
            model=service.settings.model,
        )

    def _keep(self, prompt: Prompt, reading: Reading, drawn: int, note: str) -> None:
        """Outcome, then graph, then evidence, without a turn of the loop between them."""
        parts, figures = self._parts, self._parts.service.figures
        reply = reading.reply
        parts.spent.sampled_tokens += drawn
        parts.records.answered(self.number, reading, time.monotonic() - self._started, note)
        try:
            parts.graph.add(
                name=self.node,
                number=self.number,
                match=prompt.match,
                parent=prompt.parent,
                reason=prompt.reason,
                prompt_new=prompt.new,
                tokens_T=reading.tokens_T,
                logprobs_T=reading.logprobs_T,
                stop_reason=reading.stop_reason,
                reply=reply,
                policy_version=parts.policy_version,
            )
        except CaptureError as error:
            raise RefusedError("capture", "the call could not be captured") from error
        self._reply = reply
        parts.terminals = 0
        parts.evidence.answered(reading.stop_reason, prompt.tokens, len(reading.tokens_T), self._started)
        figures.prompted(prompt.reason)
        figures.empty += not reply.text.strip() and not reply.tool_calls
        figures.malformed += reading.malformed
        figures.stopped += bool(reply.stop_string)
        if self.digest:
            parts.replies.put(self.digest, Answered(call=self.number, reply=reply))

    # --- ends that are no reply ---

    def _cancelled(self) -> None:
        if self._reply is not None:  # while it waited for the disk: the sample is captured
            self.answer.set_result(self._reply)
            return
        figures = self._parts.service.figures
        sealed = self._ending == "sealed"
        if self._sampling:
            figures.late += sealed
            figures.cancelled += not sealed
            if sealed:
                self._parts.late.append(self.node)
        text = "the trial ended" if sealed else "the agent went away"
        self._failed(RefusedError("sealed" if sealed else "cancelled", text), text)

    def _refusal_of(self, error: SampleFailedError) -> RefusedError:
        """What the agent is told of a sample that failed."""
        if error.kind == "no_logprobs":
            return RefusedError("no_logprobs", error.brief, retry_after=_NO_LOGPROBS_RETRY_AFTER)
        if error.kind == "backend":
            return _backend(error.brief)
        window = error.window or self._parts.service.window
        if window is None:  # the gateway keeps it to itself; the words need a number, and this one is not wrong
            window = self.prompt_tokens + self._max_tokens - 1
        return overflow(max(self.prompt_tokens, window + 1), window)

    def _failed(self, refusal: RefusedError, text: str) -> None:
        """The end of a call without an answer. `text`: for the record; the agent is told the refusal."""
        parts = self._parts
        if self.number < 0:
            if self._ending == "sealed":  # a request like any that comes after the end
                refusal.noted = True
                parts.service.figures.refused("sealed")
            else:
                parts.refuse(refusal, self.request.dialect, text=text, prompt_tokens=self.prompt_tokens)
        else:
            self._failed_after_intent(refusal, text)
        for future in (self.ready, self.answer):
            if not future.done():
                future.set_exception(refusal)
            if not future.cancelled():
                future.exception()  # looked at: nobody may be there to do it

    def _failed_after_intent(self, refusal: RefusedError, text: str) -> None:
        parts, figures = self._parts, self._parts.service.figures
        refusal.noted = True
        if not self._ending:
            figures.refused(refusal.kind)
        if refusal.kind == "capture":
            parts.evidence.lost()
        if not self._ending and refusal.status >= 500:
            parts.spent.returned(self.prompt_tokens)
        failure = "client" if self._ending else failure_of(refusal.kind) or "request"
        status = "sealed" if self._ending == "sealed" else failure
        parts.records.failed(self.number, status, time.monotonic() - self._started, text)
        parts.evidence.failed(failure, parts.records.clean(text), self.prompt_tokens, self._started)


def _backend(text: str) -> RefusedError:
    return RefusedError("backend", text, retry_after=BACKEND_RETRY_AFTER)
