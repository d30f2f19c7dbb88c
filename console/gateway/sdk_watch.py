"""What the SDK of this process goes through at its gateway, seen from the outside.

The SDK retries for minutes without a word: whether a session is still alive, how long an operation has been waiting and
what the gateway says to those who wait, are known inside it only. Two methods are wrapped: `AsyncTinker.request`, where
every request and its answer pass, and `_APIFuture._result_async`, whose run is the life of a promise. Neither request
nor answer is changed, so that wrappers that do (see `translation`) may be installed before or after, and undone in any
order.
"""

from __future__ import annotations

import itertools
import json
import time
import weakref
from collections.abc import Callable
from threading import Lock
from typing import Any

import tinker
from tinker import APIStatusError
from tinker._client import AsyncTinker
from tinker.lib.api_future_impl import _APIFuture

from console.errors import UsageError
from console.gateway.health import SdkFigures
from console.gateway.loss import forgotten
from console.gateway.seam import Seam

OPERATIONS = {
    "asample": "sample",
    "forward": "forward",
    "forward_backward": "forward_backward",
    "optim_step": "optim_step",
    "create_model": "create_model",
    "load_weights": "load_weights",
    "save_weights": "save_weights",
    "save_weights_for_sampler": "save_weights_for_sampler",
    "create_session": "connect",
    "config": "connect",
}
"""Last part of a request's path to the kind of operation that it begins."""
KINDS = {
    "Sample": "sample", "Forward": "forward", "ForwardBackward": "forward_backward", "OptimStep": "optim_step",
    "CreateModel": "create_model", "LoadWeights": "load_weights", "SaveWeights": "save_weights",
    "SaveWeightsForSampler": "save_weights_for_sampler",
}  # fmt: skip
"""The SDK's type of a promise to the kind of operation."""
WORST_FIRST = ("paused_rate_limit", "paused_capacity", "active")
QUEUE_ANSWER_MOST = 1 << 14
"""Bytes. An answer that tells a wait is a few hundred; what is longer is a result."""
REASON_MOST = 200
FORGOTTEN_MOST = 300
THROTTLED_SECONDS = 10.0
"""For so long after a pause for a 429 the SDK sends fewer samples at a time."""


