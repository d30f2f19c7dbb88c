"""Containers, networks and volumes of Docker Compose projects, through the Engine API; no Docker client is needed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from console.records.sandbox_ledger import Entry
from console.trials.finders import GONE, THERE, UNKNOWN, Sighting, elsewhere

_LABEL = "com.docker.compose.project"
_DEFAULT = "unix:///var/run/docker.sock"
_REQUEST_LIMIT = 15.0
_TRIES = (0.0, 0.5, 1.0, 2.0)


def docker_address() -> str:
    """Where the daemon listens: `DOCKER_HOST`, else that of the current context, else the usual socket."""
    if host := os.environ.get("DOCKER_HOST"):
        return host
    directory = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    try:
        name = os.environ.get("DOCKER_CONTEXT") or json.loads((directory / "config.json").read_text())["currentContext"]
        digest = hashlib.sha256(name.encode()).hexdigest()
        meta = json.loads((directory / "contexts" / "meta" / digest / "meta.json").read_text())
        return str(meta["Endpoints"]["docker"]["Host"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return _DEFAULT


class DockerFinder:
    """See `console.trials.finders.Finder`; `ids` are `<collection>/<id>` of the Engine API."""

    async def look(self, entries: Sequence[Entry]) -> dict[str, Sighting]:
        """Ask each daemon once for everything that has a project."""
        found: dict[str, Sighting] = {}
        daemons: dict[str, list[Entry]] = {}
        for entry in entries:
            address = entry.made.where or _DEFAULT
            other = elsewhere(entry.made) if address.startswith("unix:") else None
            if other is not None:
                found[entry.name] = other
            else:
                daemons.setdefault(address, []).append(entry)
        for address, members in daemons.items():
            try:
                async with _client(address) as client:
                    projects = await _projects(client)
            except (httpx.HTTPError, OSError, ValueError, KeyError, TypeError) as error:
                why = f"the Docker daemon at {address} cannot be asked: {' '.join(str(error).split())[:200]}"
                found |= {entry.name: Sighting(state=UNKNOWN, why=why) for entry in members}
                continue
            for entry in members:
                ids = projects.get(entry.made.ref, [])
                found[entry.name] = Sighting(state=THERE if ids else GONE, ids=tuple(ids))
        return found

    async def remove(self, entry: Entry, seen: Sighting) -> Sighting:
        """Containers by force, then networks and volumes."""
        why = ""
        for pause in _TRIES:
            await asyncio.sleep(pause)
            try:
                async with _client(entry.made.where or _DEFAULT) as client:
                    for one in seen.ids:
                        path = f"/{one}" + ("?force=1&v=1" if one.startswith("containers/") else "")
                        answer = await client.delete(path)
                        if answer.status_code not in (200, 204, 404):
                            why = f"the Docker daemon: {' '.join(answer.text.split())[:200]}"
            except (httpx.HTTPError, OSError, ValueError) as error:
                why = f"the Docker daemon: {' '.join(str(error).split())[:200]}"
            seen = (await self.look([entry]))[entry.name]
            if seen.state == GONE:
                return seen
        return Sighting(state=seen.state, ids=seen.ids, why=seen.why or why)


async def _projects(client: httpx.AsyncClient) -> dict[str, list[str]]:
    """Project to what it has: containers first, so that removing goes in order."""
    filters = {"filters": json.dumps({"label": [_LABEL]})}
    found: dict[str, list[str]] = {}

    def take(rows: list[dict[str, Any]] | None, collection: str, name: str) -> None:
        for row in rows or []:
            project = (row.get("Labels") or {}).get(_LABEL)
            if isinstance(project, str):
                found.setdefault(project, []).append(f"{collection}/{row[name]}")

    take(await _get(client, "/containers/json", filters | {"all": "1"}), "containers", "Id")
    take(await _get(client, "/networks", filters), "networks", "Id")
    take((await _get(client, "/volumes", filters))["Volumes"], "volumes", "Name")
    return found


async def _get(client: httpx.AsyncClient, path: str, params: dict[str, str]) -> Any:
    answer = await client.get(path, params=params)
    answer.raise_for_status()
    return answer.json()


def _client(address: str) -> httpx.AsyncClient:
    """Raises ValueError for an address of a kind that is not spoken here."""
    scheme, _, rest = address.partition("://")
    if scheme == "unix":
        transport = httpx.AsyncHTTPTransport(uds=rest)
        return httpx.AsyncClient(transport=transport, base_url="http://docker", timeout=_REQUEST_LIMIT)
    if scheme not in ("tcp", "http", "https"):
        raise ValueError("only unix:// and tcp:// are spoken here; use `docker compose -p PROJECT down` there")
    if scheme == "https" or os.environ.get("DOCKER_TLS_VERIFY"):
        certificates = Path(os.environ.get("DOCKER_CERT_PATH") or Path.home() / ".docker")
        context = ssl.create_default_context(cafile=certificates / "ca.pem")
        context.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
        return httpx.AsyncClient(base_url=f"https://{rest}", timeout=_REQUEST_LIMIT, trust_env=False, verify=context)
    return httpx.AsyncClient(base_url=f"http://{rest}", timeout=_REQUEST_LIMIT, trust_env=False)
