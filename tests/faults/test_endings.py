"""Ends from outside, as job runners and service managers make them, while sandboxes do not go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from console.control.runs import run_at
from console.errors import RecordingError
from console.journal import events as ev
from console.journal.reader import Journal
from console.records.run_dir import RunRecord

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def stuck_run(embedded_gateway: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A headless run with a trial at work whose sandbox does not go while `held` stands."""
    held, run_dir = tmp_path / "held", tmp_path / "run"
    held.touch()
    monkeypatch.setenv("QUARTERDECK_TEST_STUCK", str(held))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT, ROOT / "tests/faults"))))
    trial = json.loads((ROOT / "configs/trials/terminal-bwrap.json").read_text())
    trial["environment"]["import_path"] = "stuck_rooms:StuckRoom"
    (tmp_path / "trial.json").write_text(json.dumps(trial))
    command = [
        sys.executable, "-m", "console", "train", "--headless", f"config.base_url={embedded_gateway}",
        "config.model_name=quarterdeck/midshipman", "config.renderer_name=qwen3_instruct", "config.lora_rank=8",
        "config.learning_rate=1e-3", "config.max_tokens=24", "config.loss_fn=ppo", "config.ttl_seconds=None",
        f"config.log_path={run_dir}", f"config.dataset_builder.tasks_dir={ROOT / 'configs/tasks'}",
        "config.dataset_builder.groups_per_batch=1", "config.dataset_builder.group_size=2", "config.max_steps=1",
        f"harbor.trial_config={tmp_path / 'trial.json'}",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        _wait(lambda: _phase(run_dir) in ("setup", "agent") or process.poll() is not None, 200)
        assert process.poll() is None, process.communicate()[1][-2000:]
        yield process, run_dir, held
    finally:
        held.unlink(missing_ok=True)
        process.kill()
        process.communicate(timeout=30)


def _phase(run_dir: Path) -> str:
    try:
        groups = RunRecord(run_dir).view_at_end().state.groups
    except RecordingError:
        return ""
    return groups[0].trials[0].phase if groups else ""


def _wait(condition, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_an_interrupt_ends_the_run_though_a_sandbox_does_not_go(stuck_run):
    """The journal has its last event; the runner stays with its sandboxes, and goes when they are gone."""
    process, run_dir, held = stuck_run
    runners = [child.pid for child in psutil.Process(run_at(run_dir).pid).children(recursive=True)]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    events = list(Journal(run_dir / "journal").events())
    assert isinstance(events[-1], ev.RunFinished) and events[-1].status == "stopped"
    assert any(isinstance(e, ev.Note) and "still being removed" in e.text for e in events)
    held.unlink()
    _wait(lambda: not any(psutil.pid_exists(pid) and _alive(pid) for pid in runners), 40)


def test_a_second_interrupt_does_not_wait_at_all(stuck_run):
    process, run_dir, _ = stuck_run
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    said = ""
    while "stopping the run in order" not in said:
        said = process.stderr.readline()
        assert said
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "again: ending without waiting" in err
    assert isinstance(list(Journal(run_dir / "journal").events())[-1], ev.RunFinished)


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
