"""What every handler of the embedded gateway works with."""

from __future__ import annotations

import functools
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
from console.gateway.embedded.likeness import EMBEDDED, Likeness
from console.gateway.embedded.lora import LoraLayout
from console.gateway.embedded.problems import InvalidBody, OperationProblem, RequestProblem
from console.gateway.embedded.sampling import Adapter
from console.gateway.embedded.sessions import Registry, ServedModel
from console.gateway.embedded.strict import complaint
from console.gateway.embedded.wire import LoraConfig, decode, read_body

_KEY_LIMIT = 8192


@dataclass(frozen=True)
class Settings:
    """How this gateway serves.

    Attributes:
        like: whom it behaves like.
        max_rank: the highest LoRA rank of a model.
        train: the layers that the server was started for, of `attn`, `mlp` and `unembed`.
        max_queued: sequences that may wait for a place; more are answered with 429.
        gap_timeout: seconds that an operation waits for the one before it to arrive.
        poll_seconds: how long a `retrieve_future` waits; the SDK's own time-out is 45 s.
    """

    name: str
    like: Likeness = EMBEDDED
    max_rank: int = EMBEDDED.max_rank
    train: frozenset[str] = frozenset({"attn", "mlp", "unembed"})
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
        like = settings.like
        self.futures = Futures(keep_seconds=like.keep_seconds, unknown=like.future_unknown)
        self.registry = Registry(
            self.futures,
            like=like,
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
            RequestProblem: no key, where one is needed.
        """
        like = self.settings.like
        if not like.needs_key:
            return tenant_of("everybody")
        key = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        if not key.strip() or len(key) > _KEY_LIMIT:
            raise RequestProblem(like.no_key, "an API key is required in the header X-API-Key")
        return tenant_of(key)

    def description(self, request: Request) -> None:
        """Let a request pass that only asks what the service is.

        Raises:
            RequestProblem: no key, where one is needed even for that.
        """
        if not self.settings.like.open_descriptions:
            self.tenant(request)

    async def read[T](self, request: Request, kind: type[T], limit: int = 2**20) -> T:
        """The request's body as a `kind`, held to the request models of the service that this one behaves like.

        Raises:
            RequestProblem: 413.
            InvalidBody: names the field that is wrong.
        """
        body = request.state.body = await read_body(request, limit)
        if self.settings.like.strict and (found := complaint(kind, decode(body, dict))) is not None:
            raise InvalidBody(found)
        return decode(body, kind)

    def layout(self, lora: LoraConfig | None) -> LoraLayout:
        """The layout of a new model.

        Raises:
            RequestProblem: 400 for what this server does not train.
        """
        settings, like = self.settings, self.settings.like
        lora = lora or LoraConfig()
        wanted = {"attn": lora.train_attn, "mlp": lora.train_mlp, "unembed": lora.train_unembed}
        if lora.seed is not None and not like.seeds:
            why = "lora_config.seed is not supported: adapter initialization is not per-model seedable"
            raise RequestProblem(400, why)
        for layer, trained in wanted.items():
            if layer in like.forced_off:
                wanted[layer] = False
            elif like.fixed_layout and trained != (layer in settings.train):
                name, served = f"train_{layer}", layer in settings.train
                raise RequestProblem(
                    400,
                    f"lora_config.{name}={trained} conflicts with this gateway's adapter layout ({name}={served}); "
                    "the layout is fixed at server start",
                )
        if not any(wanted.values()):
            raise RequestProblem(400, "lora_config trains nothing: set train_attn, train_mlp or train_unembed")
        if lora.rank > settings.max_rank:
            raise RequestProblem(
                400, f"lora_config.rank must be an integer in [1, {settings.max_rank}], got {lora.rank}"
            )
        return LoraLayout(lora.rank, **wanted)

    def base_adapter(self, tenant: str) -> Adapter:
        """The base model; its key is the tenant's own, so that no tenant sees another's prefix-cache hits."""
        return Adapter(f"base/{tenant}", None, 0.0)

    def check_base_model(self, name: str | None) -> None:
        """Refuse another base model.

        Raises:
            RequestProblem: 400.
        """
        if name is not None and name != self.settings.name:
            raise RequestProblem(400, self.settings.like.wrong_model.format(asked=name, served=self.settings.name))

    def run_in_order(
        self,
        model: ServedModel,
        seq_id: int,
        kind: str,
        operation: Callable[[], Any],
        encode: Callable[[Any], tuple[bytes, str]],
        *,
        vital: bool = False,
    ) -> Future:
        """Run a model's operation in its turn; `encode` turns its result into an answer, on the event loop.

        Args:
            vital: the model's state is unknown when this fails, so that a service which cares closes the model.

        Raises:
            RequestProblem: the `seq_id` is of the past, or too much is pending.
        """
        if (known := model.operations.known(seq_id)) is not None:
            return known
        future = self.futures.new(model.session.tenant, kind)
        failed = functools.partial(self._close, model, future) if vital and self.settings.like.closes else None
        try:
            model.operations.add(seq_id, future, lambda: self.submit(future, operation, encode, failed))
        except RequestProblem as problem:
            self.futures.fail(future, OperationProblem(problem.detail))
            raise
        return future

    def _close(self, model: ServedModel, future: Future, problem: OperationProblem) -> None:
        why = f"model training failed ({problem.detail}); create a new model and restore from a checkpoint"
        self.futures.fail(future, OperationProblem(why, problem.category))
        self.registry.unload(model, f"was unloaded: {why}")

    def submit(
        self,
        future: Future,
        operation: Callable[[], Any],
        encode: Callable[[Any], tuple[bytes, str]],
        failed: Callable[[OperationProblem], None] | None = None,
    ) -> None:
        """Run an operation on the compute thread and settle the promise; `failed` is told first when it fails."""

        def done(result: Any) -> None:
            if isinstance(result, OperationProblem):
                if failed is not None:
                    failed(result)
                self.futures.fail(future, result)
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
