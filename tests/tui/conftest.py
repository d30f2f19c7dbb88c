"""What tests of the console share: a recording made by the real writer, and the screen as text."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "control"))


def _load(name: str, path: Path) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


recordings = _load("quarterdeck_recordings", TESTS / "recordings" / "make.py")


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of day do not depend on the machine."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 15 steps of 4 groups of 8, with a trial that was held in step 12."""
    path = tmp_path_factory.mktemp("recording") / "demo"
    recordings.make(path)
    return path


@pytest.fixture(scope="session")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 15 steps with operators, alarms, and content of the trial that was held."""
    path = tmp_path_factory.mktemp("operated") / "demo"
    recordings.make(path, recordings.Plan(operated=True, content=True))
    return path


@pytest.fixture
def screen_lines():
    """The lines that an app under test shows, each exactly as wide as the screen."""

    def lines(app) -> list[str]:
        return ["".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()]

    return lines


@pytest.fixture
def matches_snapshot(request: pytest.FixtureRequest):
    """Compare text with the file of that name; with UPDATE_SNAPSHOTS set, write it."""

    def check(name: str, lines: list[str]) -> None:
        path = Path(__file__).parent / "snapshots" / f"{name}.txt"
        text = "\n".join(line.rstrip() for line in lines) + "\n"
        if os.environ.get("UPDATE_SNAPSHOTS"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; UPDATE_SNAPSHOTS=1 writes it anew"

    return check
