"""What is refused before anything is started: one line, exit code 2, nothing written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

BWRAP_TRIAL: dict[str, Any] = json.loads((ROOT / "configs/trials/terminal-bwrap.json").read_text())
E2B_TRIAL: dict[str, Any] = json.loads((ROOT / "configs/trials/mini-swe-agent-e2b.json").read_text())
AGENT_ENV = {"OPENAI_BASE_URL": "{proxy_url}/v1", "OPENAI_API_KEY": "{proxy_api_key}"}


def refused(tmp_path: Path, *words: str, trial: dict[str, Any] | None = None, **environment: str | None) -> str:
    """The one line that `train` says; checks that it is one, and that nothing was left."""
    trial_file = tmp_path / "trial.json"
    trial_file.write_text(json.dumps(BWRAP_TRIAL if trial is None else trial))
    run_dir = tmp_path / "run"
    command = [
        sys.executable, "-m", "console.train", "config.base_url=http://127.0.0.1:9", "config.model_name=a/b",
        "config.renderer_name=qwen3_instruct", "config.learning_rate=1e-6", "config.max_tokens=64",
        "config.loss_fn=ppo", "config.ttl_seconds=None", f"config.log_path={run_dir}",
        f"config.dataset_builder.tasks_dir={ROOT / 'configs/tasks'}", f"harbor.trial_config={trial_file}",
        "--headless", *words,
    ]  # fmt: skip
    env = {k: v for k, v in (os.environ | environment).items() if v is not None}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, timeout=120, check=False)
    lines = [line for line in done.stderr.splitlines() if "warning:" not in line]
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(lines) == 1, done.stderr
    assert not run_dir.exists()
    return lines[0]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("config.rollout_error_tolerance=None", "config.rollout_error_tolerance"),
        ("config.rollout_error_tolerance=True", "config.rollout_error_tolerance"),
        ("config.temperature=0.8", "config.temperature"),
        ("config.stream_minibatch_config.groups_per_batch=4", "config.stream_minibatch_config"),
        ("config.async_config.max_steps_off_policy=1", "config.async_config"),
        ("config.lora_rnk=16", "did you mean config.lora_rank"),
        ("config.lora_rank=many", "config.lora_rank"),
        ("config.dataset_builder.tasks_dir=/nonexistent", "tasks_dir"),
        ("harbor.trial_config=/nonexistent.json", "trial_config"),
        ("harbor.max_parallel_trials_per_group=0", "max_parallel_trials_per_group"),
        ("--config.lora_rank=16", "without dashes"),
    ],
)
def test_options(tmp_path, word, said):
    assert said in refused(tmp_path, word)


def test_a_directory_without_tasks(tmp_path):
    (tmp_path / "empty").mkdir()
    assert "task.toml" in refused(tmp_path, f"config.dataset_builder.tasks_dir={tmp_path / 'empty'}")


def test_a_trial_file_that_names_its_task(tmp_path):
    assert "task" in refused(tmp_path, trial=BWRAP_TRIAL | {"task": {"path": "x"}})


def test_an_unknown_placeholder(tmp_path):
    agent = BWRAP_TRIAL["agent"] | {"env": AGENT_ENV | {"OPENAI_BASE_URL": "{proxy_ur}/v1"}}
    assert "proxy_ur" in refused(tmp_path, trial=BWRAP_TRIAL | {"agent": agent})


def test_an_agent_option_that_this_harbor_does_not_know(tmp_path):
    kwargs = E2B_TRIAL["agent"]["kwargs"] | {"max_seq_len": 65536}
    trial = {
        "environment": BWRAP_TRIAL["environment"],
        "agent": E2B_TRIAL["agent"] | {"kwargs": kwargs},
    }
    assert "max_seq_len" in refused(tmp_path, trial=trial)


def test_missing_keys_are_named_and_never_shown(tmp_path):
    said = refused(tmp_path, TINKER_API_KEY=None)
    assert "TINKER_API_KEY" in said
    host = ("harbor.listen_host=0.0.0.0", "harbor.advertised_host=203.0.113.7")
    assert "E2B_API_KEY" in refused(tmp_path, *host, trial=E2B_TRIAL, E2B_API_KEY=None)


def test_a_loopback_address_for_remote_sandboxes(tmp_path):
    assert "advertised_host" in refused(tmp_path, trial=E2B_TRIAL, E2B_API_KEY="e2b_x")


def test_a_gateway_that_does_not_answer(tmp_path):
    assert "127.0.0.1:9" in refused(tmp_path)


def test_no_terminal_and_no_other_way_to_watch(tmp_path):
    command = [sys.executable, "-m", "console", "train", str(ROOT / "configs/demo.toml")]
    command.append(f"config.log_path={tmp_path / 'run'}")
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "--headless" in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_help_lists_every_option_and_exits_with_zero():
    done = subprocess.run(
        [sys.executable, "-m", "console.train", "--help"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0
    for option in ("config.lora_rank", "config.dataset_builder.group_size", "harbor.trial_config", "console.gateway"):
        assert option in done.stdout
