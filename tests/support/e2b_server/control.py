"""The REST API: templates, builds, uploads, and the life of sandboxes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .faults import RefusedError
from .sandboxes import Sandbox
from .state import State

ENVD_VERSION = "0.5.9"

type Handler = Callable[[Request], Awaitable[Response]]


def refusal(error: RefusedError) -> JSONResponse:
    return JSONResponse({"code": error.status, "message": error.message}, error.status, error.headers)


class Control:
    """The handlers."""

    def __init__(self, state: State) -> None:
        self._state = state

    def routes(self) -> list[Route]:
        return [
            self._route("create", "POST", "/v2/sandboxes", self.create),
            self._route("list", "GET", "/v2/sandboxes", self.list),
            self._route("info", "GET", "/sandboxes/{id}", self.info),
            self._route("kill", "DELETE", "/sandboxes/{id}", self.kill),
            self._route("timeout", "POST", "/sandboxes/{id}/timeout", self.timeout),
            self._route("network", "PUT", "/sandboxes/{id}/network", self.network),
            self._route("pause", "POST", "/sandboxes/{id}/pause", self.pause),
            self._route("resume", "POST", "/v2/sandboxes/{id}/connect", self.resume),
            self._route("tags", "GET", "/templates/{id}/tags", self.tags),
            self._route("alias", "GET", "/templates/aliases/{id}", self.alias),
            self._route("build", "POST", "/v3/templates", self.build),
            self._route("link", "GET", "/templates/{id}/files/{hash}", self.link),
            self._route("start_build", "POST", "/v2/templates/{id}/builds/{build}", self.start_build),
            self._route("status", "GET", "/templates/{id}/builds/{build}/status", self.status),
            Route("/_upload/{hash}", self.upload, methods=["PUT"]),
        ]

    def _route(self, operation: str, method: str, path: str, handler: Handler) -> Route:
        async def guarded(request: Request) -> Response:
            state, known = self._state, ""
            state.calls[operation] += 1
            try:
                if request.headers.get("x-api-key") != state.key:
                    raise RefusedError(401, "Invalid API key, please visit the API keys page for more information.")
                if operation == "create":
                    known = ((await request.json()).get("metadata") or {}).get("session_id", "")
                elif (sandbox := state.sandboxes.get(request.path_params.get("id", ""))) is not None:
                    known = sandbox.session
                await state.faults.meet(operation, known)
                answer = await handler(request)
                await state.faults.meet(operation, known, after=True)
                return answer
            except RefusedError as error:
                return refusal(error)

        return Route(path, guarded, methods=[method])

    async def create(self, request: Request) -> Response:
        sandbox = await self._state.create(await request.json())
        return JSONResponse(_created(sandbox), 201)

    async def list(self, request: Request) -> Response:
        query = request.query_params
        wanted = {unquote(k): unquote(v) for k, v in parse_qsl(query.get("metadata", ""), keep_blank_values=True)}
        states = [part for text in query.getlist("state") for part in text.split(",")] or ["running", "paused"]
        found = [
            sandbox
            for sandbox in self._state.sandboxes.values()
            if sandbox.state in states and wanted.items() <= sandbox.metadata.items()
        ]
        found.sort(key=lambda sandbox: sandbox.began, reverse=query.get("order") != "asc")
        limit, first = min(int(query.get("limit", 100)), 100), int(query.get("nextToken", 0))
        page = found[first : first + limit]
        more = {"x-next-token": str(first + limit)} if first + limit < len(found) else {}
        return JSONResponse([_detail(sandbox) for sandbox in page], headers=more)

    async def info(self, request: Request) -> Response:
        return JSONResponse(_detail(self._find(request)))

    async def kill(self, request: Request) -> Response:
        await self._state.end(self._find(request), "killed")
        return Response(status_code=204)

    async def timeout(self, request: Request) -> Response:
        sandbox = self._find(request)
        sandbox.deadline = time.time() + (await request.json())["timeout"]
        sandbox.renewals += 1
        return Response(status_code=204)

    async def network(self, request: Request) -> Response:
        body = await request.json()
        self._find(request).internet = body.get("allow_internet_access") is not False
        return Response(status_code=204)

    async def pause(self, request: Request) -> Response:
        sandbox = self._find(request)
        if sandbox.state == "paused":
            raise RefusedError(409, "sandbox is already paused")
        sandbox.state = "paused"
        return Response(status_code=204)

    async def resume(self, request: Request) -> Response:
        sandbox = self._find(request)
        sandbox.state = "running"
        return JSONResponse(_created(sandbox), 201)

    async def tags(self, request: Request) -> Response:
        tags = self._state.images.tags(request.path_params["id"])
        now = datetime.now(UTC).isoformat()
        return JSONResponse([{"tag": tag, "buildID": build, "createdAt": now} for tag, build in tags.items()])

    async def alias(self, request: Request) -> Response:
        return JSONResponse({"templateID": self._state.images.id_of(request.path_params["id"]), "public": False})

    async def build(self, request: Request) -> Response:
        body = await request.json()
        build = self._state.images.request(body)
        name, _, tag = body["name"].partition(":")
        ids = {"templateID": build.template, "buildID": build.id}
        return JSONResponse(
            ids | {"public": False, "names": [name], "tags": [tag or "default"], "aliases": [name]}, 202
        )

    async def link(self, request: Request) -> Response:
        name = request.path_params["hash"]
        url = str(request.base_url) + f"_upload/{name}"
        return JSONResponse({"present": name in self._state.images.files, "url": url}, 201)

    async def upload(self, request: Request) -> Response:
        self._state.calls["upload"] += 1
        try:
            await self._state.faults.meet("upload", "")
        except RefusedError as error:
            return refusal(error)
        self._state.images.files[request.path_params["hash"]] = await request.body()
        return Response()

    async def start_build(self, request: Request) -> Response:
        images = self._state.images
        running = images.builds[request.path_params["build"]].run(await request.json(), images.files, images.missing)
        task = asyncio.create_task(running)
        self._state.builds.add(task)
        task.add_done_callback(self._state.builds.discard)
        return Response(status_code=202)

    async def status(self, request: Request) -> Response:
        build = self._state.images.builds.get(request.path_params["build"])
        if build is None:
            raise RefusedError(404, "build not found")
        return JSONResponse(build.answer(int(request.query_params.get("logsOffset", 0))))

    def _find(self, request: Request) -> Sandbox:
        return self._state.find(request.path_params["id"])


def _created(sandbox: Sandbox) -> dict[str, Any]:
    body = {"templateID": sandbox.body["templateID"], "sandboxID": sandbox.id, "clientID": "c", "domain": None}
    return body | {"envdVersion": ENVD_VERSION, "envdAccessToken": sandbox.token}


def _detail(sandbox: Sandbox) -> dict[str, Any]:
    return {
        "templateID": sandbox.body["templateID"],
        "sandboxID": sandbox.id,
        "clientID": "c",
        "startedAt": datetime.fromtimestamp(sandbox.began, UTC).isoformat(),
        "endAt": datetime.fromtimestamp(sandbox.deadline, UTC).isoformat(),
        "cpuCount": sandbox.body["cpuCount"],
        "memoryMB": sandbox.body["memoryMB"],
        "diskSizeMB": 512,
        "metadata": sandbox.metadata,
        "state": sandbox.state,
        "envdVersion": ENVD_VERSION,
    }
