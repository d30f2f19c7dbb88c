"""A plain cookbook log directory as a recording: what its files say, as the events that a journal would have.

It is coarse. The files have no times of day: the end is the last change of `metrics.jsonl`, and the steps before it
lie back by what each took. Trials are known where rollout summaries were exported, and all end with their rollout.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec

from console.errors import RecordingError
from console.journal import events as ev
from console.journal.layout import Damage
from console.outcomes.classes import SCORED
from console.records.cookbook_log import CookbookFiles, Row, Trajectory, real, whole
from console.records.event_log import MemoryLog
from console.records.run_dir import RunRecord
from console.state.reduce_trials import mean_and_std

LONGEST_SECONDS = 1e6
USUAL_SECONDS = 60.0
"""Length of a step whose row does not say it."""
_FIGURES: dict[str, tuple[str, ...]] = {
    "reward_mean": ("env/all/reward/total",),
    "kl_sample_train_v1": ("optim/kl_sample_train_v1",),
    "kl_sample_train_v2": ("optim/kl_sample_train_v2",),
    "entropy": ("optim/entropy",),
    "grad_norm": ("unclipped_grad_l2:mean", "grad_norm:mean", "grad_norm"),
    "learning_rate": ("optim/lr",),
    "seconds_rollout": ("time/sampling", "time/sampling:total"),
    "seconds_train": ("time/train_step", "time/train_step:total"),
    "seconds_save": ("time/save_checkpoint", "time/save_checkpoint:total"),
    "seconds_total": ("time/total",),
}
"""Our figure to the cookbook's names for it, the first that is there counts."""


