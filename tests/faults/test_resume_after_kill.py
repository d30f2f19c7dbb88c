"""A run whose engine was killed is continued by the same command, and a finished one says so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from console.control.blocking import new_command, send_command
from console.control.runs import run_at
from console.journal.reader import Journal
from console.records.cookbook import last_checkpoint_batch
from console.records.run_dir import RunRecord
from console.state.reduce import fold

ROOT = Path(__file__).resolve().parents[2]


def train(gateway: str, run_dir: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable, "-m", "console", "train", f"config.base_url={gateway}",
        "config.model_name=quarterdeck/midshipman", "config.renderer_name=qwen3_instruct", "config.lora_rank=8",
        "config.learning_rate=1e-3", "config.max_tokens=24", "config.loss_fn=ppo", "config.ttl_seconds=None",
        "config.save_every=1", f"config.log_path={run_dir}",
        f"config.dataset_builder.tasks_dir={ROOT / 'configs/tasks'}", "config.dataset_builder.groups_per_batch=1",
        "config.dataset_builder.epochs=4",
        "config.dataset_builder.group_size=2", f"harbor.trial_config={ROOT / 'configs/trials/terminal-bwrap.json'}",
        *more,
    ]  # fmt: skip
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False
    )


def test_a_killed_run_goes_on_where_it_was_saved(embedded_gateway, tmp_path):
    """Its only checkpoint is one that was asked for while it rolled out."""
    run_dir = tmp_path / "run"
    started = train(embedded_gateway, run_dir, "config.max_steps=30", "config.save_every=0", "--detach")
    assert started.returncode == 0, started.stderr
    options = (run_dir / "options.json").read_bytes()
    refused = train(embedded_gateway, run_dir, "config.max_steps=3", "--headless")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1), refused.stderr
    assert "the run is live" in refused.stderr
    assert (run_dir / "options.json").read_bytes() == options
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and len(RunRecord(run_dir).view_at_end().history.rows) < 2:
        time.sleep(0.05)
    live = run_at(run_dir)
    assert live.socket is not None
    asked = send_command(live.socket, new_command("checkpoint"))
    os.kill(live.pid, signal.SIGKILL)
    assert asked.status == "done", asked.text
    while run_at(run_dir).alive():
        time.sleep(0.05)
    saved = last_checkpoint_batch(run_dir)
    assert saved is not None and 2 <= saved < 30
    assert asked.text.startswith(f"checkpoint {saved:06d}-request saved in ")
    with (run_dir / "checkpoints.jsonl").open("a") as file:
        file.write('{"name": "0000')
    wanted = saved + 2
    again = train(embedded_gateway, run_dir, f"config.max_steps={wanted}", "--headless")
    assert again.returncode == 0, again.stderr
    assert f"resumes from step {saved}" in again.stderr
    view = RunRecord(run_dir).view_at_end()
    assert [(row.step, row.policy_version) for row in view.history.rows] == [(i, i + 1) for i in range(wanted)]
    assert (view.state.status, view.state.engines, view.state.steps_done) == ("finished", 2, wanted)
    assert view == fold(Journal(run_dir / "journal").events())
    records = [json.loads(line) for line in again.stdout.splitlines()]
    assert [r["step"] for r in records if r["type"] == "step"][-2:] == [wanted - 2, wanted - 1]
    for name in ("checkpoints.jsonl", "metrics.jsonl"):
        assert all(json.loads(line) for line in (run_dir / name).read_text().splitlines())
    engine_log = (run_dir / "engine.log").stat().st_size
    done = train(embedded_gateway, run_dir, f"config.max_steps={wanted}", "--headless")
    assert done.returncode == 0
    assert "already complete" in done.stderr
    assert json.loads(done.stdout) == {
        "v": 1, "type": "done", "status": "completed", "exit_code": 0, "steps": wanted, "reason": "already complete"
    }  # fmt: skip
    assert (run_dir / "engine.log").stat().st_size == engine_log, "no engine was started"
