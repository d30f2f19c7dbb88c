"""Runs started from the command line, and what is left when a part of them is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from whole_runs import processes_of

from console.control.runs import run_at
from console.journal.reader import Journal
from console.records.run_dir import RunRecord
from console.state.reduce import fold

ROOT = Path(__file__).resolve().parents[2]
MODEL_NAME = "quarterdeck/midshipman"

STEP_FIELDS = {
    *("v", "type", "step", "reward_mean", "reward_std", "outcomes", "groups", "ppo_loss", "clip_fraction"),
    *("kl_sample_train", "entropy", "tokens", "seconds", "policy_version"),
}


def quarterdeck(*words: str, **kwargs: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "console", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, **kwargs,
    )  # fmt: skip


def train_words(gateway: str, run_dir: Path, *more: str) -> list[str]:
    """The recipe's documented command line, against the embedded gateway."""
    return [
        "train", f"config.base_url={gateway}", f"config.model_name={MODEL_NAME}",
        "config.renderer_name=qwen3_instruct", "config.lora_rank=16", "config.learning_rate=1e-3",
        "config.max_tokens=48", "config.loss_fn=ppo", "config.ttl_seconds=None", f"config.log_path={run_dir}",
        f"config.dataset_builder.tasks_dir={ROOT / 'configs/tasks'}", "config.dataset_builder.groups_per_batch=4",
        "config.dataset_builder.group_size=8", f"harbor.trial_config={ROOT / 'configs/trials/terminal-bwrap.json'}",
        "harbor.listen_host=0.0.0.0", "harbor.advertised_host=127.0.0.1", "harbor.allow_insecure=true", *more,
    ]  # fmt: skip


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("it did not happen")


def running_step(run_dir: Path) -> bool:
    """Whether trials of the run are under way."""
    if not (run_dir / "journal").is_dir():
        return False
    state = RunRecord(run_dir).view_at_end().state
    return any(t.phase == "agent" for group in state.groups.values() for t in group.trials)


def test_the_documented_command_line_trains_one_batch(embedded_gateway, tmp_path):
    run_dir = tmp_path / "run"
    process = quarterdeck(*train_words(embedded_gateway, run_dir, "config.max_steps=1", "--headless"))
    out, err = process.communicate(timeout=150)
    assert process.returncode == 0, err
    records = [json.loads(line) for line in out.splitlines()]
    assert [r["type"] for r in records if r["type"] != "alarm"] == ["launch", "step", "done"]
    launch, step, done = (next(r for r in records if r["type"] == kind) for kind in ("launch", "step", "done"))
    assert {"v", "type", "run_id", "run_dir", "pid", "socket", "versions"} <= launch.keys()
    assert step.keys() >= STEP_FIELDS
    assert sum(step["outcomes"].values()) == 32
    assert step["groups"]["kept"] == 4 and step["groups"].keys() == {"kept", "dropped", "zero_variance"}
    assert step["tokens"].keys() == {"prompt", "sampled", "trained"}
    assert step["seconds"].keys() == {"rollout", "train", "save", "total"}
    assert all(value is not None for value in step["seconds"].values())
    assert (done["status"], done["exit_code"], done["steps"]) == ("completed", 0, 1)
    whole = fold(Journal(run_dir / "journal").events())
    assert whole == RunRecord(run_dir).view_at_end()
    token = os.environ["TINKER_API_KEY"]
    leaks = [p for p in run_dir.rglob("*") if p.is_file() and token.encode() in p.read_bytes()]
    assert leaks == []
    assert processes_of(run_dir) == []


def test_a_killed_engine_leaves_a_readable_run_and_nothing_alive(tmp_path):
    run_dir = tmp_path / "run"
    process = quarterdeck("demo", "--headless", "--steps", "40", "--dir", str(run_dir))
    try:
        wait_for(
            lambda: len(RunRecord(run_dir).view_at_end().history.rows) >= 1 if running_step(run_dir) else False, 120
        )
        info = run_at(run_dir)
        children = psutil.Process(info.pid).children(recursive=True)
        assert children
        os.kill(info.pid, signal.SIGKILL)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 7, err
        wait_for(lambda: not [c for c in children if c.is_running() and c.status() != psutil.STATUS_ZOMBIE], 30)
        assert processes_of(run_dir) == []
        view = RunRecord(run_dir).view_at_end()
        assert view.history.rows and view.state.status == "live"
        assert view == fold(Journal(run_dir / "journal").events())
        assert run_at(run_dir).state == "dead"
    finally:
        process.kill()


