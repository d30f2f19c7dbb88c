"""Templates: names, tags and builds. A build copies files and runs commands in a sandbox of its own, as E2B does."""

from __future__ import annotations

import asyncio
import io
import shutil
import tarfile
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .faults import RefusedError
from .sandboxes import PATH, Sandbox, make_tree

LOGS_A_PAGE = 100


class BuildFailedError(Exception):
    """A step failed; the message is the build's reason."""


class Build:
    """One build.

    Attributes:
        status: waiting, building, ready or error; reason: why it failed; logs: its lines.
        tree: its files, once it is ready; env: of the image.
    """

    def __init__(self, template: str, tree: Path, cpus: int, memory_mb: int) -> None:
        self.id, self.template, self.tree = str(uuid.uuid4()), template, tree
        self.cpus, self.memory_mb = cpus, memory_mb
        self.status, self.reason = "waiting", ""
        self.logs: list[str] = []
        self.env: dict[str, str] = {}

    def answer(self, offset: int) -> dict[str, Any]:
        """The status as the service tells it, with at most a page of the log from `offset`."""
        now = datetime.now(UTC).isoformat()
        entries = [{"timestamp": now, "message": line, "level": "info"} for line in self.logs[offset:][:LOGS_A_PAGE]]
        body = {"logs": [], "logEntries": entries, "templateID": self.template, "buildID": self.id}
        body["status"] = self.status
        return body | ({"reason": {"message": self.reason, "logEntries": []}} if self.status == "error" else {})

    async def run(self, order: Mapping[str, Any], files: Mapping[str, bytes], missing: set[str]) -> None:
        """From the order of a build to its end."""
        self.status = "building"
        sandbox = Sandbox({"timeout": 600}, self.tree)
        try:
            image = order.get("fromImage") or order.get("fromTemplate") or ""
            if image in missing:
                raise BuildFailedError(f"failed to pull image {image}: manifest unknown: image {image} not found")
            await asyncio.to_thread(make_tree, self.tree)
            await sandbox.start()
            await self._steps(sandbox, order.get("steps") or [], files)
            self.status = "ready"
        except BuildFailedError as failed:
            self.status, self.reason = "error", str(failed)
            self.logs.append(f"build failed: {failed}")
        finally:
            kept = await asyncio.to_thread(_set_aside, self.tree)
            await sandbox.end("killed")
            kept.rename(self.tree)

    async def _steps(self, sandbox: Sandbox, steps: list[dict[str, Any]], files: Mapping[str, bytes]) -> None:
        user, workdir = "root", "/"
        self.env = {"PATH": PATH}
        for number, step in enumerate(steps, 1):
            kind, args = step["type"].upper(), step.get("args") or []
            self.logs.append(f"[{number}/{len(steps)}] {kind} {' '.join(args)}"[:300])
            if kind == "USER":
                user = args[0]
                if sandbox.home(user) is None:
                    raise BuildFailedError(f"unable to find user {user}: no matching entries in passwd file")
            elif kind == "WORKDIR":
                workdir = str(Path(workdir, args[0]))
                _made(sandbox, workdir)
            elif kind in ("ENV", "ARG"):
                self.env |= dict(zip(args[::2], args[1::2]))
            elif kind == "COPY":
                if step["filesHash"] not in files:
                    raise BuildFailedError(f"failed to copy {args[0]}: its files were not uploaded")
                await asyncio.to_thread(_copy, sandbox, files[step["filesHash"]], args, workdir)
            elif kind == "RUN":
                await self._command(sandbox, args[0], args[1] if len(args) > 1 else user, workdir)

    async def _command(self, sandbox: Sandbox, command: str, user: str, workdir: str) -> None:
        config = SimpleNamespace(cmd="/bin/bash", args=["-l", "-c", command], envs=self.env, cwd=workdir)
        process = await sandbox.run(config, user, 600)
        heard = process.listen()
        while True:
            kind, value = await heard.get()
            if kind == "end":
                break
            assert isinstance(value, bytes)
            self.logs += value.decode(errors="replace").splitlines()
        if value:
            raise BuildFailedError(f"failed to run command '{command[:200]}': exit status {value}")


def _set_aside(tree: Path) -> Path:
    """Under another name, so that the end of the build's sandbox does not take it."""
    kept = tree.with_name(tree.name + ".kept")
    tree.mkdir(parents=True, exist_ok=True)
    tree.rename(kept)
    return kept


def _made(sandbox: Sandbox, path: str) -> Path:
    place = sandbox.host_path(path)
    assert place is not None
    place.mkdir(parents=True, exist_ok=True)
    return place


def _copy(sandbox: Sandbox, archive: bytes, args: list[str], workdir: str) -> None:
    """As Docker copies: a directory's content goes into the destination, a file to it or, where it ends in /, below."""
    source, destination = args[0], str(Path(workdir, args[1])) + ("/" if args[1].endswith(("/", ".")) else "")
    scratch = sandbox.root / "run/.copied"
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(scratch, filter="tar")
    found = [scratch] if source.rstrip("/") in (".", "") else sorted(scratch.glob(source.rstrip("/")))
    if not found:
        raise BuildFailedError(f"failed to copy {source}: not found")
    for path in found:
        if path.is_dir():
            shutil.copytree(path, _made(sandbox, destination), symlinks=True, dirs_exist_ok=True)
            continue
        below = destination.endswith("/") or len(found) > 1
        place = _made(sandbox, destination) / path.name if below else sandbox.root / destination.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place, follow_symlinks=False)
        if len(args) > 3 and args[3]:
            place.chmod(int(args[3], 8))
    shutil.rmtree(scratch)


class Images:
    """The team's templates.

    Attributes:
        builds: by id; files: uploaded archives by hash; missing: images that no registry has.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ids: dict[str, str] = {}
        self._tags: dict[str, dict[str, str]] = {}
        self.builds: dict[str, Build] = {}
        self.files: dict[str, bytes] = {}
        self.missing: set[str] = set()

    def request(self, body: Mapping[str, Any]) -> Build:
        """A new build of `name` or `name:tag`; the tag points at it from now on, as with E2B."""
        name, _, tag = body["name"].partition(":")
        template = self._ids.setdefault(name, "tpl" + uuid.uuid4().hex[:17])
        for other in (self._tags.get(name) or {}).items():
            if other[0] == (tag or "default") and self.builds[other[1]].status in ("waiting", "building"):
                raise RefusedError(409, f"a build of {body['name']} is already in progress")
        build = Build(
            template, self._directory / uuid.uuid4().hex, body.get("cpuCount") or 2, body.get("memoryMB") or 512
        )
        self.builds[build.id] = build
        self._tags.setdefault(name, {})[tag or "default"] = build.id
        return build

    def tags(self, name: str) -> dict[str, str]:
        """Tag to build.

        Raises:
            RefusedError: 404, no such template.
        """
        if name not in self._tags:
            raise RefusedError(404, f"template '{name}' not found")
        return self._tags[name]

    def id_of(self, name: str) -> str:
        self.tags(name)
        return self._ids[name]

    def find(self, reference: str) -> Build:
        """A build that can be launched, by `name`, `name:tag` or `name:build`.

        Raises:
            RefusedError: 404, as E2B says it.
        """
        name, _, tag = reference.partition(":")
        tags = self.tags(name)
        build = self.builds.get(tags.get(tag or "default", tag))
        if build is None or build.status != "ready":
            raise RefusedError(404, f"tag '{tag or 'default'}' does not exist for template '{name}'")
        return build
