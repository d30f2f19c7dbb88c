"""One trial's model calls: what the server asks when a request has come, and what training gets when the trial ends.

The order of things for a request: is the trial open; is it a retry of something that was answered, or the same as
something under way; is a budget used up; are its sampling values in range; then, in `call_run`, a place, the prompt,
the window, the intent, the sample, the outcome. Retries come before budgets, so that the last answer of a budget can be
had again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from console.capture import ids
from console.capture.base import CallReport
from console.capture.budgets import USED_UP, used_up
from console.capture.call_records import CallRecords
from console.capture.call_run import CallRun, TrialParts
from console.capture.captured import CapturedTrial
from console.capture.chat import ChatReply, ChatRequest
from console.capture.effective import checked
from console.capture.evidence import Evidence
from console.capture.graph import Graph
from console.capture.kept_text import Keeper
from console.capture.prompts import Prompts
from console.capture.refusals import RefusedError
from console.capture.segments import captured_trial, sealed_record

if TYPE_CHECKING:
    from console.capture.journal import TrialJournal
    from console.capture.service import CallService

log = logging.getLogger(__name__)


class PendingCall(ABC):
    """A request that will be answered, or whose answer is there.

    Attributes:
        node: name of the sample; prompt_tokens: of its prompt.
    """

    def __init__(self, node: str, prompt_tokens: int, on_delivered: Callable[[], None]) -> None:
        self.node, self.prompt_tokens, self._on_delivered = node, prompt_tokens, on_delivered

    @abstractmethod
    async def reply(self) -> ChatReply:
        """The reply; sampling begins when it is asked for. Cancelling this says that the client went away.

        Raises:
            RefusedError: the call failed, or the trial ended meanwhile.
        """

    def delivered(self) -> None:
        """The reply is being handed to the connection."""
        self._on_delivered()

    @abstractmethod
    def abandon(self) -> None:
        """The client went away before it had its reply, also before `reply` was asked for. May be called at any time,
        and more than once."""


class _Given(PendingCall):
    """A reply that is there: one that was given before, or one that says that the trial is over."""

    def __init__(self, reply: ChatReply, on_delivered: Callable[[], None]) -> None:
        super().__init__(reply.node, reply.prompt_tokens, on_delivered)
        self._reply = reply

    async def reply(self) -> ChatReply:
        return self._reply

    def abandon(self) -> None:
        """Nothing is under way."""


class _Waiting(PendingCall):
    """One of those who wait for a call."""

    def __init__(self, run: CallRun, on_delivered: Callable[[], None]) -> None:
        super().__init__(run.node, run.prompt_tokens, on_delivered)
        self._run: CallRun | None = run

    async def reply(self) -> ChatReply:
        run = self._run
        if run is None:
            raise RefusedError("cancelled", "nobody waits for this reply")
        run.want()
        try:
            await asyncio.wait([run.answer])
        finally:
            self.abandon()
        return run.answer.result()

    def abandon(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            leave(run)


class TrialCalls:
    """One trial's calls, from its agent's start to its end. Belongs to one event loop.

    Args:
        service: what all trials share; client: the policy's `tinker.SamplingClient`; journal: the trial's file.
        key: the engine's name of the try; secret: the trial's token, which is kept out of all that is written.
        on_call: told of each call that ended; policy_version: of the weights, None when it is not known.
    """

    def __init__(
        self,
        service: CallService,
        client: Any,
        journal: TrialJournal,
        *,
        key: str,
        secret: str = "",
        on_call: Callable[[CallReport], None] = lambda report: None,
        policy_version: int | None = None,
    ) -> None:
        self._service, self._policy_version = service, policy_version
        self._keeper = Keeper(secret)
        self._evidence = Evidence(service.figures, on_call, service.outage)
        self._records = CallRecords(journal, self._keeper, self._unsafe)
        self._graph = Graph()
        self._prompts = Prompts(self._graph, service.renderer, service.workers, key)
        self._parts = TrialParts(
            service,
            client,
            key=key,
            graph=self._graph,
            prompts=self._prompts,
            records=self._records,
            evidence=self._evidence,
            policy_version=policy_version,
        )
        self._runs: set[CallRun] = set()
        self._under_way: dict[bytes, CallRun] = {}
        self._sealing: asyncio.Task[CapturedTrial] | None = None
        self.started = False
        self.sealed = False

    @property
    def inflight(self) -> int:
        """Calls under way."""
        return len(self._runs)

    def start(self) -> None:
        """The trial's agent starts: take calls."""
        self.started = True

    def stop(self) -> None:
        """Take no more calls, and cancel those under way: nobody will read their answers."""
        self.sealed = True
        for run in list(self._runs):
            run.end("sealed")

    async def seal(self) -> CapturedTrial:
        """End the trial; what it captured. Idempotent, and never half done: a caller who is cancelled stops nothing.

        Raises:
            CaptureError: the samples are of several policy versions.
        """
        self.stop()
        if self._sealing is None:
            self._sealing = asyncio.get_running_loop().create_task(self._seal())
        return await asyncio.shield(self._sealing)

    def received(self, size: int) -> None:
        """So many bytes of request bodies came in."""
        self._parts.spent.received_bytes += size

    async def begin(self, request: ChatRequest, digest: bytes) -> PendingCall:
        """Take up a request.

        Args:
            request: as its dialect parsed it; digest: of dialect and body, the same for a request that is sent again.

        Raises:
            RefusedError: early, sealed, request, overflow, busy, budget or capture; cancelling means that the client
                went away.
        """
        self._check_open(request.dialect)
        given = self._parts.replies.get(digest) if request.retry else None
        if given is not None:
            self._service.figures.replayed += 1
            return _Given(given.reply, self._delivery(given.call, given.reply.node))
        run = self._under_way.get(digest)
        if run is not None and run.open:
            self._service.figures.joined += 1
        else:
            option = self._parts.spent.exhausted()
            if option:
                return self._terminal(request, used_up(option))
            self._checked(request)
            run = self._started_run(request, digest)
        run.waiters += 1
        try:
            await asyncio.wait([run.ready])
            run.ready.result()
        except RefusedError as refusal:
            leave(run)
            if refusal.kind == "budget":
                return self._terminal(request, refusal)
            raise
        except asyncio.CancelledError:
            leave(run)
            raise
        return _Waiting(run, self._delivery(run.number, run.node))

    async def count(self, request: ChatRequest) -> int:
        """Tokens of the prompt that the request would be sampled from. Not a call: nothing is recorded.

        Raises:
            RefusedError: as `begin`.
        """
        self._check_open(request.dialect)
        return (await self._prompts.build(request, self._service.window)).tokens

    def refused(self, refusal: RefusedError, dialect: str) -> None:
        """A request of this trial gets this error. Each refusal is noted once, whoever raised it."""
        self._parts.refuse(refusal, dialect)

    # --- inner ---

    def _check_open(self, dialect: str) -> None:
        if self.sealed:
            refusal = RefusedError("sealed", "the trial has ended")
        elif not self.started:
            refusal = RefusedError("early", "the trial's agent has not started", retry_after=1.0)
        else:
            return
        refusal.noted = True
        self._service.figures.refused(refusal.kind)
        if not self.sealed:
            self._records.refused(refusal, dialect)
        raise refusal

    def _checked(self, request: ChatRequest) -> None:
        try:
            checked(request.sampling)
        except RefusedError as refusal:
            self._parts.refuse(refusal, request.dialect)
            raise

    def _started_run(self, request: ChatRequest, digest: bytes) -> CallRun:
        run = CallRun(self._parts, request, digest, self._ended)
        self._runs.add(run)
        if digest:
            self._under_way[digest] = run
            self._parts.replies.drop(digest)
        run.start()
        return run

    def _ended(self, run: CallRun) -> None:
        self._runs.discard(run)
        if self._under_way.get(run.digest) is run:
            del self._under_way[run.digest]

    def _terminal(self, request: ChatRequest, refusal: RefusedError) -> PendingCall:
        """A reply that ends most agents: they take it for the model's last word, where an error makes them try again.

        It is no sample: not recorded as a call, and never trained. An agent that goes on is refused.
        """
        parts = self._parts
        parts.refuse(refusal, request.dialect, text=str(refusal.__cause__ or ""))
        parts.terminals += 1
        if parts.terminals > self._service.settings.terminal_replies:
            raise refusal
        reply = ChatReply(
            node=ids.new_node(parts.numbers), text=USED_UP, created=time.time(), model=self._service.settings.model
        )
        return _Given(reply, lambda: None)

    def _delivery(self, number: int, node: str) -> Callable[[], None]:
        def delivered() -> None:
            if self._sealing is None:
                self._records.delivered(number)
                self._graph.delivered(node)

        return delivered

    def _unsafe(self, why: str) -> None:
        """What was written cannot be forced to the disk: the trial is not whole any more."""
        log.warning("captured calls cannot be put on the disk: %s", why)
        self._evidence.lost()

    async def _seal(self) -> CapturedTrial:
        while self._runs:
            await asyncio.gather(*(run.ended() for run in list(self._runs)))
        await self._records.settled()
        rule, late = self._service.settings.train, self._parts.late
        captured = self._captured()
        record = sealed_record(self._graph, captured, rule=rule, ts=time.time(), late=late)
        problem = await self._records.sealed(record)
        if problem:
            self._evidence.lost()
            captured = self._captured()
        self._service.figures.secrets += self._keeper.hidden
        self._parts.replies.clear()
        return captured

    def _captured(self) -> CapturedTrial:
        captured = captured_trial(
            self._graph,
            evidence=self._evidence.taken(),
            rule=self._service.settings.train,
            policy_version=self._policy_version,
            late=self._parts.late,
        )
        trained = sum(bool(turn.tokens_T) for segment in captured.segments for turn in segment.turns)
        evidence = replace(captured.evidence, trained=trained)
        return replace(captured, evidence=evidence, refused=self._evidence.refused())


def leave(run: CallRun) -> None:
    """One less waits for a call; the last one to leave it cancels it."""
    run.waiters -= 1
    if run.waiters == 0 and not run.answer.done():
        run.end("client")
