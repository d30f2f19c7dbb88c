"""Whole runs whose captured calls are looked at: a trial attacks from inside its sandbox, the engine is killed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import zstandard
from whole_runs import processes_of

from console.control.runs import run_at
from console.journal import events as ev
from console.journal.reader import Journal
from console.records.captured_calls import CapturedTrialFile, trial_files
from console.records.token_check import check_tokens

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
GROWTH_BYTES = 150 << 20


class Place:
    """A run's directory, its options, and what its agents write down (`notes`)."""

    def __init__(self, where: Path, gateway: str, agent: str, **kwargs: Any) -> None:
        self.run_dir, self.notes = where / "run", where / "notes"
        self.notes.mkdir()
        shutil.copytree(ROOT / "configs/tasks/create-file", where / "tasks/create-file")
        task = where / "tasks/create-file/task.toml"
        text = task.read_text()
        assert '"no-network"' in text
        task.write_text(text.replace('"no-network"', '"public"'))
        (where / "trial.json").write_text(json.dumps({
            "environment": {
                "import_path": "console.trials.bwrap:BwrapEnvironment",
                "kwargs": {"relay": "{proxy_url}", "ro_binds": [sys.base_prefix]},
            },
            "agent": {
                "import_path": agent, "override_timeout_sec": 120,
                "env": {"OPENAI_BASE_URL": "{proxy_url}/v1", "OPENAI_API_KEY": "{proxy_api_key}"},
                "kwargs": {"notes": str(self.notes)} | kwargs,
            },
        }))  # fmt: skip
        self.words = [
            f"config.base_url={gateway}", "config.model_name=quarterdeck/midshipman",
            "config.renderer_name=qwen3_instruct", "config.lora_rank=8", "config.learning_rate=1e-3",
            "config.max_tokens=16", "config.loss_fn=ppo", "config.ttl_seconds=None", "config.max_steps=1",
            "config.eval_every=0", f"config.log_path={self.run_dir}",
            f"config.dataset_builder.tasks_dir={where / 'tasks'}", "config.dataset_builder.groups_per_batch=1",
            f"harbor.trial_config={where / 'trial.json'}",
        ]  # fmt: skip

    def train(self, *more: str) -> subprocess.Popen[str]:
        """The command, begun."""
        return subprocess.Popen(
            [sys.executable, "-m", "console", "train", *self.words, *more], cwd=ROOT, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests/support", HERE)))},
        )  # fmt: skip

    def told(self) -> dict[str, list[dict[str, Any]]]:
        """What the agents were told so far, by the key of their try, and their tokens."""
        found = {}
        for path in self.notes.glob("*.jsonl"):
            key = path.name.split("__")[1].split("-")[0]
            found[key] = [json.loads(line) for line in path.read_text().splitlines()]
        return found

    def files(self) -> dict[str, CapturedTrialFile]:
        """The files of captured calls by key."""
        files = {}
        for path in trial_files(self.run_dir):
            file = CapturedTrialFile(path)
            assert file.refresh()
            files[file.key] = file
        return files


def replies(lines: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(line["node"], line["text"]) for line in lines if "node" in line]


def captured(file: CapturedTrialFile) -> list[tuple[str, str]]:
    calls = [call for call in file if call.outcome is not None and call.answered]
    return [(call.intent.node, call.outcome.reply) for call in calls if call.outcome is not None]


def wait_for(condition: Callable[[], Any], command: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        assert command is None or command.poll() is None, "the command ended"
        time.sleep(0.05)


class Growth:
    """How much the engine's memory grew, at most, since it was first asked."""

    def __init__(self, run_dir: Path) -> None:
        pid = run_at(run_dir).pid
        assert pid is not None
        self._engine, self.most = psutil.Process(pid), 0
        self._before = self._engine.memory_info().rss

    def look(self) -> None:
        with contextlib.suppress(psutil.Error):
            self.most = max(self.most, self._engine.memory_info().rss - self._before)


# --- an attack from a sandbox ----------------------------------------


@pytest.fixture(scope="module")
def attacked(embedded_gateway: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, int, int]]:
    """A run of four trials, one of which attacks; its exit code, and the engine's growth in bytes meanwhile."""
    place = Place(tmp_path_factory.mktemp("attacked"), embedded_gateway, "capture_agents:Attacking", max_turns=5)
    command = place.train(
        "--headless", "config.dataset_builder.group_size=4", "harbor.max_parallel_trials_per_group=4"
    )  # fmt: skip
    try:
        wait_for(lambda: (place.notes / "attacked").exists(), command)
        growth = Growth(place.run_dir)

        def over() -> bool:
            growth.look()
            return command.poll() is not None

        wait_for(over)
    finally:
        command.terminate()
        command.communicate()
    yield place, command.returncode, growth.most
    assert processes_of(place.run_dir) == []


