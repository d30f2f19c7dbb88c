"""Whole runs in this process: the real engine, cookbook loop, Harbor runner, sandboxes and gateway."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from whole_runs import Run

ROOT = Path(__file__).resolve().parents[2]
MODEL_NAME = "quarterdeck/midshipman"
MODEL_DIR = ROOT / "configs/models/midshipman"
KEY = "tml-tests"

sys.path.insert(0, str(Path(__file__).parent))

During = Callable[[Any], Awaitable[None]]


@pytest.fixture
def tasks(tmp_path: Path) -> Callable[..., Path]:
    """Copies named tasks, bundled or broken ones, into one directory."""

    def make(*names: str) -> Path:
        target = tmp_path / "tasks"
        for name in names:
            source = ROOT / "configs/tasks" / name
            if not source.is_dir():
                source = ROOT / "tests/fixtures/tasks_bad" / name
            shutil.copytree(source, target / name)
        return target

    return make


@pytest.fixture
def trial_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a trial file: our agent in bubblewrap, or an agent of `fault_agents`."""

    def make(agent: str = "console.trials.agent:TerminalAgent", **kwargs: Any) -> Path:
        path = tmp_path / "trial.json"
        path.write_text(
            json.dumps(
                {
                    "environment": {"import_path": "console.trials.bwrap:BwrapEnvironment"},
                    "agent": {
                        "import_path": agent,
                        "env": {"OPENAI_BASE_URL": "{proxy_url}/v1", "OPENAI_API_KEY": "{proxy_api_key}"},
                        "kwargs": {"max_turns": 2} | kwargs,
                    },
                }
            )
        )
        return path

    return make


@pytest.fixture
def run_engine(embedded_gateway: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Awaitable[Run]]:
    """Runs an engine to its end.

    Args of the function: tasks directory, trial file, `during(engine)` beside the run, `on_failure`, options.
    """
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT, ROOT / "tests/support", ROOT / "tests/faults"))))

    async def run(
        tasks_dir: Path, trial: Path, *options: str, during: During | None = None, on_failure: str = "stop",
        base_url: str | None = None, run_dir: Path | None = None,
    ) -> Run:  # fmt: skip
        from console.engine.supervisor import Engine
        from console.training.options import parse

        run_dir = run_dir or tmp_path / "run"
        run_dir.mkdir(exist_ok=True)
        words = [
            f"config.base_url={base_url or embedded_gateway}", f"config.model_name={MODEL_NAME}",
            "config.renderer_name=qwen3_instruct", "config.learning_rate=3e-3", "config.lora_rank=8",
            "config.max_tokens=24", "config.loss_fn=ppo", "config.ttl_seconds=None", "config.max_steps=1",
            "config.eval_every=0", "config.num_groups_to_log=0", "config.rollout_json_export=false",
            "config.dataset_builder.groups_per_batch=1", "config.dataset_builder.group_size=3",
            f"config.dataset_builder.tasks_dir={tasks_dir}", f"config.log_path={run_dir}",
            f"harbor.trial_config={trial}", "harbor.max_parallel_trials_per_group=3",
        ]  # fmt: skip
        engine = Engine(parse([*words, *options]), run_dir, f"t{os.urandom(3).hex()}", on_failure)
        await engine.start()
        beside = asyncio.ensure_future(during(engine)) if during is not None else None
        cause = await engine.run()
        if beside is not None:
            await asyncio.wait_for(beside, 10)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)
        return Run(cause.exit_code, engine.board.view, run_dir)

    return run