class CookbookRecord(RunRecord):
    """A cookbook log directory, read-only. What is written later is taken in by `refresh`.

    Raises:
        RecordingError: it holds nothing that can be shown.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).resolve()
        self._files = CookbookFiles(self.path)
        self._begin: float | None = None
        self._down, self._rows = {}, None
        self._files.read()
        self.journal = self._log()
        if self.journal.last_seq <= 1:
            raise RecordingError(f"{path}: a cookbook log directory without a step yet; there is nothing to show")
        self.coarse = self._coarse()

    @property
    def damage(self) -> list[Damage]:
        """Lines and files that could not be read."""
        return self.journal.damage

    def again(self) -> RunRecord:
        """Itself: what is in memory is only read."""
        return self

    def refresh(self) -> None:
        """Take in what was written since."""
        if self._files.read():
            self.journal, self._rows = self._log(), None

    def _log(self) -> MemoryLog:
        return MemoryLog(self._events(), self._files.damage)

    def _coarse(self) -> str:
        files = self._files
        if not files.summaries:
            trials = "no trials (the run had no rollout_json_export)"
        else:
            steps = "one step" if len(files.summaries) == 1 else f"{len(files.summaries)} steps"
            trials = f"trials of {steps}, without their times"
        return f"a cookbook log without a journal: steps and checkpoints, times by the steps' lengths, {trials}"

    # --- events ---

    def _events(self) -> Iterator[ev.Event]:
        files = self._files
        lengths = _lengths(files.metrics)
        if self._begin is None:  # kept, so that what was read already does not move when more comes
            self._begin = max(0.0, files.changed - sum(lengths))
        now = self._begin
        yield self._started(now)
        saves = defaultdict(list)
        for row in files.checkpoints:
            saves[whole(row.get("batch"))].append(row)
        errors = skipped = 0
        last: int | None = None
        done_frac = 0.0
        for row, seconds in zip(files.metrics, lengths, strict=True):
            step = int(row["step"])
            if last is not None and step <= last:
                yield self._started(now, resumed_from=step)
                errors = skipped = 0
            last = step
            errors, new_errors = _since(row.get("rollout_errors/total"), errors)
            skipped, new_skipped = _since(row.get("rollout_errors/groups_skipped"), skipped)
            yield from self._step(row, step, now, seconds, new_errors, new_skipped)
            now += seconds
            for save in saves.pop(step + 1, []):
                yield _checkpoint(save, step + 1, now)
            done_frac = real(row.get("progress/done_frac")) or 0.0
        open_step = (last if last is not None else -1) + 1
        finished = done_frac >= 1.0 or any(row.get("final") is True for row in files.checkpoints)
        for batch, rows in saves.items():
            for save in rows:
                yield _checkpoint(save, batch if batch is not None else open_step, now)
        if finished and last is not None:
            yield ev.RunFinished(ts=now, status="completed", exit_code=0, steps=last + 1)
        elif open_step in files.summaries:
            trials = files.summaries[open_step]
            yield ev.StepStarted(ts=now, step=open_step, groups=_groups(trials), policy_version=open_step)
            yield from _rollout(open_step, trials, now, now)

    def _started(self, ts: float, resumed_from: int | None = None) -> ev.RunStarted:
        files = self._files
        config = files.config
        planned = whole(config.get("config.max_steps"))
        for row in files.metrics[-1:]:
            frac = real(row.get("progress/done_frac"))
            if planned is None and frac is not None and 0 < frac <= 1:
                planned = round((int(row["step"]) + 1) / frac)
        groups = whole(config.get("config.dataset_builder.groups_per_batch"))
        groups = groups or whole(config.get("config.dataset_builder.batch_size")) or 0
        return ev.RunStarted(
            ts=ts, run_id=self.path.name, name=str(config.get("config.wandb_name") or self.path.name),
            run_dir=str(self.path), model=str(config.get("config.model_name", "")), config=config, steps=planned,
            gateway_url=str(config["config.base_url"]) if config.get("config.base_url") else None,
            groups_per_batch=groups, group_size=whole(config.get("config.dataset_builder.group_size")) or 0,
            resumed_from=resumed_from,
        )  # fmt: skip

    def _step(
        self, row: Row, step: int, begin: float, seconds: float, errors: int, skipped: int
    ) -> Iterator[ev.Event]:  # fmt: skip
        trials = self._files.summaries.get(step, [])
        counted = whole(row.get("time/do_group_rollout_and_filter_constant_reward:count"))
        kept = _groups(trials) or max(0, (counted or self._files_groups()) - skipped)
        version = whole(row.get("optimizer_steps"))
        finished = _finished(row, step, trials, kept, errors, skipped, version if version is not None else step + 1)
        finished.ts = begin + seconds
        yield ev.StepStarted(ts=begin, step=step, groups=kept + skipped, policy_version=max(0, step))
        rollout = min(finished.seconds_rollout or 0.0, seconds)
        yield from _rollout(step, trials, begin, begin + rollout)
        yield ev.RunPhase(ts=begin + rollout, phase="training")
        yield finished

    def _files_groups(self) -> int:
        return whole(self._files.config.get("config.dataset_builder.groups_per_batch")) or 0


def _finished(
    row: Row, step: int, trials: list[Trajectory], kept: int, errors: int, skipped: int, version: int
) -> ev.StepFinished:
    nonfinite: list[str] = []
    figures: dict[str, float | None] = {}
    for name, keys in _FIGURES.items():
        value = next((found for key in keys if (found := real(row.get(key))) is not None), None)
        if value is not None and not math.isfinite(value):
            nonfinite.append(name)
            value = None
        figures[name] = value
    rewards = [one.reward for one in trials if one.reward is not None and math.isfinite(one.reward)]
    figures["reward_std"] = mean_and_std(rewards)[1]
    mixed = real(row.get("env/all/by_group/frac_mixed"))
    finished = ev.StepFinished(
        step=step, outcomes=_outcomes(row, trials, errors), groups_kept=kept, groups_dropped=skipped,
        groups_zero_variance=round((1 - mixed) * kept) if mixed is not None and 0 <= mixed <= 1 else 0,
        tokens_prompt=whole(row.get("env/all/total_ob_tokens")) or 0,
        tokens_sampled=whole(row.get("env/all/total_ac_tokens")) or 0,
        policy_version=version, nonfinite=nonfinite,
    )  # fmt: skip
    return msgspec.structs.replace(finished, **figures)


def _outcomes(row: Row, trials: list[Trajectory], errors: int) -> dict[str, int]:
    """Trials by class: from the summaries, else from shares that our recipe logs, else all completed."""
    found: dict[str, int] = {}
    for one in trials:
        found[one.outcome] = found.get(one.outcome, 0) + 1
    total = whole(row.get("env/all/total_episodes")) or 0
    if not found:
        for key, value in row.items():
            share = real(value)
            if key.startswith("env/all/outcome/") and share is not None and 0 < share <= 1 and round(share * total):
                found[key.removeprefix("env/all/outcome/")[:40]] = round(share * total)
    if not found and total:
        found["completed"] = total
    if errors:  # trajectories that failed; the cookbook does not say for which reason
        found["ambiguous"] = found.get("ambiguous", 0) + errors
    return found


def _rollout(step: int, trials: list[Trajectory], begin: float, end: float) -> Iterator[ev.Event]:
    groups: dict[int, list[Trajectory]] = {}
    for one in trials:
        groups.setdefault(one.group, []).append(one)
    for number in sorted(groups):
        members = groups[number]
        yield ev.GroupStarted(
            ts=begin, step=step, group=number, task=members[0].task or f"group {number + 1}",
            size=max(one.trial for one in members) + 1,
        )  # fmt: skip
    for number in sorted(groups):
        for one in groups[number]:
            yield ev.TrialFinished(
                ts=end, step=step, group=number, trial=one.trial, outcome=one.outcome,
                reward=one.reward if one.outcome in SCORED else None, turns=one.turns,
                prompt_tokens=one.prompt_tokens, sampled_tokens=one.sampled_tokens, rule="cookbook.summary",
            )  # fmt: skip
        rewards = [one.reward for one in groups[number] if one.reward is not None]
        mean, std = mean_and_std(rewards)
        yield ev.GroupFinished(
            ts=end, step=step, group=number, kept=True, reward_mean=mean, reward_std=std,
            zero_variance=len(set(rewards)) <= 1,
        )  # fmt: skip


def _groups(trials: list[Trajectory]) -> int:
    return len({one.group for one in trials})


def _lengths(rows: list[Row]) -> list[float]:
    """Seconds of each step; one that does not say it is as long as the others usually are."""
    known = [
        value if value is not None and 0 < value < LONGEST_SECONDS else None
        for value in (real(r.get("time/total")) for r in rows)
    ]
    told = [value for value in known if value is not None]
    usual = statistics.median(told) if told else USUAL_SECONDS
    return [value if value is not None else usual for value in known]


def _since(total: object, before: int) -> tuple[int, int]:
    """A running total and what it grew by."""
    now = whole(total)
    if now is None:
        return before, 0
    return now, now - before if now >= before else now


def _checkpoint(row: Row, step: int, ts: float) -> ev.CheckpointSaved:
    name = str(row.get("name") or f"{step:06d}")[:80]
    path = row.get("state_path") or row.get("sampler_path")
    kind = "final" if name == "final" or row.get("final") is True else "periodic"
    return ev.CheckpointSaved(ts=ts, name=name, step=step, path=str(path or "")[:400], kind=kind)
