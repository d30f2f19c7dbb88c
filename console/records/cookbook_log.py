"""Reads the files of a plain cookbook log directory, tolerantly and within bounds.

`metrics.jsonl` has one object a step (with bare NaN and Infinity), `checkpoints.jsonl` one a checkpoint,
`iteration_NNNNNN/train_rollout_summaries.jsonl` (with `rollout_json_export`) one a trajectory. Nothing in them is
trusted: a line that is not an object, or is too long, counts as damage and is passed over.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from console.journal.events import Scalars
from console.journal.layout import Damage
from console.records.redact import redact

METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints.jsonl"
CONFIG = "config.json"
SUMMARIES = "train_rollout_summaries.jsonl"
LINE_LIMIT = 4 << 20
METRICS_LIMIT = 256 << 20
SUMMARIES_LIMIT = 128 << 20
"""Bytes of rollout summaries that are read; those of the latest steps come first."""
ROWS_LIMIT = 200_000
TRIALS_A_STEP = 8192
CONFIG_KEYS = 400
_ITERATION = re.compile(r"iteration_(\d{1,9})")

Row = dict[str, Any]


class Trajectory(msgspec.Struct, kw_only=True):
    """One line of the rollout summaries. Texts are foreign, and bounded."""

    group: int
    trial: int
    reward: float | None
    outcome: str
    task: str
    turns: int
    prompt_tokens: int
    sampled_tokens: int


class CookbookFiles:
    """What a log directory holds, as of the last `read`.

    Attributes:
        metrics: rows with an integer `step`, in the file's order; changed: Unix seconds of the file's last change.
        checkpoints: rows; config: dotted key to value, redacted.
        summaries: step to its trajectories; skipped: steps whose summaries were left out for their size.
        damage: lines and files that could not be read.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.metrics: list[Row] = []
        self.checkpoints: list[Row] = []
        self.config: Scalars = {}
        self.summaries: dict[int, list[Trajectory]] = {}
        self.skipped: set[int] = set()
        self.damage: list[Damage] = []
        self.changed = 0.0
        self._stamp: tuple[object, ...] = ()

    def read(self) -> bool:
        """Read what is there; False when nothing changed since the last time."""
        stamp = tuple(_stamp(self.directory / name) for name in (METRICS, CHECKPOINTS, SUMMARIES, "."))
        if stamp == self._stamp:
            return False
        self._stamp, self.damage = stamp, []
        self.metrics = [row for row in self._rows(METRICS, METRICS_LIMIT) if whole(row.get("step")) is not None]
        self.checkpoints = list(self._rows(CHECKPOINTS, METRICS_LIMIT))
        self.config = self._config()
        self.changed = _changed(self.directory / METRICS) or _changed(self.directory)
        self._summaries()
        return True

    def _rows(self, name: str, limit: int) -> Iterator[Row]:
        """Objects of a JSON Lines file, at most `ROWS_LIMIT`; NaN and Infinity are Python's."""
        offset = count = 0
        try:
            with (self.directory / name).open("rb") as file:
                while line := file.readline(LINE_LIMIT):
                    start, offset = offset, offset + len(line)
                    row = as_object(line) if line.endswith(b"\n") or len(line) < LINE_LIMIT else None
                    if row is not None:
                        yield row
                        count += 1
                    elif line.strip():
                        self.damage.append(Damage(name, start, len(line), "not a JSON object"))
                    if offset >= limit or count >= ROWS_LIMIT or len(self.damage) > ROWS_LIMIT:
                        self.damage.append(Damage(name, offset, 0, "too long: the rest is left out"))
                        return
        except FileNotFoundError:
            return
        except OSError as error:
            self.damage.append(Damage(name, 0, 0, f"cannot be read ({error.strerror})"))

    def _config(self) -> Scalars:
        path = self.directory / CONFIG
        try:
            with path.open("rb") as file:
                found = as_object(file.read(LINE_LIMIT))
        except OSError:
            return {}
        if found is None:
            self.damage.append(Damage(CONFIG, 0, 0, "not a JSON object"))
            return {}
        flat: Scalars = {}
        _flatten(redact(found), "config", flat, 0)
        return flat

    def _summaries(self) -> None:
        files = sorted(_iterations(self.directory), reverse=True)
        if (self.directory / SUMMARIES).is_file():
            files.append((-1, SUMMARIES))
        found: dict[int, list[Trajectory]] = {}
        left = SUMMARIES_LIMIT
        for step, name in files:
            if step in self.skipped:
                continue
            size = _size(self.directory / name)
            if size > left:
                self.skipped.add(step)
                continue
            left -= size
            for row in self._rows(name, SUMMARIES_LIMIT):
                at = step if step >= 0 else whole(row.get("iteration"))
                one = _trajectory(row)
                if at is not None and one is not None and len(found.setdefault(at, [])) < TRIALS_A_STEP:
                    found[at].append(one)
        self.summaries = found


def is_cookbook_log(directory: Path) -> bool:
    """Whether a directory looks like a log directory of the cookbook."""
    return (directory / METRICS).is_file() or (
        (directory / CONFIG).is_file() and (directory / CHECKPOINTS).is_file()
    )  # fmt: skip


def as_object(line: bytes) -> Row | None:
    """The JSON object in some bytes, None when there is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def whole(value: object) -> int | None:
    """A count or an index: a whole number from 0 below 2^31."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return None
    return number if number == value and 0 <= number < 1 << 31 else None


def real(value: object) -> float | None:
    """A number, finite or not; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _trajectory(row: Row) -> Trajectory | None:
    group, trial = whole(row.get("group_idx")), whole(row.get("traj_idx"))
    if group is None or trial is None or group >= TRIALS_A_STEP or trial >= TRIALS_A_STEP:
        return None
    steps = [step for step in _list(row.get("steps")) if isinstance(step, dict)]
    reward = real(row.get("total_reward"))
    metrics = row.get("trajectory_metrics")
    outcome = next(
        (key.removeprefix("outcome/") for key, value in metrics.items() if key.startswith("outcome/") and value == 1.0),
        "completed",
    ) if isinstance(metrics, dict) else "completed"  # fmt: skip
    if outcome == "completed" and (reward is None or not math.isfinite(reward)):
        outcome, reward = "bad_reward", None
    return Trajectory(
        group=group, trial=trial, reward=reward, outcome=outcome[:40],
        task="/".join(tag for tag in _list(row.get("tags"))[:4] if isinstance(tag, str))[:120],
        turns=len(steps),
        prompt_tokens=sum(whole(step.get("ob_len")) or 0 for step in steps),
        sampled_tokens=sum(whole(step.get("ac_len")) or 0 for step in steps),
    )  # fmt: skip


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _flatten(value: Any, key: str, into: Scalars, depth: int) -> None:
    if len(into) >= CONFIG_KEYS or depth > 8:
        return
    if isinstance(value, dict):
        for name, item in value.items():
            _flatten(item, f"{key}.{str(name)[:60]}", into, depth + 1)
    elif isinstance(value, list):
        into[key] = json.dumps(value)[:200]
    elif value is not None and value != {}:
        into[key] = value[:400] if isinstance(value, str) else value


def _iterations(directory: Path) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                match = _ITERATION.fullmatch(entry.name)
                if match and (directory / entry.name / SUMMARIES).is_file():
                    found.append((int(match[1]), f"{entry.name}/{SUMMARIES}"))
    except OSError:
        pass
    return found


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
