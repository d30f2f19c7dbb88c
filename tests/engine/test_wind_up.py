"""What a run's last words say of its sandboxes, when it does not wait for the end of its own end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from console.engine.cause import STOPPED
from console.engine.supervisor import Engine
from console.journal import events as ev
from console.journal.reader import Journal
from console.training.options import parse


@pytest.mark.parametrize(
    ("live", "says"),
    [
        (0, []),
        (1, ["1 sandbox is still being removed as the engine ends: `reap` tells what is left"]),
        (3, ["3 sandboxes are still being removed as the engine ends: `reap` tells what is left"]),
    ],
)
async def test_a_hurried_end_names_the_sandboxes_that_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: int, says: list[str]
) -> None:
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    words = [
        "config.model_name=m", "config.learning_rate=1e-3", "config.max_tokens=8", f"config.log_path={run_dir}",
        f"config.dataset_builder.tasks_dir={tmp_path}", f"harbor.trial_config={tmp_path}/trial.json",
    ]  # fmt: skip
    options = parse(words)
    engine = Engine(options, run_dir, "run-1", "stop")
    hangs = asyncio.Event()
    monkeypatch.setattr(engine, "_take_down", hangs.wait)
    engine._totals.sandboxes = live
    engine._ending.begin(urgent=True)
    engine._ending.hurry()
    engine.end(STOPPED)
    await engine._wind_up()
    hangs.set()
    events = list(Journal(run_dir / "journal").events())
    assert [e.text for e in events if isinstance(e, ev.Note)] == says
    assert isinstance(events[-1], ev.RunFinished) and events[-1].status == "stopped"
