"""The compute thread: training operations in order, and sampling between their micro-batches.

Everything that touches tensors happens here. The event loop submits work and gets results through callbacks, which
run on the event loop.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer

from console.gateway.embedded.kv import PrefixCache
from console.gateway.embedded.lane import Lane, Row
from console.gateway.embedded.model import Model, Weights
from console.gateway.embedded.problems import OperationProblem
from console.gateway.embedded.sampling import Adapter, SampleJob

log = logging.getLogger(__name__)

Operation = Callable[[], Any]
"""A training operation: returns its result, or an iterator that yields None between parts and the result last.

The result is never None.
"""

_ADMIT_TOKENS = 8192  # prompt tokens taken in between two decoding steps
_IDLE_LANES = 2
_MERGED_BUDGET = 192 * 2**20  # bytes of merged weights kept for adapters that may sample again


@dataclass(frozen=True)
class Load:
    """A momentary view of the engine; counts are of rows and tokens."""

    running: int = 0
    queued: int = 0
    max_rows: int = 0
    used_tokens: int = 0
    kept_tokens: int = 0
    total_tokens: int = 0


class Engine:
    """Owns the compute thread. All public methods are called from the event loop.

    Args:
        max_rows: sequences decoded together.
        prefix_budget: bytes of keys and values kept of finished sequences.

    Attributes:
        counters: totals since the start, for `engine_load`.
    """

    def __init__(self, model: Model, tokenizer: Tokenizer | None, *, max_rows: int, prefix_budget: int) -> None:
        self.model = model
        self.has_tokenizer = tokenizer is not None
        self.counters = dict.fromkeys(("sampled", "prefilled", "reused", "steps", "training_operations"), 0)
        self._tokenizer = tokenizer
        self._max_rows = max_rows
        self._cache = PrefixCache(prefix_budget)
        self._capacity = max_rows * model.config.context_window + prefix_budget // model.config.kv_bytes_per_token
        self._lanes: OrderedDict[str, Lane] = OrderedDict()
        self._merged: OrderedDict[str, Weights] = OrderedDict()
        self._wake = threading.Condition()
        self._operations: deque[tuple[Operation, Callable[[Any], None]]] = deque()
        self._waiting: deque[Row] = deque()
        self._released: deque[str] = deque()
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="compute", daemon=True)
        self._running = self._used = 0

    def start(self) -> None:
        """Start the thread; callbacks go to the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Let the thread end after what it is doing; nothing more is called back."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def submit_operation(self, operation: Operation, done: Callable[[Any], None]) -> None:
        """Queue a training operation; `done` gets its result or an `OperationProblem`."""
        with self._wake:
            self._operations.append((operation, done))
            self._wake.notify()

    def submit_sample(self, job: SampleJob) -> None:
        """Queue a sampling request; `job.done` gets a `SampleResult` or an `OperationProblem`."""
        job.done = functools.partial(self._call, job.done)
        rows = [Row(job, index) for index in range(job.spec.num_samples)]
        with self._wake:
            self._waiting.extend(rows)
            self._wake.notify()

    def cancel(self, job: SampleJob) -> None:
        """End a sampling request: its waiting rows leave the queue now, its running ones before the next step."""
        job.cancelled = True
        with self._wake:
            self._waiting = deque(row for row in self._waiting if row.job is not job)

    def release(self, adapter_key: str) -> None:
        """Nobody samples from this adapter any more: drop what was kept for it."""
        with self._wake:
            self._released.append(adapter_key)
            self._wake.notify()

    def load(self) -> Load:
        """The momentary load."""
        return Load(
            running=self._running,
            queued=len(self._waiting),
            max_rows=self._max_rows,
            used_tokens=self._used,
            kept_tokens=self._cache.kept_tokens,
            total_tokens=self._capacity,
        )

    def _call(self, callback: Callable[[Any], None], value: Any) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(callback, value)
        except RuntimeError:  # the loop is closed: the process is ending
            self._stopping = True

    def _run(self) -> None:
        torch.set_grad_enabled(False)
        current: tuple[Iterator[Any], Callable[[Any], None]] | None = None
        while True:
            busy = current is not None or any(lane.rows for lane in self._lanes.values())
            with self._wake:
                while not (busy or self._operations or self._waiting or self._released or self._stopping):
                    self._wake.wait()
                if self._stopping:
                    return
                operation = self._operations.popleft() if current is None and self._operations else None
                rows = self._next_rows()
                released = [self._released.popleft() for _ in range(len(self._released))]
            for key in released:
                self._forget(key)
            if operation is not None:
                current = self._begin(*operation)
            if current is not None:
                current = self._advance(*current)
            self._sample(rows)

    def _begin(self, operation: Operation, done: Callable[[Any], None]) -> tuple[Iterator[Any], Callable[[Any], None]]:
        def parts() -> Iterator[Any]:
            result = operation()
            if isinstance(result, Iterator):
                yield from result
            else:
                yield result

        self.counters["training_operations"] += 1
        return parts(), done

    def _advance(
        self, parts: Iterator[Any], done: Callable[[Any], None]
    ) -> tuple[Iterator[Any], Callable[[Any], None]] | None:
        """Do the next part of a training operation; None once it is over."""
        try:
            result = next(parts)
        except OperationProblem as problem:
            result = problem
        except Exception as problem:
            log.exception("a training operation failed")
            result = OperationProblem(f"{type(problem).__name__}: {problem}", "server")
        if result is None:
            return parts, done
        self._call(done, result)
        return None

    def _next_rows(self) -> list[Row]:
        """Waiting rows for which there is room; the lock is held."""
        rows: list[Row] = []
        room = self._max_rows - sum(len(lane.rows) for lane in self._lanes.values())
        tokens = 0
        while self._waiting and len(rows) < room and (not rows or tokens < _ADMIT_TOKENS):
            row = self._waiting.popleft()
            if not row.job.cancelled:
                rows.append(row)
                tokens += len(row.spec.prompt)
        return rows

    def _sample(self, rows: list[Row]) -> None:
        by_adapter: dict[str, list[Row]] = {}
        for row in rows:
            by_adapter.setdefault(row.job.adapter.key, []).append(row)
        for key, group in by_adapter.items():
            self._guarded(functools.partial(Lane.admit, rows=group), key, group)
        for key, lane in list(self._lanes.items()):
            if lane.rows:
                self.counters["steps"] += 1
                self.counters["sampled"] += len(lane.rows)
                self._guarded(Lane.step, key, lane.rows)
        idle = [key for key, lane in self._lanes.items() if not lane.rows]
        for key in idle[:-_IDLE_LANES]:
            self._close_lane(key)
        self._running = sum(len(lane.rows) for lane in self._lanes.values())
        self._used = sum(lane.used_tokens for lane in self._lanes.values())

    def _guarded(self, act: Callable[[Lane], None], key: str, rows: list[Row]) -> None:
        """Act on a lane; a failure ends the lane's requests, not the thread."""
        jobs = {id(row.job): row.job for row in rows}
        try:
            lane = self._lane(rows[0].job.adapter)
            jobs |= {id(row.job): row.job for row in lane.rows}
            lane.drop_cancelled()
            if act is not Lane.step or lane.rows:
                act(lane)
        except Exception as problem:
            log.exception("sampling failed")
            failure = OperationProblem(f"{type(problem).__name__}: {problem}", "server")
            if key in self._lanes:
                for row in self._lanes[key].rows:
                    self._cache.withdraw(row, row.blocks)
                self._close_lane(key)
            for job in jobs.values():
                job.cancelled = True  # its other rows must not start
                job.done(failure)

    def _lane(self, adapter: Adapter) -> Lane:
        if adapter.key not in self._lanes:
            weights = self._weights(adapter)
            self._lanes[adapter.key] = Lane(self.model, adapter, weights, self._cache, self._tokenizer, self.counters)
        self._lanes.move_to_end(adapter.key)
        return self._lanes[adapter.key]

    def _weights(self, adapter: Adapter) -> Weights:
        if adapter.lora is None:
            return self.model.base
        if adapter.key not in self._merged:
            self._merged[adapter.key] = self.model.frozen(adapter.lora, adapter.scale)
            while len(self._merged) > 1 and sum(w.nbytes for w in self._merged.values()) > _MERGED_BUDGET:
                self._merged.popitem(last=False)
        self._merged.move_to_end(adapter.key)
        return self._merged[adapter.key]

    def _close_lane(self, key: str) -> None:
        del self._lanes[key]

    def _forget(self, key: str) -> None:
        self._cache.forget(key)
        self._merged.pop(key, None)
        if key in self._lanes and not self._lanes[key].rows:
            self._close_lane(key)
