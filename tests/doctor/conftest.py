"""A host made of files, and doctor in a process of its own under conditions that are really so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from console.doctor.case import Case, Host
from console.doctor.report import Check

ROOT = Path(__file__).resolve().parents[2]
NOW = 1_900_000_000.0
Files = dict[str, str]


@pytest.fixture
def host(tmp_path: Path) -> Callable[..., Host]:
    """Makes a host whose file system has just these files; other facts as given."""

    def make(files: Files | None = None, **facts: Any) -> Host:
        root = tmp_path / "root"
        root.mkdir(exist_ok=True)
        for name, text in (files or {}).items():
            path = root / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return Host(**({"root": root, "now": NOW, "uid": 1000, "user": "ada", "env": {}} | facts))

    return make


@pytest.fixture
def levels() -> Callable[..., list[tuple[str, str]]]:
    """What a check says about a host: its codes and levels."""

    def look(check: Callable[[Case], Iterable[Check]], host: Host, **facts: Any) -> list[tuple[str, str]]:
        return [(made.code, made.level) for made in check(Case(host=host, **facts))]

    return look


@pytest.fixture
def doctor(tmp_path: Path) -> Callable[..., tuple[int, dict[str, dict[str, str]]]]:
    """Runs the command, its words behind `before` (a shell prefix as words); its exit code and checks by code."""

    def run(*words: str, before: tuple[str, ...] = (), **variables: str) -> tuple[int, dict[str, dict[str, str]]]:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("E2B_", "DOCKER_"))}
        env |= {"PYTHONPATH": str(ROOT), "QUARTERDECK_STATE_DIR": str(tmp_path / "state")} | variables
        command = [*before, sys.executable, "-m", "console", "doctor", "--json", *words]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.stdout, done.stderr
        told = json.loads(done.stdout)
        assert told["ok"] == (done.returncode == 0)
        return done.returncode, {check["code"]: check for check in told["checks"]}

    return run
