"""A daemon that speaks the part of Docker's Engine API that finding and removing needs, on a unix socket."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

LABEL = "com.docker.compose.project"


class DockerApi:
    """`with DockerApi(path) as docker:`

    Attributes:
        things: `containers/<id>`, `networks/<id>`, `volumes/<name>` to their project; deleted: in order.
        stubborn: what is not removed, whatever is answered.
    """

    def __init__(self, path: Path) -> None:
        self.address = f"unix://{path}"
        self.things: dict[str, str] = {}
        self.deleted: list[str] = []
        self.stubborn: set[str] = set()
        routes = [
            Route("/containers/json", self._list("containers", "Id")),
            Route("/networks", self._list("networks", "Id")),
            Route("/volumes", self._list("volumes", "Name")),
            Route("/{kind}/{id}", self._delete, methods=["DELETE"]),
        ]
        self._server = uvicorn.Server(
            uvicorn.Config(Starlette(routes=routes), uds=str(path), log_level="critical", lifespan="off")
        )
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve()))

    def _list(self, kind: str, name: str):
        async def answer(request: Request) -> Response:
            query = request.query_params
            assert json.loads(query["filters"]) == {"label": [LABEL]}
            assert kind != "containers" or query["all"] == "1"
            rows = [
                {name: thing.partition("/")[2], "Labels": {LABEL: project}}
                for thing, project in self.things.items()
                if thing.startswith(kind)
            ]
            return JSONResponse({"Volumes": rows or None} if kind == "volumes" else rows)

        return answer

    async def _delete(self, request: Request) -> Response:
        thing = f"{request.path_params['kind']}/{request.path_params['id']}"
        self.deleted.append(thing)
        project = self.things.get(thing)
        if project is None:
            return JSONResponse({"message": "no such thing"}, 404)
        if thing in self.stubborn or (
            thing.startswith("networks")
            and any(t.startswith("containers") and p == project for t, p in self.things.items())
        ):
            return JSONResponse({"message": f"{thing} has active endpoints"}, 409)
        del self.things[thing]
        return Response(status_code=204)

    def __enter__(self) -> DockerApi:
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, *error: object) -> None:
        self._server.should_exit = True
        self._thread.join(30)
