"""Sandboxes: a private file tree, a process namespace that lives as long as the sandbox, and its processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import posixpath
import shutil
import signal
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from console.trials.skeleton import find_bubblewrap

_DIRECTORIES = (
    "app",
    "etc/profile.d",
    "home/user",
    "opt",
    "root",
    "run",
    "srv",
    "var/lib",
    "var/log",
    "var/tmp",
    "tmp",
)
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000:user:/home/user:/bin/bash\n",
    "etc/group": "root:x:0:\nuser:x:1000:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "etc/profile": "export PATH=/usr/local/bin:/usr/bin:/bin\n"
    'for part in /etc/profile.d/*.sh; do [ -r "$part" ] && . "$part"; done\n',
}
_FROM_HOST = ("usr", "etc/alternatives", "etc/ld.so.cache", "etc/ssl")
_MERGED = ("bin", "sbin", "lib", "lib64")
PATH = "/usr/local/bin:/usr/bin:/bin"


def make_tree(root: Path) -> None:
    """The files of an image that has nothing but the host's programs, which are bound into it."""
    for name in _DIRECTORIES:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name, text in _FILES.items():
        (root / name).write_text(text)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)


class Process:
    """One command. It lives on when nobody listens, and what it writes then is lost, as with envd.

    Attributes:
        pid: by which it is found again; config: as it was asked for; code: exit status, None while it runs.
    """

    def __init__(self, process: asyncio.subprocess.Process, config: Any, limit: float | None) -> None:
        self.pid, self.config, self.code = process.pid, config, None
        self.began = time.monotonic()
        self._process = process
        self._listeners: list[asyncio.Queue[tuple[str, bytes | int]]] = []
        self.over = asyncio.create_task(self._run(limit))

    def listen(self) -> asyncio.Queue[tuple[str, bytes | int]]:
        """What happens from now on: ("stdout" or "stderr", bytes), then ("end", exit status) or ("lost", 0)."""
        queue: asyncio.Queue[tuple[str, bytes | int]] = asyncio.Queue()
        self._listeners.append(queue)
        return queue

    def tell(self, kind: str, value: bytes | int) -> None:
        for queue in self._listeners:
            queue.put_nowait((kind, value))

    async def _run(self, limit: float | None) -> None:
        async def read(stream: asyncio.StreamReader, name: str) -> None:
            while data := await stream.read(32768):
                self.tell(name, data)

        out, err = self._process.stdout, self._process.stderr
        assert out is not None and err is not None
        try:
            async with asyncio.timeout(limit):
                await asyncio.gather(read(out, "stdout"), read(err, "stderr"))
                code = await self._process.wait()
        except TimeoutError:
            self.signal(signal.SIGKILL)
            code = await self._process.wait()
        self.code = code if code >= 0 else 128 - code
        self.tell("end", self.code)

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


