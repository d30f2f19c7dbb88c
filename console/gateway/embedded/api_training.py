"""Routes: models, training operations, checkpoints written and read by a model."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.gateway.embedded.checkpoints import SAMPLER, TRAINING, CheckpointMeta, Found
from console.gateway.embedded.context import Gateway, as_json, promise, reply, tenant_of
from console.gateway.embedded.late import COMMANDS, Handler, Late
from console.gateway.embedded.optimizer import AdamParams
from console.gateway.embedded.problems import InvalidBody, OperationProblem, RequestProblem
from console.gateway.embedded.proto import MEDIA_TYPE, TrainRequest, encode_train_result, unzstd
from console.gateway.embedded.sampling import Adapter
from console.gateway.embedded.sessions import ServedModel
from console.gateway.embedded.trainer import TrainableModel
from console.gateway.embedded.wire import (
    CreateModel,
    LoadWeights,
    ModelRequest,
    OptimizerConfig,
    OptimStep,
    SaveWeights,
    SaveWeightsForSampler,
    read_body,
    read_json,
)

_TRAIN_LIMIT = 64 * 2**20  # bytes of a training request


@dataclass
class TrainingRoutes:
    """Handlers; see the module."""

    gateway: Gateway

    def routes(self) -> list[Route]:
        """The routes."""
        handlers: dict[str, Handler] = {
            "forward_backward": self.forward_backward,
            "optim_step": self.optim_step,
            "create_model": self.create,
            "get_info": self.info,
            "unload_model": self.unload,
            "save_weights": self.save,
            "save_weights_for_sampler": self.save_for_sampler,
            "load_weights": self.load,
        }
        if self.gateway.settings.like.defers:
            late = Late(self.gateway)
            handlers |= {name: late.wrap(name, handlers[name]) for name in COMMANDS}
        return [Route(f"/api/v1/{name}", handler, methods=["POST"]) for name, handler in handlers.items()]

    async def create(self, request: Request) -> Response:
        """POST create_model."""
        tenant = self.gateway.tenant(request)
        body = await self.gateway.read(request, CreateModel)
        session = self.gateway.registry.session(body.session_id, tenant)
        self.gateway.check_base_model(body.base_model)
        _check_optimizer(body.optimizer_config)
        known = self.gateway.registry.known_model(session, body.model_seq_id)
        if known is not None:
            return promise(known.created, model_id=known.id)
        layout = self.gateway.layout(body.lora_config)
        seed = None if body.lora_config is None else body.lora_config.seed
        future = self.gateway.futures.new(tenant, "create_model")
        model = self.gateway.registry.add_model(session, body.model_seq_id, layout, future, body.user_metadata)

        def operation() -> str:
            model.trainable = TrainableModel(self.gateway.engine.model, layout, seed=seed)
            return model.id

        self._create(model, operation, {"type": "create_model"})
        return promise(future, model_id=model.id)

    def _create(self, model: ServedModel, operation: Any, answer: dict[str, Any]) -> None:
        """Make a model on the compute thread; its slot is given back if that fails."""

        def failed(problem: OperationProblem) -> None:
            self.gateway.futures.fail(model.created, problem)
            self.gateway.registry.unload(model, "could not be created")

        self.gateway.submit(
            model.created,
            operation,
            lambda model_id: as_json({**answer, "model_id": model_id}),
            failed=failed,
        )

    async def info(self, request: Request) -> Response:
        """POST get_info."""
        tenant = self.gateway.tenant(request)
        model = self.gateway.registry.model((await read_json(request, ModelRequest)).model_id, tenant)
        name = self.gateway.settings.name
        return reply(
            {
                "type": "get_info",
                "model_id": model.id,
                "model_name": name,
                "model_data": {"arch": "qwen3", "model_name": name, "tokenizer_id": name},
                "is_lora": True,
                "lora_rank": model.layout.rank,
                "optimizer_config": {"type": "adamw"},
            }
        )

    async def unload(self, request: Request) -> Response:
        """POST unload_model."""
        tenant = self.gateway.tenant(request)
        model = self.gateway.registry.model((await read_json(request, ModelRequest)).model_id, tenant)
        self.gateway.registry.unload(model, "was unloaded by the client")
        future = self.gateway.futures.new(tenant, "unload_model")
        self.gateway.futures.settle(future, *as_json({"type": "unload_model", "model_id": model.id}))
        return promise(future, model_id=model.id)

    async def forward_backward(self, request: Request) -> Response:
        """POST forward_backward: protobuf, plain or zstd."""
        tenant = self.gateway.tenant(request)
        body = request.state.body = await read_body(request, _TRAIN_LIMIT)
        encoding = request.headers.get("content-encoding", "identity")
        if encoding == "zstd":
            body = request.state.body = unzstd(body, _TRAIN_LIMIT)
        elif encoding != "identity":
            raise RequestProblem(400, f"content-encoding {encoding!r} is not supported, only zstd")
        train = TrainRequest(body)
        model = self.gateway.registry.model(train.model_id, tenant)
        if (known := model.operations.known(train.seq_id)) is None:
            losses = self.gateway.settings.like.losses
            if losses is not None and train.loss_name not in losses:
                raise InvalidBody(f"unknown loss_fn {train.loss_name!r}; known: {sorted(losses)}")
            data, options = train.decode(self.gateway.config)
            known = self.gateway.run_in_order(
                model,
                train.seq_id,
                "forward_backward",
                lambda: _ready(model).forward_backward(data, train.loss_name, options, train.forward_only),
                lambda result: (encode_train_result(result), MEDIA_TYPE),
                vital=not train.forward_only,
            )
        return promise(known, model_id=model.id)

    async def optim_step(self, request: Request) -> Response:
        """POST optim_step."""
        tenant = self.gateway.tenant(request)
        body = await self.gateway.read(request, OptimStep)
        model = self.gateway.registry.model(body.model_id, tenant)
        _check_optimizer(body.optimizer_params)
        if (given := body.adam_params) is None:
            raise RequestProblem(400, "adam_params is missing")
        params = AdamParams(
            given.learning_rate, given.beta1, given.beta2, given.eps, given.weight_decay, given.grad_clip_norm
        )
        future = self.gateway.run_in_order(
            model,
            body.seq_id,
            "optim_step",
            lambda: _ready(model).optim_step(params),
            lambda metrics: as_json({"metrics": metrics}),
            vital=True,
        )
        return promise(future, model_id=model.id)

    async def save(self, request: Request) -> Response:
        """POST save_weights: adapter and optimiser state."""
        tenant = self.gateway.tenant(request)
        body = await self.gateway.read(request, SaveWeights)
        model = self.gateway.registry.model(body.model_id, tenant)
        return self._save(model, body, TRAINING, "save_weights")

    async def save_for_sampler(self, request: Request) -> Response:
        """POST save_weights_for_sampler: a named checkpoint, or a sampler over a snapshot in memory."""
        tenant = self.gateway.tenant(request)
        body = await self.gateway.read(request, SaveWeightsForSampler)
        model = self.gateway.registry.model(body.model_id, tenant)
        if body.kind != "snapshot":
            raise RequestProblem(400, f"kind {body.kind!r} is not supported, only 'snapshot'")
        if body.path is not None:
            return self._save(model, body, SAMPLER, "save_weights_for_sampler")
        if (seq_id := body.sampling_session_seq_id) is None:
            raise RequestProblem(400, "path or sampling_session_seq_id is required")

        def encode(adapter: Adapter) -> tuple[bytes, str]:
            sampler = self.gateway.registry.add_sampler(model.session, seq_id, adapter, None)
            return as_json({"type": "save_weights_for_sampler", "sampling_session_id": sampler.id})

        future = self.gateway.run_in_order(
            model, body.seq_id, "save_weights_for_sampler", lambda: _snapshot(model), encode
        )
        return promise(future, model_id=model.id)

    def _save(self, model: ServedModel, body: SaveWeights | SaveWeightsForSampler, kind: str, answer: str) -> Response:
        name = f"checkpoint-{body.seq_id:06d}" if body.path is None else body.path
        self.gateway.checkpoints.check_name(name)
        ttl = self._ttl(body.ttl_seconds)

        def operation() -> str:
            trainable = _ready(model)
            now = time.time()
            meta = CheckpointMeta(
                model_id=model.id,
                kind=kind,
                name=name,
                base_model=self.gateway.settings.name,
                rank=model.layout.rank,
                attn=model.layout.attn,
                mlp=model.layout.mlp,
                unembed=model.layout.unembed,
                optimizer_steps=trainable.optimizer.steps,
                created=now,
                expires=None if ttl is None else now + ttl,
                user_metadata=body.user_metadata,
                run_metadata=model.user_metadata,
            )
            optimizer = trainable.optimizer.state() if kind == TRAINING else None
            self.gateway.checkpoints.save(model.session.tenant, meta, trainable.lora, optimizer, body.overwrite)
            return meta.path

        future = self.gateway.run_in_order(
            model, body.seq_id, answer, operation, lambda path: as_json({"type": answer, "path": path})
        )
        return promise(future, model_id=model.id)

    def _ttl(self, seconds: int | None) -> int | None:
        """Seconds that a checkpoint may live; None for ever."""
        if seconds is not None and self.gateway.settings.like.ttl == "refused":
            raise RequestProblem(400, "ttl_seconds is not supported: checkpoints on this gateway do not expire")
        return None if self.gateway.settings.like.ttl == "ignored" else seconds

    async def load(self, request: Request) -> Response:
        """POST load_weights: into a model that exists, or into a new one."""
        tenant = self.gateway.tenant(request)
        body = await self.gateway.read(request, LoadWeights)
        like = self.gateway.settings.like
        if body.model_id is None and not like.create_by_load:
            raise InvalidBody("model_id: Field required")
        _check_optimizer(body.optimizer_config)
        self.gateway.check_base_model(body.base_model)
        token = body.weights_access_token
        found = self.gateway.checkpoints.find(tenant if token is None else tenant_of(token), body.path)
        self.gateway.check_base_model(found.meta.base_model)
        answer = {"type": "load_weights", "path": body.path}
        if body.model_id is not None:
            if (seq_id := body.seq_id) is None:
                raise RequestProblem(400, "seq_id is required with model_id")
            model = self.gateway.registry.model(body.model_id, tenant)
            if like.loads_first_only and seq_id > 1:
                raise RequestProblem(400, f"LoadWeights is not permitted with seq_id {seq_id}")
            if like.fixed_layout:
                _check_fits(found, model)

            def replace() -> str:
                _ready(model).load(found.lora(), found.optimizer() if body.optimizer else None)
                return model.id

            future = self.gateway.run_in_order(
                model,
                seq_id,
                "load_weights",
                replace,
                lambda model_id: as_json({**answer, "model_id": model_id}),
                vital=True,
            )
            return promise(future, model_id=model.id)
        if body.session_id is None or body.model_seq_id is None:
            raise RequestProblem(400, "session_id and model_seq_id are required without model_id")
        session = self.gateway.registry.session(body.session_id, tenant)
        known = self.gateway.registry.known_model(session, body.model_seq_id)
        if known is not None:
            return promise(known.created, model_id=known.id)
        future = self.gateway.futures.new(tenant, "load_weights")
        layout = found.meta.layout
        model = self.gateway.registry.add_model(session, body.model_seq_id, layout, future, body.user_metadata)

        def create() -> str:
            trainable = TrainableModel(self.gateway.engine.model, layout)
            trainable.load(found.lora(), found.optimizer() if body.optimizer else None)
            model.trainable = trainable
            return model.id

        self._create(model, create, answer)
        return promise(future, model_id=model.id)


def _check_fits(found: Found, model: ServedModel) -> None:
    """Refuse a checkpoint that was not saved by a model like this one."""
    if found.meta.kind != TRAINING:
        raise RequestProblem(400, "cannot load sampler weights into a training model; use a save_state checkpoint")
    saved, wanted = (
        {"lora_rank": each.rank, "train_attn": each.attn, "train_mlp": each.mlp, "train_unembed": each.unembed}
        for each in (found.meta.layout, model.layout)
    )
    for key, value in wanted.items():
        if saved[key] != value:
            raise RequestProblem(
                400,
                f"checkpoint {found.meta.path!r} was saved with {key}={saved[key]!r}; "
                f"this model expects {key}={value!r}",
            )


def _check_optimizer(config: OptimizerConfig | None) -> None:
    if config is not None and config.type != "adamw":
        raise RequestProblem(400, f"optimizer {config.type!r} is not supported, only 'adamw'")


def _ready(model: ServedModel) -> TrainableModel:
    """The trainable model; on the compute thread it was made before any of its operations run."""
    assert model.trainable is not None
    return model.trainable


def _snapshot(model: ServedModel) -> Adapter:
    """The current weights, frozen; the same object as long as they have not changed."""
    trainable = _ready(model)
    if model.snapshot is None or model.snapshot[0] != trainable.version:
        key = f"{model.id}@{trainable.version}"
        model.snapshot = (trainable.version, Adapter(key, trainable.snapshot(), model.layout.scale))
    return model.snapshot[1]
