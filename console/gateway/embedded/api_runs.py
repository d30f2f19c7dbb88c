"""Routes: training runs and checkpoints, as lists and one by one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.gateway.embedded.checkpoints import SAMPLER, TRAINING, Found
from console.gateway.embedded.context import Gateway, reply
from console.gateway.embedded.problems import RequestProblem
from console.gateway.embedded.wire import SetTtl, WeightsInfo, read_json

_PAGE = 1000


@dataclass
class RunRoutes:
    """Handlers; see the module. A run is known while its model is loaded, and as long as a checkpoint of it exists."""

    gateway: Gateway

    def routes(self) -> list[Route]:
        """The routes."""
        run = "/api/v1/training_runs/{run_id}"
        return [
            Route("/api/v1/weights_info", self.weights_info, methods=["POST"]),
            Route("/api/v1/training_runs", self.runs),
            Route(run, self.run),
            Route(run + "/checkpoints", self.run_checkpoints),
            Route(run + "/checkpoints/{kind}/{name}/ttl", self.set_ttl, methods=["PUT"]),
            Route(run + "/checkpoints/{kind}/{name}", self.delete, methods=["DELETE"]),
            Route("/api/v1/checkpoints", self.checkpoints),
        ]

    async def weights_info(self, request: Request) -> Response:
        """POST weights_info."""
        tenant = self.gateway.tenant(request)
        meta = self.gateway.checkpoints.find(tenant, (await read_json(request, WeightsInfo)).tinker_path).meta
        answer = {"base_model": meta.base_model, "is_lora": True, "lora_rank": meta.rank}
        if self.gateway.settings.like.create_by_load:  # the older kinds know no other optimiser either
            answer["optimizer_config"] = {"type": "adamw"}
        if self.gateway.settings.like.layout_known:
            answer |= {"train_attn": meta.attn, "train_mlp": meta.mlp, "train_unembed": meta.unembed}
        return reply(answer)

    def _runs(self, tenant: str) -> dict[str, dict[str, Any]]:
        """The tenant's runs by id, the latest last."""
        runs: dict[str, dict[str, Any]] = {}
        for found in self.gateway.checkpoints.all(tenant):
            meta = found.meta
            run = runs.pop(meta.model_id, {}) or self._run(meta.model_id, meta.rank, meta.created, meta.run_metadata)
            run["last_checkpoint" if meta.kind == TRAINING else "last_sampler_checkpoint"] = _checkpoint(found)
            run["last_request_time"] = _iso(meta.created)
            runs[meta.model_id] = run
        for model in self.gateway.registry.models:
            if model.session.tenant == tenant:
                run = runs.pop(model.id, {}) or self._run(
                    model.id, model.layout.rank, model.last_request, model.user_metadata
                )
                run["last_request_time"] = _iso(model.last_request)
                runs[model.id] = run
        return runs

    def _run(self, run_id: str, rank: int, when: float, metadata: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "training_run_id": run_id,
            "base_model": self.gateway.settings.name,
            "model_owner": "local",
            "is_lora": True,
            "lora_rank": rank,
            "corrupted": False,
            "last_request_time": _iso(when),
            "last_checkpoint": None,
            "last_sampler_checkpoint": None,
            "user_metadata": None if metadata is None else {key: str(value) for key, value in metadata.items()},
        }

    async def runs(self, request: Request) -> Response:
        """GET training_runs: the latest first."""
        runs = list(reversed(self._runs(self.gateway.tenant(request)).values()))
        page, cursor = _page(request, runs, 20)
        return reply({"training_runs": page, "cursor": cursor})

    async def run(self, request: Request) -> Response:
        """GET training_runs/{id}."""
        return reply(self._known_run(request))

    def _known_run(self, request: Request) -> dict[str, Any]:
        run_id, tenant = request.path_params["run_id"], self.gateway.tenant(request)
        run = self._runs(tenant).get(run_id)
        if run is None:
            self.gateway.registry.model(run_id, tenant)  # says 403 of another tenant's, 410 of an unloaded one
            raise RequestProblem(404, f"training run {run_id!r} is unknown to this gateway")
        return run

    async def run_checkpoints(self, request: Request) -> Response:
        """GET training_runs/{id}/checkpoints."""
        run = self._known_run(request)
        found = self.gateway.checkpoints.all(self.gateway.tenant(request), run["training_run_id"])
        return reply({"checkpoints": [_checkpoint(each) for each in found]})

    async def checkpoints(self, request: Request) -> Response:
        """GET checkpoints."""
        found = self.gateway.checkpoints.all(self.gateway.tenant(request))
        page, cursor = _page(request, [_checkpoint(each) for each in found], 100)
        return reply({"checkpoints": page, "cursor": cursor})

    def _checkpoint_of(self, request: Request) -> Found:
        run_id, kind, name = (request.path_params[part] for part in ("run_id", "kind", "name"))
        return self.gateway.checkpoints.find(self.gateway.tenant(request), f"tinker://{run_id}/{kind}/{name}")

    async def delete(self, request: Request) -> Response:
        """DELETE training_runs/{id}/checkpoints/{kind}/{name}."""
        self.gateway.checkpoints.delete(self._checkpoint_of(request))
        return Response(status_code=204)

    async def set_ttl(self, request: Request) -> Response:
        """PUT training_runs/{id}/checkpoints/{kind}/{name}/ttl."""
        body = await read_json(request, SetTtl)
        self.gateway.checkpoints.set_ttl(self._checkpoint_of(request), body.ttl_seconds)
        return Response(status_code=204)


def _checkpoint(found: Found) -> dict[str, Any]:
    meta = found.meta
    return {
        "checkpoint_id": f"{meta.kind}/{meta.name}",
        "checkpoint_type": {TRAINING: "training", SAMPLER: "sampler"}.get(meta.kind, meta.kind),
        "time": _iso(meta.created),
        "tinker_path": meta.path,
        "size_bytes": found.size,
        "public": False,
        "user_metadata": meta.user_metadata,
        "expires_at": None if meta.expires is None else _iso(meta.expires),
    }


def _page(request: Request, rows: list[dict[str, Any]], default: int) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The requested slice of a list, and its cursor."""
    try:
        offset = msgspec.convert(request.query_params.get("offset", "0"), int, strict=False)
        limit = msgspec.convert(request.query_params.get("limit", str(default)), int, strict=False)
    except msgspec.ValidationError:
        raise RequestProblem(400, "offset and limit must be integers") from None
    if offset < 0 or not 0 <= limit <= _PAGE:
        raise RequestProblem(400, f"offset must be 0 or more, and limit 0 to {_PAGE}")
    return rows[offset : offset + limit], {"offset": offset, "limit": limit, "total_count": len(rows)}


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
