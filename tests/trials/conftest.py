"""Sandboxes and small Harbor tasks for the tests of this folder."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HARBOR_TELEMETRY", "0")
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

TASK_TOML = """
schema_version = "1.4"
[agent]
timeout_sec = 60
[verifier]
timeout_sec = 60
[environment]
network_mode = "public"
"""


def _processes_naming(text: str) -> list[str]:
    """Command lines of live processes that contain `text`, this process and its parents left out."""
    own = set()
    pid = os.getpid()
    while pid > 1:
        own.add(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in own:
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if text in line:
                found.append(f"{entry.name} {line}")
    return found


async def _wait_until(condition: Callable[[], object], limit: float = 20.0) -> None:
    """Until `condition` is true; fails after `limit` seconds."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "condition never became true"
        await asyncio.sleep(0.02)


@pytest.fixture
def processes_naming() -> Callable[[str], list[str]]:
    return _processes_naming


@pytest.fixture
def wait_until() -> Callable[..., Awaitable[None]]:
    return _wait_until


@pytest.fixture
def unique() -> str:
    """A name that no other test and no other run uses, to find one's own processes by."""
    return f"t{secrets.token_hex(6)}"


@pytest.fixture
def make_task(tmp_path: Path) -> Callable[..., Path]:
    """Write a Harbor task: `make_task("name", solve="...", test="...")`."""

    def make(name: str, solve: str = "true", test: str = "echo 1 > /logs/verifier/reward.txt", toml: str = "") -> Path:
        task = tmp_path / "tasks" / name
        for folder in ("environment", "solution", "tests"):
            (task / folder).mkdir(parents=True)
        (task / "task.toml").write_text(TASK_TOML + toml)
        (task / "instruction.md").write_text("Do it.\n")
        (task / "environment" / "Dockerfile").write_text("FROM debian\nWORKDIR /app\n")
        (task / "environment" / "given.txt").write_text("given\n")
        (task / "solution" / "solve.sh").write_text(f"#!/bin/bash\n{solve}\n")
        (task / "tests" / "test.sh").write_text(f"#!/bin/bash\n{test}\n")
        return task

    return make


@pytest.fixture
async def make_environment(tmp_path: Path, unique: str) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """Start a `BwrapEnvironment`: `await make_environment(processes=8)`; stopped at the end of the test."""
    from harbor.models.task.config import EnvironmentConfig, NetworkPolicy
    from harbor.models.trial.paths import TrialPaths

    from console.trials.bwrap import BwrapEnvironment

    made: list[BwrapEnvironment] = []

    async def make(start: bool = True, policy: str = "public", hosts: tuple[str, ...] = (), **kwargs: Any) -> Any:
        source = tmp_path / "environment"
        source.mkdir(exist_ok=True)
        (source / "Dockerfile").write_text("FROM debian\n")
        (source / "given.txt").write_text("given\n")
        paths = TrialPaths(tmp_path / f"trial{len(made)}")
        paths.mkdir()
        mounts = [
            {"type": "bind", "source": str(paths.agent_dir), "target": "/logs/agent"},
            {"type": "bind", "source": str(paths.verifier_dir), "target": "/logs/verifier"},
        ]
        environment = BwrapEnvironment(
            environment_dir=source,
            environment_name="test",
            session_id=f"{unique}-{len(made)}",
            trial_paths=paths,
            task_env_config=EnvironmentConfig(),
            auto_mounts=mounts,
            network_policy=NetworkPolicy(network_mode=policy, allowed_hosts=list(hosts)),
            root_dir=tmp_path / "roots",
            **kwargs,
        )
        made.append(environment)
        if start:
            await environment.start(force_build=False)
        return environment

    yield make
    for environment in made:
        await environment.stop(delete=True)
