"""What every handler of the embedded gateway works with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from console.gateway.embedded.checkpoints import Checkpoints
from console.gateway.embedded.config import ModelConfig
from console.gateway.embedded.engine import Engine
from console.gateway.embedded.futures import Future, Futures
from console.gateway.embedded.problems import OperationProblem, RequestProblem
from console.gateway.embedded.sampling import Adapter
from console.gateway.embedded.sessions import Registry, ServedModel

_KEY_LIMIT = 8192


@dataclass(frozen=True)
class Settings:
    """How this gateway serves.

    Attributes:
        max_queued: sequences that may wait for a place; more are answered with 429.
        gap_timeout: seconds that an operation waits for the one before it to arrive.
        poll_seconds: how long a `retrieve_future` waits; below the SDK's own time-out of 45 s.
    """

    name: str
    max_rows: int = 64
    max_models: int = 8
    max_queued: int = 512
    lease: float = 300.0
    gap_timeout: float = 60.0
    poll_seconds: float = 25.0


class Gateway:
    """The parts, and what handlers share."""

    def __init__(self, engine: Engine, checkpoints: Checkpoints, settings: Settings) -> None:
        self.engine = engine
        self.checkpoints = checkpoints
        self.settings = settings
        self.futures = Futures()
        self.registry = Registry(
            self.futures,
            max_models=settings.max_models,
            lease=settings.lease,
            cancel=engine.cancel,
            release=engine.release,
        )
        self.path_adapters: dict[str, Adapter] = {}

    @property
    def config(self) -> ModelConfig:
        """The model's shape."""
        return self.engine.model.config

    def tenant(self, request: Request) -> str:
        """The digest that stands for the request's API key.

        Raises:
            RequestProblem: 401 without a key.
        """
        key = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        if not key.strip() or len(key) > _KEY_LIMIT:
            raise RequestProblem(401, "an API key is required in the header X-API-Key")
        return tenant_of(key)

    def base_adapter(self, tenant: str) -> Adapter:
        """The base model; its key is the tenant's own, so that no tenant sees another's prefix-cache hits."""
        return Adapter(f"base/{tenant}", None, 0.0)

    def check_base_model(self, name: str | None) -> None:
        """Refuse another base model.

        Raises:
            RequestProblem: 400.
        """
        if name is not None and name != self.settings.name:
            raise RequestProblem(
                400, f"base_model {name!r} is not served here; this gateway serves {self.settings.name!r}"
            )

    def run_in_order(
        self,
        model: ServedModel,
        seq_id: int,
        kind: str,
        operation: Callable[[], Any],
        encode: Callable[[Any], tuple[bytes, str]],
    ) -> Future:
        """Run a model's operation in its turn; `encode` turns its result into an answer, on the event loop.

        Raises:
            RequestProblem: the `seq_id` is of the past, or too much is pending.
        """
        if (known := model.operations.known(seq_id)) is not None:
            return known
        future = self.futures.new(model.session.tenant, kind)
        try:
            model.operations.add(seq_id, future, lambda: self.submit(future, operation, encode))
        except RequestProblem as problem:
            self.futures.fail(future, OperationProblem(problem.detail))
            raise
        return future

    def submit(
        self,
        future: Future,
        operation: Callable[[], Any],
        encode: Callable[[Any], tuple[bytes, str]],
        failed: Callable[[], None] | None = None,
    ) -> None:
        """Run an operation on the compute thread and settle the promise; `failed` is told when it fails."""

        def done(result: Any) -> None:
            if isinstance(result, OperationProblem):
                self.futures.fail(future, result)
                if failed is not None:
                    failed()
            elif not future.settled:
                try:
                    self.futures.settle(future, *encode(result))
                except RequestProblem as problem:
                    self.futures.fail(future, OperationProblem(problem.detail))

        self.engine.submit_operation(operation, done)


def tenant_of(key: str) -> str:
    """The digest that stands for an API key, also as the name of its directory."""
    return hashlib.sha256(key.strip().encode()).hexdigest()[:24]


def as_json(value: Any) -> tuple[bytes, str]:
    """A value as a JSON answer."""
    return msgspec.json.encode(value), "application/json"


def reply(value: Any, status: int = 200) -> Response:
    """A JSON response."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def promise(future: Future, **more: Any) -> Response:
    """The response that carries a promise."""
    return reply({"request_id": future.id, **more})
