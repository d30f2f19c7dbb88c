"""Agents' command-line programs from the npm registry, installed once a machine and version, outside the repository."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

INSTALL_TIMEOUT = 150.0


def npm_cli(package: str, version: str) -> Path:
    """The package's program, ready to run.

    Test workers that ask at the same time install it once; an install that was cut off leaves nothing that is taken
    for whole. The test is skipped only where there is no node or npm; a registry that fails is a failure.
    """
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")
    name = re.sub(r"[^A-Za-z0-9.]+", "-", package).strip("-")
    installed = _cache() / f"{name}-{version}"
    with (installed.parent / f"{installed.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not installed.is_dir():
            _install(f"{package}@{version}", installed)
    return _program(installed / "node_modules", package)


def _cache() -> Path:
    """The user's cache, private to the user; a directory of the tests' own in it."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    cache = (Path(base) if base else Path.home() / ".cache") / "quarterdeck-tests" / "npm"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    return cache


def _install(spec: str, installed: Path) -> None:
    """Install into a directory beside and rename it: the final name stands for a whole install."""
    with tempfile.TemporaryDirectory(prefix=".installing-", dir=installed.parent) as scratch:
        target = Path(scratch) / "whole"
        target.mkdir()
        try:
            result = subprocess.run(
                ["npm", "install", "--prefix", str(target), "--no-audit", "--no-fund", "--loglevel=error", spec],
                cwd=target,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=INSTALL_TIMEOUT,
                env=os.environ | {"npm_config_update_notifier": "false"},
            )
        except subprocess.TimeoutExpired:
            pytest.fail(f"npm install {spec} took longer than {INSTALL_TIMEOUT:g} s; is the registry reachable?")
        if result.returncode:
            pytest.fail(f"npm install {spec} failed: {result.stderr.strip()[-1000:]}")
        target.rename(installed)


def _program(modules: Path, package: str) -> Path:
    """The program that the package calls by its own name, or its only one."""
    declared = json.loads((modules / package / "package.json").read_text())["bin"]
    own = package.rpartition("/")[2]
    name = own if isinstance(declared, str) or own in declared else next(iter(declared))
    return modules / ".bin" / name
