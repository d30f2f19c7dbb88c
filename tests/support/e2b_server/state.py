"""What the team has: its plan, its sandboxes and templates, and what becomes of them."""

from __future__ import annotations

import asyncio
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .faults import Faults, RefusedError
from .images import Images
from .sandboxes import Sandbox

KEY = "e2b_0123456789abcdef0123456789abcdef01234567"


@dataclass
class Plan:
    """Limits of an account: sandboxes at once, and seconds that one may live whatever is renewed."""

    concurrent: int = 20
    lifetime: int = 3600


class State:
    """Everything behind the API.

    Attributes:
        sandboxes: live ones by id; ended: those that were there once.
        calls: how often each operation was asked for; most: sandboxes at once, at most.
    """

    def __init__(self, directory: Path, plan: Plan, key: str) -> None:
        self.directory, self.plan, self.key = directory, plan, key
        self.faults = Faults()
        self.images = Images(directory / "images")
        self.sandboxes: dict[str, Sandbox] = {}
        self.ended: list[Sandbox] = []
        self.calls: Counter[str] = Counter()
        self.most = 0
        self.builds: set[asyncio.Task[None]] = set()
        (directory / "images").mkdir(parents=True, exist_ok=True)

    async def create(self, body: Mapping[str, Any]) -> Sandbox:
        """A new sandbox.

        Raises:
            RefusedError: over a limit of the plan, or no such template.
        """
        timeout = body.get("timeout") or 15
        if timeout > self.plan.lifetime:
            raise RefusedError(400, f"Timeout cannot be greater than {self.plan.lifetime // 3600} hours")
        build = self.images.find(body["templateID"])
        if len(self.sandboxes) >= self.plan.concurrent:
            raise RefusedError(
                429,
                "you have reached the maximum number of concurrent E2B sandboxes "
                f"({self.plan.concurrent}). If you need more, please contact us",
            )
        sandbox = Sandbox(body, self.directory / uuid.uuid4().hex)
        self.sandboxes[sandbox.id] = sandbox
        self.most = max(self.most, len(self.sandboxes))
        sandbox.body["cpuCount"], sandbox.body["memoryMB"] = build.cpus, build.memory_mb
        await asyncio.to_thread(shutil.copytree, build.tree, sandbox.root, symlinks=True)
        await sandbox.start()
        return sandbox

    def find(self, sandbox_id: str) -> Sandbox:
        """A live or paused sandbox.

        Raises:
            RefusedError: 404, there is none.
        """
        sandbox = self.sandboxes.get(sandbox_id)
        if sandbox is None:
            raise RefusedError(404, f"sandbox {sandbox_id} not found")
        return sandbox

    async def end(self, sandbox: Sandbox, why: str) -> None:
        if self.sandboxes.pop(sandbox.id, None) is not None:
            self.ended.append(sandbox)
        await sandbox.end(why)

    async def expire(self) -> None:
        """Ends the leases that are over, for ever."""
        while True:
            await asyncio.sleep(0.1)
            for sandbox in list(self.sandboxes.values()):
                if time.time() >= min(sandbox.deadline, sandbox.began + self.plan.lifetime):
                    await self.end(sandbox, "lease")

    async def close(self) -> None:
        for task in self.builds:
            task.cancel()
        await asyncio.gather(*self.builds, return_exceptions=True)
        for sandbox in list(self.sandboxes.values()):
            await sandbox.end("closed")  # what is left stays listed
