"""Run directories as killed engines leave them: a real journal and real files of captured calls, batch by batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capture_files import CallsFile

from console.capture.sealing import seal_file
from console.journal import events as ev
from console.journal.writer import JournalWriter
from console.records.try_key import TryPlace, try_key
from console.training import lineage
from console.training.replay import ResumePlan, plan

POLICY, RECIPE = "base", "recipe"
INFRA, RUNNING, CANCELLED, UNSEALED = "infrastructure", "running", "cancelled", "unsealed"
Outcome = float | str
"""A reward, how a trial ended without one, `RUNNING`, or `UNSEALED`: scored, and its file never got its end."""


class RecordedRun:
    """Writes a run as engines do.

    Attributes:
        run_dir: of the run; weights: name of those at hand; version: optimiser steps behind them.
    """

    def __init__(self, run_dir: Path, weights: str = f"{POLICY}.1") -> None:
        self.run_dir, self.weights, self.version = run_dir, weights, 0
        run_dir.mkdir(parents=True, exist_ok=True)
        self._journal = JournalWriter(run_dir / "journal")

    def emit(self, *events: ev.Event) -> None:
        for event in events:
            self._journal.append(event)

    def engine(self, resumed_from: int | None = None, weights: str | None = None, version: int | None = None) -> None:
        """Another engine begins; the one before was killed."""
        self.emit(ev.RunStarted(run_id="r", resumed_from=resumed_from))
        self.weights = weights if weights is not None else self.weights
        self.version = version if version is not None else self.version

    def save(self, step: int, *, told: bool = True, named: bool = False, name: str = "", path: str = "") -> None:
        """A checkpoint of so many steps. `told`: the journal has it too; `named`: its row has the weights' name."""
        path = path or f"tinker://m/{step}"
        row = {"name": name or f"{step:06d}", "batch": step, "state_path": path, "sampler_path": path + "/s"}
        row |= {"weights": self.weights} if named else {}
        with (self.run_dir / "checkpoints.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        if told:
            self.emit(ev.CheckpointSaved(name=row["name"], step=step, path=path, weights=self.weights))

    def begin(self, step: int, size: int = 1, **fields: Any) -> None:
        """A batch begins."""
        self.emit(
            ev.StepStarted(step=step, groups=size, policy_version=self.version, **{"weights": self.weights} | fields)
        )

    def group(
        self, step: int, group: int, trials: Mapping[int, Outcome], *, task: str = "", size: int = 0,
        tries: Mapping[int, int] | None = None, ended: bool = True, reason: str = "",
        reused: frozenset[int] = frozenset(),
    ) -> list[str]:  # fmt: skip
        """A group, with trials as far as they came; the keys of those that train."""
        size, tries = size or len(trials), tries or {}
        self.emit(ev.GroupStarted(step=step, group=group, task=task or f"task{group}", size=size))
        keys = []
        for trial, outcome in trials.items():
            place = (step, group, trial, tries.get(trial, 0))
            if isinstance(outcome, float) or outcome == UNSEALED:
                keys.append(try_key(place))
            self.trial(place, outcome, reused=trial in reused)
        if ended:
            rewards = [one for one in trials.values() if isinstance(one, float)]
            kept = not reason and len(rewards) >= min(2, size)
            self.emit(ev.GroupFinished(step=step, group=group, kept=kept, reason=reason))
            return keys if kept else []
        return []

    def trial(self, place: TryPlace, outcome: Outcome, reused: bool = False) -> None:
        """A trial as far as it came."""
        step, group, trial, try_ = place
        where: dict[str, Any] = {"step": step, "group": group, "trial": trial, "try_": try_}
        scored = isinstance(outcome, float) or outcome == UNSEALED
        if not reused:
            self.emit(ev.TrialPhase(phase="create", **where))
            self.capture(place, sealed=scored and outcome != UNSEALED)
        if outcome == RUNNING:
            return
        reward = outcome if isinstance(outcome, float) else (0.0 if scored else None)
        self.emit(
            ev.TrialFinished(
                outcome="completed" if scored else str(outcome),
                cause="operator" if outcome == CANCELLED else "",
                reward=reward,
                segments=1 if scored else 0,
                sampled_tokens=2 if scored else 0,
                prompt_tokens=3,
                reused=reused,
                **where,
            )
        )

    def capture(self, place: TryPlace, sealed: bool = True) -> Path:
        """The file of its captured calls: one call of two tokens that no other try has."""
        key = try_key(place)
        file = CallsFile(self.run_dir, key, policy_version=self.version)
        unlike = [1 + place[0], 1 + place[1] * 100 + place[2]]
        node = file.call([("user", key)], "x", tokens=unlike, logprobs=[-0.5, -0.25 - place[3]])
        if not sealed:
            return file.path
        file.seal([node])
        target = file.path.with_name(file.path.name + ".zst")
        seal_file(file.path, target, file.path.stat().st_size)
        return target

    def finish(self, step: int, keys: list[str], kept: int = 1, **fields: Any) -> None:
        """The batch was trained on these trials, and its row is written."""
        self.train(keys)
        self.emit(
            ev.StepFinished(
                step=step, groups_kept=kept, policy_version=self.version, **{"weights": self.weights} | fields
            )
        )

    def train(self, keys: list[str]) -> None:
        """The batch was trained, and nothing was written of that."""
        self.emit(ev.RunPhase(phase="training"))
        self.weights = lineage.after(self.weights, RECIPE, keys)
        self.version += bool(keys)

    def step(self, step: int, trials: Mapping[int, Outcome], **fields: Any) -> None:
        """A whole step of one group."""
        self.begin(step)
        keys = self.group(step, 0, trials, **fields)
        self.finish(step, keys, kept=int(bool(keys)))

    def plan(self, **options: Any) -> ResumePlan:
        """What an engine that begins now would do."""
        from console.records.cookbook import last_checkpoint
        from console.records.run_dir import RunRecord

        checkpoint = last_checkpoint(self.run_dir)
        step = checkpoint["batch"] if checkpoint is not None else 0
        rows = [row for row in RunRecord(self.run_dir).view_at_end().history.rows if row.step < step]
        given = {"checkpoint": checkpoint, "fresh_weights": f"{POLICY}.2", "recipe": RECIPE, "rows": rows}
        return plan(self.run_dir, **given | options)

    def file(self, key: str) -> Path:
        """The sealed file of a try."""
        (found,) = self.run_dir.glob(f"capture/*/{key}.calls.zst")
        return found

    def close(self) -> None:
        self._journal.close()