def now() -> float:
    """Seconds of a clock that goes on while the machine sleeps, as the gateway's lease does."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)  # Linux has it
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class _Promise:
    """One operation: since when, and what its waiter was last told."""

    __slots__ = ("kind", "queue", "reason", "request_id", "since")

    def __init__(self, kind: str, since: float, request_id: str = "") -> None:
        self.kind, self.since, self.request_id = kind, since, request_id
        self.queue = self.reason = ""


class SdkWatch:
    """Sees every SDK client of this process from `install` to `undo`. Its methods may be called from any thread."""

    def __init__(self, clock: Callable[[], float] = now) -> None:
        self._clock = clock
        self._lock = Lock()
        self._open: dict[int, _Promise] = {}
        self._numbers = itertools.count()
        self._heartbeat: float | None = None
        self._contact: float | None = None
        self._forgotten, self._finishing = "", False
        self._holders: weakref.WeakSet[Any] = weakref.WeakSet()
        self._seam = Seam()
        self._on = False

    # --- the seam ---

    def install(self) -> None:
        """Begin to watch; a second call changes nothing.

        Raises:
            UsageError: the installed SDK does not have what is watched.
        """
        if self._on:
            return
        for owner, name in ((AsyncTinker, "request"), (_APIFuture, "_result_async")):
            if not callable(getattr(owner, name, None)):
                raise UsageError(
                    f"tinker {tinker.__version__} has no {owner.__name__}.{name}: install a version within the bounds "
                    "of quarterdeck's extra `engine`"
                )
        self._on = True
        self._seam.wrap(AsyncTinker, "request", self._requesting)
        self._seam.wrap(_APIFuture, "_result_async", self._awaiting)

    def undo(self) -> None:
        """Stop watching, and forget what was seen."""
        self._on = False
        self._seam.undo()
        with self._lock:
            self._open.clear()
            self._heartbeat = self._contact = None
            self._forgotten, self._finishing = "", False

    def _requesting(self, before: Any) -> Any:
        async def request(client: Any, cast_to: Any, options: Any, **more: Any) -> Any:
            route = str(options.url).rsplit("/", 1)[-1]
            sent = self._clock()
            if route == "finish":  # the session ends because we say so
                self._finishing = True
            number = self._begin(_Promise(OPERATIONS[route], sent)) if route in OPERATIONS else None
            try:
                answer = await before(client, cast_to, options, **more)
            except APIStatusError as problem:
                self._answered(route, options, problem.response, refused=True)
                # Nothing of a session comes back that the gateway does not know; the SDK goes on asking for minutes.
                if route == "session_heartbeat" and not self._finishing and _is_over(problem):
                    with self._lock:
                        self._forgotten = str(problem)[:FORGOTTEN_MOST]
                raise
            finally:
                self._end(number)
            self._answered(route, options, getattr(answer, "http_response", None))
            if route in ("session_heartbeat", "create_session"):
                with self._lock:  # of when it was sent: the gateway cannot have heard it earlier
                    self._heartbeat = max(sent, self._heartbeat or sent)
                    self._forgotten = ""
            return answer

        return request

    def _awaiting(self, before: Any) -> Any:
        async def result(future: Any, *args: Any, **more: Any) -> Any:
            kind = KINDS.get(str(future.request_type), "other")
            number = self._begin(_Promise(kind, self._clock(), str(future.request_id)))
            with self._lock:
                self._holders.add(future.holder)
            try:
                return await before(future, *args, **more)
            finally:
                self._end(number)

        return result

    # --- what was seen ---

    def _begin(self, promise: _Promise) -> int:
        number = next(self._numbers)
        with self._lock:
            self._open[number] = promise
        return number

    def _end(self, number: int | None) -> None:
        with self._lock:
            self._open.pop(number, None)  # type: ignore[arg-type]

    def _answered(self, route: str, options: Any, response: Any, refused: bool = False) -> None:
        """An answer came. Of one to a waiter: keep what it says of the queue."""
        with self._lock:
            self._contact = self._clock()
        if route != "retrieve_future" or response is None or (refused and response.status_code != 408):
            return
        told = _queue_of(response)
        request_id = options.json_data.get("request_id") if isinstance(options.json_data, dict) else None
        if told is None or request_id is None:
            return
        with self._lock:
            for promise in self._open.values():
                if promise.request_id == request_id:
                    promise.queue, promise.reason = told

    def figures(self) -> SdkFigures:
        """How it stands now."""
        with self._lock:
            moment, promises, holders = self._clock(), list(self._open.values()), list(self._holders)
            heartbeat, contact, said = self._heartbeat, self._contact, self._forgotten
        pending: dict[str, int] = {}
        oldest: dict[str, float] = {}
        for promise in promises:
            pending[promise.kind] = pending.get(promise.kind, 0) + 1
            oldest[promise.kind] = max(oldest.get(promise.kind, 0.0), moment - promise.since)
        worst = min((p for p in promises if p.queue), key=lambda p: WORST_FIRST.index(p.queue), default=None)
        return SdkFigures(
            contact_age=None if contact is None else max(0.0, moment - contact),
            heartbeat_age=None if heartbeat is None else max(0.0, moment - heartbeat),
            queue="" if worst is None else worst.queue,
            queue_reason="" if worst is None else worst.reason,
            backoff=max(filter(None, map(_backoff, holders)), default=None),
            pending=pending,
            oldest=oldest,
            forgotten=said,
        )


def _is_over(problem: APIStatusError) -> bool:
    """Of a refused heartbeat: whether the session has ended. 410 says so whatever the words."""
    return problem.status_code == 410 or forgotten(problem)


def _queue_of(response: Any) -> tuple[str, str] | None:
    """State and reason of an answer that says to come again; None for any other."""
    if "json" not in response.headers.get("content-type", "json"):
        return None
    try:
        body = response.content
        said = json.loads(body) if len(body) <= QUEUE_ANSWER_MOST else None
    except Exception:  # not read, or no JSON: the SDK says so itself
        return None
    if not isinstance(said, dict) or (state := said.get("queue_state")) not in WORST_FIRST:
        return None
    reason = said.get("queue_state_reason")
    return state, reason[:REASON_MOST] if isinstance(reason, str) else ""


def _backoff(holder: Any) -> float | None:
    """Seconds for which a client still holds samples back, or sends few of them."""
    until = getattr(holder, "_sample_backoff_until", None)
    left = 0.0 if until is None else until + THROTTLED_SECONDS - time.monotonic()
    return left if left > 0 else None
