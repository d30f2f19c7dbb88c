"""Routes: health, client settings, sessions, load."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.gateway.embedded.context import Gateway, reply
from console.gateway.embedded.problems import RequestProblem
from console.gateway.embedded.wire import CreateSession, FinishSession, SessionRequest, read_body, read_json


@dataclass
class SessionRoutes:
    """Handlers; see the module."""

    gateway: Gateway
    started: float = field(default_factory=time.monotonic)

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/healthz", self.health),
            Route("/api/v1/healthz", self.health),
            Route("/api/v1/session_heartbeat", self.heartbeat, methods=["POST"]),
            Route("/api/v1/client/config", self.client_config, methods=["POST"]),
            Route("/api/v1/client/dynamic_config", self.dynamic_config, methods=["POST"]),
            Route("/api/v1/telemetry", self.telemetry, methods=["POST"]),
            Route("/api/v1/get_server_capabilities", self.capabilities),
            Route("/api/v1/engine_load", self.engine_load),
            Route("/api/v1/create_session", self.create, methods=["POST"]),
            Route("/api/v1/sessions", self.all),
            Route("/api/v1/sessions/{session_id}", self.one),
            Route("/api/v1/sessions/{session_id}/finish", self.finish, methods=["POST"]),
        ]

    async def health(self, request: Request) -> Response:
        """GET healthz: no key needed."""
        return reply({"status": "ok"})

    async def client_config(self, request: Request) -> Response:
        """POST client/config: what the SDK may do."""
        self.gateway.description(request)
        return reply(self.gateway.settings.like.client_config)

    async def dynamic_config(self, request: Request) -> Response:
        """POST client/dynamic_config."""
        self.gateway.description(request)
        return reply(self.gateway.settings.like.dynamic_config)

    async def telemetry(self, request: Request) -> Response:
        """POST telemetry: read and thrown away."""
        self.gateway.description(request)
        await read_body(request, 16 * 2**20)
        return reply({"status": "accepted"})

    async def capabilities(self, request: Request) -> Response:
        """GET get_server_capabilities."""
        self.gateway.description(request)
        told = {"max_context_length": self.gateway.config.context_window, "trainable": True, "sampleable": True}
        model = {key: value for key, value in told.items() if key in self.gateway.settings.like.capabilities}
        return reply({"supported_models": [{"model_name": self.gateway.settings.name, **model}]})

    async def engine_load(self, request: Request) -> Response:
        """GET engine_load: what is running and waiting, and how full the key-value memory is."""
        self.gateway.tenant(request)
        load = self.gateway.engine.load()
        engine = {
            "rank": 0,
            "url": str(request.base_url).rstrip("/"),
            "running_requests": load.running,
            "queued_requests": load.queued,
            "max_running_requests": load.max_rows,
            "full_kv": {
                "used_tokens": load.used_tokens,
                "evictable_tokens": load.kept_tokens,
                "total_tokens": load.total_tokens,
            },
            "swa_kv": None,
            "host_kv": None,
        }
        return reply(
            {
                "engines": [engine],
                "models": {"used": len(self.gateway.registry.models), "capacity": self.gateway.settings.max_models},
                "totals": self.gateway.engine.counters,
                "uptime_seconds": time.monotonic() - self.started,
                "max_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            }
        )

    async def create(self, request: Request) -> Response:
        """POST create_session."""
        tenant = self.gateway.tenant(request)
        body = await read_json(request, CreateSession, 64 * 1024)
        session = self.gateway.registry.open_session(tenant, body.user_metadata, body.display_name)
        return reply({"type": "create_session", "session_id": session.id})

    async def heartbeat(self, request: Request) -> Response:
        """POST session_heartbeat: 410 (with most services) tells the client that its session is over."""
        tenant = self.gateway.tenant(request)
        body = await read_json(request, SessionRequest)
        like = self.gateway.settings.like
        try:
            self.gateway.registry.heartbeat(body.session_id, tenant)
        except RequestProblem as problem:
            over = problem.status in (like.unknown, like.gone)
            raise RequestProblem(like.session_unknown if over else problem.status, problem.detail) from None
        return reply({"type": "session_heartbeat"})

    async def all(self, request: Request) -> Response:
        """GET sessions."""
        sessions = self.gateway.registry.sessions(self.gateway.tenant(request))
        return reply({"sessions": [session.id for session in sessions]})

    async def one(self, request: Request) -> Response:
        """GET sessions/{id}."""
        session = self.gateway.registry.session(request.path_params["session_id"], self.gateway.tenant(request))
        return reply(
            {
                "training_run_ids": list(session.models),
                "sampler_ids": list(session.samplers),
                "user_metadata": session.user_metadata,
                "display_name": session.display_name,
            }
        )

    async def finish(self, request: Request) -> Response:
        """POST sessions/{id}/finish: frees the session's slots at once."""
        tenant = self.gateway.tenant(request)
        body = await read_json(request, FinishSession)
        session = self.gateway.registry.session(request.path_params["session_id"], tenant)
        self.gateway.registry.end_session(session, f"its session was finished by the client ({body.reason.type})")
        return Response(status_code=204)