class Sandbox:
    """One sandbox.

    Attributes:
        id, body: as created; root: its files on this machine; deadline: when its lease ends, Unix seconds.
        internet: False once a network policy forbids it.
        ended: why it is gone: killed, lease, None while it is there.
    """

    def __init__(self, body: Mapping[str, Any], root: Path) -> None:
        self.id = "i" + uuid.uuid4().hex[:19]
        self.token = "tok-" + uuid.uuid4().hex
        self.body, self.root = dict(body), root
        self.began = time.time()
        self.deadline = self.began + (body.get("timeout") or 15)
        self.internet = body.get("allow_internet_access") is not False
        self.state = "running"
        self.ended: str | None = None
        self.renewals = 0
        self.processes: dict[int, Process] = {}
        self._init = 0
        self._holder: asyncio.subprocess.Process | None = None

    @property
    def metadata(self) -> dict[str, str]:
        return self.body.get("metadata") or {}

    @property
    def session(self) -> str:
        """Harbor's name for it, "" for a sandbox that was not Harbor's."""
        return self.metadata.get("session_id", "")

    async def start(self) -> None:
        """Its namespaces, held by a process that sleeps. The tree must be there."""
        found = find_bubblewrap()
        assert found is not None, "bubblewrap is not installed"
        (info, told), (ready, up) = os.pipe(), os.pipe()
        arguments = [
            "--die-with-parent",
            "--unshare-user",
            "--unshare-pid",
            "--unshare-ipc",
            "--uid",
            "0",
            "--gid",
            "0",
        ]
        arguments += ["--info-fd", str(told), "--bind", str(self.root), "/"]
        for name in _FROM_HOST:
            if Path("/", name).exists():
                arguments += ["--ro-bind", f"/{name}", f"/{name}"]
        for name in _MERGED:
            if Path("/", name).is_symlink():
                arguments += ["--symlink", str(Path("/", name).readlink()), f"/{name}"]
        arguments += ["--proc", "/proc", "--dev", "/dev", "--cap-add", "ALL", "--"]
        # It tells when it is there: until then its files are not.
        arguments += ["/usr/bin/bash", "-c", f"echo up >&{up}; exec {up}>&- sleep infinity"]
        environment = {"PATH": PATH} | ({"LD_LIBRARY_PATH": found[1]} if found[1] else {})
        try:
            holding = asyncio.ensure_future(
                asyncio.create_subprocess_exec(
                    found[0], *arguments, pass_fds=[told, up], env=environment, stdin=asyncio.subprocess.DEVNULL
                )
            )
            try:
                self._holder = await asyncio.shield(holding)
            except asyncio.CancelledError:  # cut off here, it would leave a process that nobody knows
                self._holder = await holding
                raise
        finally:
            os.close(told)
            os.close(up)
        try:
            said = await asyncio.to_thread(_read_all, info)
            await asyncio.to_thread(_read_all, ready)
        finally:
            os.close(info)
            os.close(ready)
        self._init = json.loads(said)["child-pid"]

    def home(self, user: str) -> str | None:
        """The home of a user of the image, None for one that it does not have."""
        for line in (self.root / "etc/passwd").read_text().splitlines():
            fields = line.split(":")
            if fields[0] == user:
                return fields[5]
        return None

    async def run(self, config: Any, user: str, limit: float | None) -> Process:
        """Start a command; it is killed after `limit` seconds, None for no limit."""
        home = self.home(user) or "/"
        environment = {"PATH": PATH, "HOME": home, "USER": user, "LOGNAME": user}
        environment |= dict(self.body.get("envVars") or {}) | dict(config.envs)
        command = ["/usr/bin/nsenter", "-U", "-m", "-p", "-i", "--preserve-credentials", "-t", str(self._init), "--"]
        if not self.internet:
            command += ["/usr/bin/unshare", "--net", "--"]
        command += ["/bin/sh", "-c", 'cd -- "$0" && exec "$@"', config.cwd or home, config.cmd, *config.args]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        running = Process(process, config, limit)
        self.processes[running.pid] = running
        running.over.add_done_callback(lambda _: self.processes.pop(running.pid, None))
        return running

    def host_path(self, path: str) -> Path | None:
        """Where a path of the sandbox lies on this machine, links followed inside it; None for a loop of links."""
        parts, at = [part for part in path.split("/") if part], Path("/")
        for _ in range(400):
            if not parts:
                return self.root / at.relative_to("/")
            step = parts.pop(0)
            here = self.root / (at / step).relative_to("/")
            if step == "..":
                at = at.parent
            elif step != "." and here.is_symlink():
                target = str(here.readlink())
                at = Path("/") if target.startswith("/") else at
                parts = [part for part in target.split("/") if part] + parts
            elif step != ".":
                at = at / step
        return None

    def in_working_directory(self, path: str, user: str) -> str:
        return posixpath.normpath(posixpath.join(self.home(user) or "/", path))

    async def end(self, why: str) -> None:
        """It and everything in it are gone; whoever listens to a process is told so. Idempotent."""
        if self.ended is not None:
            return
        self.ended = why
        for process in list(self.processes.values()):
            process.tell("lost", 0)
        if self._holder is not None:
            with contextlib.suppress(ProcessLookupError):
                if self._init:
                    os.kill(self._init, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                self._holder.kill()
            await self._holder.wait()
        await asyncio.to_thread(shutil.rmtree, self.root, True)


def _read_all(fd: int) -> bytes:
    told = b""
    while data := os.read(fd, 4096):
        told += data
    return told
