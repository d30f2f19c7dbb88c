"""Promises of results: what `request_id` stands for. Owned by the event loop."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable

from console.gateway.embedded.problems import OperationProblem, RequestProblem

_KEEP_BYTES = 128 * 2**20
_OPEN_PER_TENANT = 8192


class Future:
    """One promised result; `body` and `media_type` are the HTTP answer once it is settled, `cancel` ends its work."""

    def __init__(self, tenant: str, kind: str) -> None:
        self.id = f"req-{uuid.uuid4().hex}"
        self.tenant = tenant
        self.kind = kind
        self.created = time.monotonic()
        self.settled_at: float | None = None
        self.body: bytes | None = None
        self.media_type = ""
        self.problem: OperationProblem | None = None
        self.waiters: set[asyncio.Future[None]] = set()
        self.cancel: Callable[[], None] | None = None

    @property
    def settled(self) -> bool:
        """Whether there is a result or a problem."""
        return self.settled_at is not None


class Futures:
    """All promises. Settled ones are forgotten after a while, the oldest first when they hold too much memory.

    Args:
        keep_seconds: how long a settled promise is remembered.
        unknown: the HTTP status for one that is not.
    """

    def __init__(self, *, keep_seconds: float = 900.0, unknown: int = 410) -> None:
        self._keep_seconds = keep_seconds
        self._unknown = unknown
        self._all: dict[str, Future] = {}
        self._settled: OrderedDict[str, int] = OrderedDict()  # id -> bytes, oldest first
        self._bytes = 0
        self._open: dict[str, int] = {}
        self._closed = False

    def new(self, tenant: str, kind: str) -> Future:
        """A fresh promise.

        Raises:
            RequestProblem: 429 when the tenant has too many open ones.
        """
        if self._open.get(tenant, 0) >= _OPEN_PER_TENANT:
            raise RequestProblem(429, f"{_OPEN_PER_TENANT} requests are pending already", retry_after=1.0)
        future = Future(tenant, kind)
        self._all[future.id] = future
        self._open[tenant] = self._open.get(tenant, 0) + 1
        return future

    def get(self, request_id: str, tenant: str) -> Future:
        """The promise of that id.

        Raises:
            RequestProblem: unknown or forgotten, 403 another tenant's.
        """
        future = self._all.get(request_id)
        if future is None:
            raise RequestProblem(self._unknown, f"request {request_id!r} is unknown or its result was dropped")
        if future.tenant != tenant:
            raise RequestProblem(403, f"request {request_id!r} belongs to another API key")
        return future

    def settle(self, future: Future, body: bytes, media_type: str = "application/json") -> None:
        """Fulfil a promise; one that is settled stays as it is."""
        if not future.settled:
            future.body, future.media_type = body, media_type
            self._close_one(future, len(body))

    def fail(self, future: Future, problem: OperationProblem) -> None:
        """Settle a promise with a problem."""
        if not future.settled:
            future.problem = problem
            self._close_one(future, len(problem.detail))

    def _close_one(self, future: Future, size: int) -> None:
        future.settled_at = time.monotonic()
        self._open[future.tenant] -= 1
        if not self._open[future.tenant]:
            del self._open[future.tenant]
        for waiter in future.waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._settled[future.id] = size
        self._bytes += size
        while self._bytes > _KEEP_BYTES and len(self._settled) > 1:
            self._forget(next(iter(self._settled)))

    def _forget(self, request_id: str) -> None:
        self._bytes -= self._settled.pop(request_id)
        del self._all[request_id]

    def sweep(self) -> None:
        """Forget results that were kept long enough."""
        limit = time.monotonic() - self._keep_seconds
        while self._settled:
            oldest = next(iter(self._settled))
            settled_at = self._all[oldest].settled_at
            if settled_at is not None and settled_at > limit:
                return
            self._forget(oldest)

    async def wait(self, future: Future, seconds: float) -> bool:
        """Wait until the promise is settled; False when the time is over or the gateway ends."""
        if not future.settled and not self._closed:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            future.waiters.add(waiter)
            try:
                await asyncio.wait((waiter,), timeout=seconds)
            finally:
                future.waiters.discard(waiter)
        return future.settled

    def close(self) -> None:
        """Wake everybody who waits."""
        self._closed = True
        for future in self._all.values():
            for waiter in future.waiters:
                if not waiter.done():
                    waiter.set_result(None)
