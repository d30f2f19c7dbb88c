"""Jobs that tests of the screens of benchmarks look at."""

from __future__ import annotations

from pathlib import Path

import pytest
from look_jobs import first_job, second_job
from look_stage import reader_of

from console.tui.bench.reading import Survey


@pytest.fixture(scope="session")
def two_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the jobs `a` and `b`. Tests must not write into it."""
    path = tmp_path_factory.mktemp("look")
    first_job(path / "a")
    second_job(path / "b")
    return path


@pytest.fixture(scope="session")
def survey(two_jobs: Path) -> Survey:
    """Both of them, read."""
    return reader_of([two_jobs / "a"], [two_jobs / "b"]).read()


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state directory of the test's own."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