def test_a_killed_client_frees_its_slot_when_its_lease_is_over(tmp_path):
    checkpoints = tmp_path / "gateway"
    checkpoints.mkdir()
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "console.gateway.embedded", "--model", str(ROOT / "configs/models/midshipman")),
            *("--name", MODEL_NAME, "--checkpoints", str(checkpoints), "--max-models", "1", "--lease", "12"),
            "--exit-with-stdin",
        ],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT,
    )  # fmt: skip
    assert server.stdin is not None and server.stdout is not None
    url = json.loads(server.stdout.readline())["url"]
    run_dir = tmp_path / "run"
    first = quarterdeck(*train_words(url, run_dir, "--headless"))
    try:
        wait_for(lambda: running_step(run_dir), 120)
        os.kill(run_at(run_dir).pid, signal.SIGKILL)
        first.communicate(timeout=60)

        def free() -> bool:
            headers = {"X-API-Key": os.environ["TINKER_API_KEY"]}
            load = httpx.get(f"{url}/api/v1/engine_load", headers=headers, timeout=10).json()
            return load["models"]["used"] == 0

        assert not free()
        wait_for(free, 60)
    finally:
        first.kill()
        server.stdin.close()
        server.wait(20)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_ending_the_command_of_a_headless_run_ends_the_run_in_order(embedded_gateway, tmp_path, how):
    run_dir = tmp_path / "run"
    process = quarterdeck(*train_words(embedded_gateway, run_dir, "--headless"))
    try:
        wait_for(lambda: running_step(run_dir), 120)
        pid = run_at(run_dir).pid
        process.send_signal(how)
        process.communicate(timeout=60)
        if how == signal.SIGTERM:
            assert process.returncode == 143
        wait_for(lambda: not psutil.pid_exists(pid), 60)
        state = RunRecord(run_dir).view_at_end().state
        assert (state.status, state.sandboxes_live, state.sandboxes_left) == ("stopped", 0, [])
        assert processes_of(run_dir) == []
    finally:
        process.kill()


def test_a_detached_run_outlives_its_command_and_is_found(embedded_gateway, tmp_path):
    run_dir = tmp_path / "run"
    started = quarterdeck(*train_words(embedded_gateway, run_dir, "config.max_steps=9", "--detach"))
    out, err = started.communicate(timeout=60)
    assert started.returncode == 0, err
    run_id = out.strip()
    try:
        listed = json.loads(quarterdeck("runs", "--json").communicate(timeout=30)[0])
        mine = next(r for r in listed if r["run_id"] == run_id)
        assert mine["state"] == "live"
        assert mine.keys() >= {"run_id", "run_dir", "state", "step", "steps", "started", "pid", "socket"}
        wait_for(lambda: running_step(run_dir), 120)
        refused = quarterdeck("ctl", run_id, "cancel-group", "g9", "--json", "--yes")
        assert json.loads(refused.communicate(timeout=30)[0])["status"] == "refused"

        def cancelled() -> bool:  # a group may end before the command comes
            asked = quarterdeck("ctl", run_id, "cancel-group", "g2", "--json", "--yes")
            return json.loads(asked.communicate(timeout=30)[0])["status"] == "done"

        wait_for(cancelled)
        stopped = quarterdeck("ctl", run_id, "stop-now", "--json", "--yes")
        assert json.loads(stopped.communicate(timeout=30)[0])["status"] == "done"
        info = wait_for(lambda: (i := run_at(run_dir)).state != "live" and i, 60)
        assert (info.state, info.exit_code) == ("stopped", 3)
        audit = [json.loads(line) for line in (run_dir / "audit.jsonl").open()]
        assert [(a["stage"], a["command"]) for a in audit[-2:]] == [("intent", "stop_now"), ("result", "stop_now")]
    finally:
        info = run_at(run_dir)
        if info.alive():
            os.kill(info.pid, signal.SIGKILL)
