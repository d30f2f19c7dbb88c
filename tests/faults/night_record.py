"""What a night needs, and what is left of it: its plan, its script in a room of its own, its journal and its diary."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from console.engine.board import ALARM_SECONDS
from console.journal import events as ev
from console.journal.reader import Journal
from console.state.lines import trial_name

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
TASKS = ("create-file", "make-folder", "note-write")
HANGS = ("create-file", "make-folder")
"""Two groups of the first step: one trial of each hangs."""
BREAKS = "make-folder"

IDLE_SECONDS, SLOW_MS, DISK_GB, LEFT_BYTES = 4.0, 500.0, 0.04, 4_000_000
CAUSES = {"stalled": "hang", "gateway.slow": "slow", "held": "verifier", "verifier.broken": "verifier",
          "host.disk": "disk"}  # fmt: skip
"""Kind of alarm to what causes it, in the order of the night."""


def plan(tmp_path: Path, gateway: str) -> Path:
    """The file that tells a night what it needs, with tasks, fuses and trial file."""
    for task in TASKS:
        shutil.copytree(ROOT / "configs/tasks" / task, tmp_path / "tasks" / task)
    for task in HANGS:
        (tmp_path / "fuses" / task).mkdir(parents=True)
    (tmp_path / "disk").mkdir()
    trial = {
        "environment": {"import_path": "console.trials.bwrap:BwrapEnvironment"},
        "agent": {
            "import_path": "night_agents:Hanging",
            "env": {"OPENAI_BASE_URL": "{proxy_url}/v1", "OPENAI_API_KEY": "{proxy_api_key}"},
            "kwargs": {"max_turns": 2, "fuses": str(tmp_path / "fuses")},
        },
    }
    (tmp_path / "trial.json").write_text(json.dumps(trial))
    words = [
        "config.model_name=quarterdeck/midshipman", "config.renderer_name=qwen3_instruct", "config.learning_rate=1e-6",
        "config.lora_rank=8", "config.max_tokens=24", "config.loss_fn=ppo", "config.ttl_seconds=None",
        "config.eval_every=0", "config.num_groups_to_log=0", "config.rollout_json_export=false",
        f"config.dataset_builder.tasks_dir={tmp_path / 'tasks'}", "config.dataset_builder.epochs=200",
        "config.dataset_builder.groups_per_batch=2", "config.dataset_builder.group_size=3",
        f"harbor.trial_config={tmp_path / 'trial.json'}", "harbor.max_parallel_trials_per_group=2",
        "harbor.on_failure=hold", "console.hold_timeout=300", "console.probe_interval=0.15",
        f"console.alarms.agent_idle_seconds={IDLE_SECONDS}", f"console.alarms.gateway_slow_ms={SLOW_MS}",
        "console.alarms.gateway_slow_factor=8", "console.alarms.gateway_slow_critical_factor=1e6",
        f"console.alarms.disk_free_gb={DISK_GB}",
        # Three tasks and a toy of a policy say nothing about learning, nor do shares of so few trials.
        "console.alarms.trials_needed=1e6", "console.alarms.no_signal_share=2", "console.alarms.grad_factor=1e9",
        "console.alarms.entropy_low=0", "console.alarms.entropy_low_critical=0", "console.alarms.entropy_high=1e9",
        "console.alarms.entropy_high_critical=1e9", "console.alarms.reward_drop=1e9",
    ]  # fmt: skip
    path = tmp_path / "plan.json"
    path.write_text(
        json.dumps(
            {
                "gateway": gateway,
                "words": words,
                "disk": str(tmp_path / "disk"),
                "kept": str(tmp_path / "kept"),
                "tasks": str(tmp_path / "tasks"),
                "broken": BREAKS,
                "slow_ms": SLOW_MS,
                "leave": LEFT_BYTES,
            }
        )
    )
    return path


def spend(script: str, plan_file: Path) -> Night:
    """Run a night's script in a room with a small disk, to its end.

    Raises `AssertionError` with what it said when it fails.
    """
    where = plan_file.parent
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests/support", HERE))),
        "QUARTERDECK_STATE_DIR": str(where / "state"),
    }
    command = [sys.executable, str(HERE / "night_room.py"), str(where / "disk"), "64m"]
    process = subprocess.Popen(
        [*command, sys.executable, str(HERE / script), str(plan_file)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=400)
    except BaseException:
        process.terminate()  # it ends what it has begun
        process.communicate(timeout=30)
        raise
    log = where / "kept/engine.log"
    said = f"{out[-3000:]}\n{err[-3000:]}\n{log.read_text()[-3000:] if log.exists() else ''}"
    assert process.returncode == 0, said
    return Night(where, [json.loads(line) for line in out.splitlines()])


class Episode:
    """One alarm from its opening to its end: everything that the journal says about it."""

    def __init__(self, opened: ev.AlarmOpened) -> None:
        self.key, self.told = opened.key, [opened]
        self.closed: ev.AlarmClosed | None = None

    @property
    def kind(self) -> str:
        """The rule: the key without the thing that it speaks of."""
        return next((kind for kind in CAUSES if self.key == kind or self.key.startswith(f"{kind}.")), self.key)

    @property
    def opened(self) -> ev.AlarmOpened:
        return self.told[0]


class Night:
    """What is left of a night.

    Attributes:
        diary: what its script did; run_dir: the run's, copied; events: of its journal.
        episodes: of its alarms, in the order in which they opened.
    """

    def __init__(self, where: Path, diary: list[dict[str, Any]]) -> None:
        self.where, self.diary, self.run_dir = where, diary, where / "kept"
        self.events = list(Journal(self.run_dir / "journal").events())
        self.episodes: list[Episode] = []
        for event in self.events:
            now = {e.key: e for e in self.episodes if e.closed is None}
            if isinstance(event, ev.AlarmOpened) and event.key in now:
                now[event.key].told.append(event)
            elif isinstance(event, ev.AlarmOpened):
                self.episodes.append(Episode(event))
            elif isinstance(event, ev.AlarmClosed):
                now[event.key].closed = event

    def of(self, kind: type, since: float = 0.0, **fields: Any) -> list[Any]:
        """The events of a type at or after a time, whose fields have these values."""
        return [
            e for e in self.events
            if isinstance(e, kind) and e.ts >= since and all(getattr(e, k) == v for k, v in fields.items())
        ]  # fmt: skip

    def said(self, what: str) -> list[dict[str, Any]]:
        """The diary's lines of a kind."""
        return [line for line in self.diary if line["what"] == what]

    def when(self, what: str, name: str) -> float:
        """When a trouble was caused, or was over."""
        return float(next(line["ts"] for line in self.said(what) if line["name"] == name))

    @property
    def hung(self) -> list[tuple[int, int]]:
        """Group and trial of those that hung, all in the first step."""
        names = sorted(path.name for path in (self.where / "fuses").iterdir())
        keys = [re.search(r"s0\.g(\d+)\.t(\d+)\.y0", name) for name in names]
        return [(int(key[1]), int(key[2])) for key in keys if key is not None]

    @property
    def troubles(self) -> list[Episode]:
        """The episodes that the night was about."""
        hung = {f"stalled.{trial_name(group, trial)}" for group, trial in self.hung}
        return [e for e in self.episodes if e.kind in CAUSES and (e.kind != "stalled" or e.key in hung)]

    def one(self, kind: str) -> Episode:
        """The episode of a kind of which there is one."""
        (found,) = [e for e in self.troubles if e.kind == kind]
        return found

    @property
    def grace(self) -> float:
        """Seconds by which an alarm may be late: it is looked for once a second, by a loop that may itself be late."""
        return 2 * ALARM_SECONDS + 2 * max(e.loop_lag or 0.0 for e in self.of(ev.HostStats))

    def on_time(self, event: ev.Event | None, due: float) -> bool:
        """Whether an event came when it was due."""
        assert event is not None
        return due <= event.ts <= due + self.grace
