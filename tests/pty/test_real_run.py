"""The console on a real run, at a real terminal: started, killed, opened again, acted on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from console.control.runs import run_at

ROOT = Path(__file__).resolve().parents[2]
QUARTERDECK = "from console.cli import main; main()"


@pytest.fixture
def run_dir(tmp_path: Path):
    """Where the run goes; whatever is left of it is ended."""
    yield tmp_path / "run"
    info = run_at(tmp_path / "run")
    if info.alive():
        os.kill(info.pid, signal.SIGKILL)


def test_a_run_started_from_a_console_outlives_it(terminal, embedded_gateway, run_dir):
    words = [
        f"config.base_url={embedded_gateway}", "config.model_name=quarterdeck/midshipman",
        "config.renderer_name=qwen3_instruct", "config.learning_rate=1e-3", "config.max_tokens=32",
        "config.loss_fn=ppo", "config.ttl_seconds=None", f"config.log_path={run_dir}", "config.max_steps=90",
        f"config.dataset_builder.tasks_dir={ROOT / 'configs/tasks'}", "config.dataset_builder.epochs=90",
        "config.dataset_builder.groups_per_batch=1", "config.dataset_builder.group_size=2",
        f"harbor.trial_config={ROOT / 'configs/trials/terminal-bwrap.json'}",
    ]  # fmt: skip
    first = terminal(QUARTERDECK, "train", *words, columns=120, rows=40)
    first.until(lambda: " LIVE " in first.text, 60)
    first.until(lambda: "ROLLOUT" in first.text, 90)
    info = run_at(run_dir)
    first.signal(signal.SIGKILL)
    assert first.ends() == -signal.SIGKILL
    second = terminal(QUARTERDECK, "attach", info.run_id)
    second.until(lambda: " LIVE " in second.text and "g1" in second.text, 60)
    assert run_at(run_dir).pid == info.pid
    second.press("s")
    second.until(lambda: "stop" in second.text.lower(), 20)
    second.press("q")
    assert second.ends() == 0
    assert not second.damage
    deadline = time.monotonic() + 90
    while run_at(run_dir).alive() and time.monotonic() < deadline:
        time.sleep(0.2)
    ended = run_at(run_dir)
    assert (ended.state, ended.exit_code) == ("stopped", 3)
    third = terminal(QUARTERDECK, "replay", str(run_dir), "--speed", "max")
    third.until(lambda: "REPLAY" in third.text and "stopped, exit 3" in third.text, 60)
    third.press("x")
    third.pump(0.5)
    assert "Cancel" not in third.text
    third.press("q")
    assert third.ends() == 0


def test_an_engine_that_cannot_start_closes_the_console_with_one_line(terminal, embedded_gateway, run_dir):
    words = [
        f"config.base_url={embedded_gateway}", "config.model_name=quarterdeck/midshipman",
        "config.renderer_name=qwen3_instruct", "config.learning_rate=1e-3", "config.max_tokens=32",
        "config.loss_fn=ppo", "config.ttl_seconds=None", f"config.log_path={run_dir}",
        f"config.dataset_builder.tasks_dir={ROOT / 'configs/tasks'}",
        f"harbor.trial_config={ROOT / 'configs/trials/terminal-bwrap.json'}",
    ]  # fmt: skip
    first = terminal(QUARTERDECK, "train", *words, columns=120, rows=40)
    first.until(lambda: run_at(run_dir).alive() if (run_dir / "journal").is_dir() else False, 60)
    second = terminal(QUARTERDECK, "train", *words, columns=120, rows=40)
    assert second.ends(60) == 2
    assert not second.damage
    said = second.raw.decode(errors="replace").rpartition("\x1b[?1049l")[2]
    assert "quarterdeck:" in said and "Traceback" not in said
    assert run_at(run_dir).alive()
    first.press("q")
    assert first.ends() == 0


@pytest.mark.parametrize("moment", ["the engine is told to start", "the console is not there yet"])
def test_ctrl_c_before_the_console_is_there_stops_the_engine(terminal, run_dir, moment: str):
    """The interrupt comes at a known moment: in the middle of `begin`, or of `attach`."""
    here = {
        "the engine is told to start": "import console.commands.start as at; before = at.begin",
        "the console is not there yet": "import console.commands.start as at; before = at.attach",
    }[moment]
    name = here.rpartition(".")[2]
    code = (
        f"import os, signal\n{here}\n"
        "def interrupted(*args, **kwargs):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        f"    return before(*args, **kwargs)\nat.{name} = interrupted\n{QUARTERDECK}"
    )
    term = terminal(code, "demo", "--steps", "2", "--dir", str(run_dir))
    assert term.ends(60) == 130
    assert "\x1b[?1049h" not in term.raw.decode() and "the run was stopped before it began" in term.raw.decode()
    info = run_at(run_dir)
    assert not info.alive() and (info.state, info.exit_code) == ("stopped", 3)