def test_an_attack_from_a_sandbox_lets_the_run_and_its_siblings_be(attacked):
    place, code, growth = attacked
    told = json.loads((place.notes / "told.json").read_text())
    assert told["code"] == 0, told
    said = json.loads(told["out"])
    statuses = sum((Counter(one) for one in said["attacks"].values()), Counter())
    assert said["oddities"] == []
    assert not [status for status in statuses if status.startswith("5") or status == "silent"], said["attacks"]
    assert set(said["attacks"]["guesses"]) == {"401"}
    assert code == 0 and growth < GROWTH_BYTES
    ends = [e for e in Journal(place.run_dir / "journal").events() if isinstance(e, ev.TrialFinished)]
    assert [e.outcome for e in ends] == ["completed"] * 4
    notes, files = place.told(), place.files()
    assert notes.keys() == files.keys() and len(files) == 4
    for key, file in files.items():
        assert check_tokens(file) == [] and file.sealed is not None and file.sealed.lost == 0
        said_to = replies(notes[key])
        assert len(said_to) == 5
        if file.refused or len(file) > 5:
            assert set(said_to) <= set(captured(file)), "the attacker's"
        else:
            assert said_to == captured(file)
    assert sum(not file.refused and len(file) == 5 for file in files.values()) == 3


def test_no_token_is_anywhere_in_the_runs_files(attacked):
    place, _, _ = attacked
    tokens = [line["token"].encode() for lines in place.told().values() for line in lines if "token" in line]
    assert len(set(tokens)) == 4
    for path in place.run_dir.rglob("*"):
        if not path.is_file():
            continue
        data = path.read_bytes()
        if path.suffix == ".zst":
            data += zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
        assert not [token for token in tokens if token in data], path
    log = (place.run_dir / "engine.log").read_text()
    assert "Traceback" not in log, log


# --- an engine that is killed ----------------------------------------


def test_an_engine_that_is_killed_leaves_each_reply_and_goes_on(embedded_gateway, tmp_path):
    place = Place(tmp_path, embedded_gateway, "capture_agents:Recording", max_turns=12)
    options = ("config.dataset_builder.group_size=8", "harbor.max_parallel_trials_per_group=8")
    begun = place.train("--detach", *options)
    assert begun.wait(90) == 0, begun.communicate()[0]
    wait_for(lambda: sum(map(len, place.told().values())) > 40)
    pid = run_at(place.run_dir).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not run_at(place.run_dir).alive() and not processes_of(place.run_dir))
    notes, files = place.told(), place.files()
    for key, file in files.items():
        assert check_tokens(file) == []
        assert set(replies(notes.get(key, []))) <= set(captured(file))
    assert sum(map(len, notes.values())) > 40
    exported = subprocess.run(
        [sys.executable, "-m", "console", "export", place.run_dir, "--tokens", "--calls"],
        capture_output=True, text=True, cwd=ROOT, timeout=60, check=True,
    )  # fmt: skip
    rows = {row.get("node"): row for row in map(json.loads, exported.stdout.splitlines())}
    for key, lines in notes.items():
        for node, _ in replies(lines):
            assert rows[node]["tokens"] == list(files[key].node(node).tokens())
    again = place.train("--headless", *options)
    output = again.communicate(timeout=120)[0]
    assert again.returncode == 0, output
    after = place.files()
    assert after.keys() >= files.keys()
    before = {key: captured(file) for key, file in files.items()}
    for key, file in after.items():  # a trial that runs again has a file of its own; those of the killed engine stay
        assert check_tokens(file) == [] and file.earlier == 0
        assert captured(file) == before[key] if key in files else file.sealed is not None
    trials = {key.rpartition(".y")[0] for key, file in after.items() if file.sealed is not None}
    assert len(trials) == 8
