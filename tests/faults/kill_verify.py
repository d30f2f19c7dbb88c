"""What must hold of a run whose engines were killed: read from the journal, captured calls, checkpoints, the ledger."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from whole_runs import processes_of

from console.journal import events as ev
from console.journal.reader import Journal
from console.outcomes.classes import SCORED
from console.records.batches import Opening, read_batches
from console.records.captured_calls import CapturedTrialFile, find_trial_file, trial_files
from console.records.cookbook import last_checkpoint
from console.records.run_dir import RunRecord
from console.records.sandbox_ledger import LedgerView
from console.records.try_key import try_key
from console.state.reduce import fold
from console.training import lineage
from console.training.embedded_store import find_checkpoint
from console.training.recorded import RecordedTrial, recorded_trial

Key = tuple[int, int, int]


@dataclass
class Usable:
    """Trials that were done when an engine was killed: (step, group, trial) and the policy, and after which event."""

    seq: int
    trials: set[tuple[Key, str]] = field(default_factory=set)


@dataclass
class Report:
    """What a run came to.

    Attributes:
        problems: what does not hold; rewards: by step; recovered: rows of which the journal lacks the figures.
        counted: trained tokens as the run has counted them; trained: as the lineage has them.
    """

    problems: list[str] = field(default_factory=list)
    rewards: list[float | None] = field(default_factory=list)
    recovered: int = 0
    replayed: int = 0
    reused: int = 0
    trials: int = 0
    counted: int = 0
    trained: int = 0

    def check(self, holds: bool, what: str) -> None:
        """Note what does not hold."""
        if not holds:
            self.problems.append(what)


def after_kill(run_dir: Path, report: Report) -> Usable:
    """The journal is readable, and the same from a snapshot as from nothing; what a resume must use."""
    usable = Usable(seq=0)
    if not (run_dir / "journal").is_dir():
        return usable
    record = RunRecord(run_dir)
    view, events = record.view_at_end(), list(Journal(run_dir / "journal").events())
    report.check(view == fold(events), "the view at the end is not what the events reduce to")
    active = max((path.name for path in (run_dir / "journal").glob("*.jsonl") if path.name[0] == "0"), default="")
    torn = [damage for damage in record.damage if damage.file != active]
    report.check(not torn, f"damage: {'; '.join(map(str, torn))}")
    usable.seq = events[-1].seq if events else 0
    for opening in read_batches(run_dir).openings:
        for end in ends_of(opening):
            if isinstance(recorded_trial(run_dir, end, opening.policy_version, counted=False), RecordedTrial):
                place = (end.step, end.group, end.trial)
                usable.trials.add((place, lineage.policy_of(opening.weights)))
    return usable


def ends_of(opening: Opening) -> list[ev.TrialFinished]:
    """Its scored trials."""
    ends = [end for group in opening.groups.values() for end in group.ends.values()]
    return [end for end in ends if end.outcome in SCORED and end.reward is not None]


def verify(run_dir: Path, steps: int, substeps: int, usable: list[Usable], report: Report) -> None:
    """All that must hold once the run is complete."""
    events = list(Journal(run_dir / "journal").events())
    record = RunRecord(run_dir)
    view = record.view_at_end()
    rows = view.history.rows
    report.check(view == fold(events), "the view at the end is not what the events reduce to")
    report.check(view.state.status == "finished", f"the run is {view.state.status}: {view.state.reason}")
    report.check([row.step for row in rows] == list(range(steps)), f"steps {[row.step for row in rows]}")
    report.rewards = [row.reward_mean for row in rows]
    report.recovered = sum(row.recovered for row in rows)
    report.replayed = sum(isinstance(e, ev.StepFinished) and e.replayed for e in events)
    report.reused = sum(isinstance(e, ev.TrialFinished) and e.reused for e in events)
    _check_trials(events, usable, report)
    _check_lineage(run_dir, rows, substeps, report)
    report.counted = view.state.capture.trained_tokens
    given = _given(run_dir)
    report.check(report.counted == given, f"{report.counted} trained tokens counted, batches were given {given}")
    c, captured = view.state.capture, captured_tokens(run_dir)
    totals = c.calls, c.prompt_tokens, c.sampled_tokens
    report.check(totals == captured, f"calls, prompt and sampled tokens: {totals} counted, {captured} captured")
    _check_final(run_dir, len([row for row in rows if row.groups_kept]) * substeps, report)
    _check_nothing_left(run_dir, report)


def _check_trials(events: list[ev.Event], usable: list[Usable], report: Report) -> None:
    """No try is scored twice; what was usable when an engine was killed does not run again."""
    scored = Counter(
        (e.step, e.group, e.trial, e.try_)
        for e in events
        if isinstance(e, ev.TrialFinished) and not e.reused and e.outcome in SCORED
    )
    report.trials = sum(scored.values())
    report.check(max(scored.values(), default=1) == 1, f"scored twice: {[k for k, n in scored.items() if n > 1]}")
    weights, engine = "", 0
    again: dict[tuple[int, int, int, int], set[int]] = {}
    for event in events:
        engine += isinstance(event, ev.RunStarted)
        if isinstance(event, ev.StepStarted):
            weights = event.weights
        if not isinstance(event, ev.TrialPhase) or event.phase != "create":
            continue
        place, policy = (event.step, event.group, event.trial), lineage.policy_of(weights)
        again.setdefault((*place, event.try_), set()).add(engine)
        for known in usable:
            if event.seq > known.seq and (place, policy) in known.trials:
                report.check(False, f"{place} of try {event.try_} ran again, and was usable at event {known.seq}")
    twice = [key for key, engines in again.items() if len(engines) > 1]
    report.check(not twice, f"a try ran in two engines: {twice}")


def _check_lineage(run_dir: Path, rows: list[ev.StepFinished], substeps: int, report: Report) -> None:
    """Each step is of the weights that the one before it made, and of trials that are whole on the disk, once each."""
    weights, version, seen = "", 0, set()
    batches = read_batches(run_dir)
    for row in rows:
        opening = batches.of(row.step)[-1]
        named = f"step {row.step}"
        if weights:
            report.check(opening.weights == weights, f"{named} is not of the weights that were made before it")
        report.check(opening.policy_version == version, f"{named} is of version {opening.policy_version}")
        sampled = 0
        for end in ends_of(opening):
            if not opening.groups[end.group].ended or not opening.groups[end.group].ended.kept:
                continue
            key = try_key((row.step, end.group, end.trial, end.try_))
            report.check(key not in seen, f"{key} is trained twice")
            seen.add(key)
            known = recorded_trial(run_dir, end, version, counted=False)
            report.check(isinstance(known, RecordedTrial), f"it cannot be trained again: {known}")
            sampled += tokens_of(run_dir, key)
        if not row.recovered:
            report.check(row.tokens_trained == sampled, f"{named}: {row.tokens_trained} tokens trained of {sampled}")
        report.trained += sampled
        version += substeps if sampled else 0
        report.check(row.policy_version == version, f"{named} made version {row.policy_version}, not {version}")
        weights = row.weights
    report.check(len(trial_files(run_dir)) >= len(seen), "captured calls are missing")


def _given(run_dir: Path) -> int:
    """Tokens of all trials that any engine's batch was given, each once."""
    tokens: dict[str, int] = {}
    for opening in read_batches(run_dir).openings:
        for end in ends_of(opening) if opening.trained is not None else ():
            group = opening.groups[end.group]
            if group.ended is not None and group.ended.kept:
                key = try_key((end.step, end.group, end.trial, end.try_))
                tokens[key] = tokens_of(run_dir, key)
    return sum(tokens.values())


def captured_tokens(run_dir: Path) -> tuple[int, int, int]:
    """Answered calls of all tries, the tokens of their prompts, and those that were sampled."""
    calls = prompt = sampled = 0
    for path in trial_files(run_dir):
        file = CapturedTrialFile(path)
        file.refresh()
        for call in file:
            if call.answered:
                calls, prompt, sampled = calls + 1, prompt + call.intent.prompt_tokens, sampled + len(call.tokens())
    return calls, prompt, sampled


def tokens_of(run_dir: Path, key: str) -> int:
    """Sampled tokens of a try that can be trained."""
    path = find_trial_file(run_dir, key)
    file = CapturedTrialFile(path) if path else None
    if file is None or not file.refresh() or file.sealed is None:
        return 0
    return sum(len(file.node(node).tokens()) for part in file.sealed.segments for node in part.nodes)


def _check_final(run_dir: Path, optimizer_steps: int, report: Report) -> None:
    """The last checkpoint has taken as many optimiser steps as batches were trained."""
    row = last_checkpoint(run_dir)
    found = find_checkpoint(run_dir / "gateway", str(row["state_path"])) if row is not None else None
    if row is None or found is None:
        report.check(False, "the last checkpoint is not there")
        return
    report.check(row["name"] == "final", f"the last checkpoint is {row['name']}")
    taken = json.loads((found / "checkpoint.json").read_bytes())["optimizer_steps"]
    report.check(taken == optimizer_steps, f"{taken} optimiser steps in the last checkpoint, {optimizer_steps} trained")
    torn = [path.name for path in (run_dir / "gateway").glob("*/*/*/.*")]
    report.check(not torn, f"half a checkpoint is left: {torn}")
    for name in ("checkpoints.jsonl", "metrics.jsonl"):
        for line in (run_dir / name).read_text().splitlines():
            try:
                json.loads(line)
            except ValueError:
                report.check(False, f"{name}: {line[:60]!r}")


def reap(run_dir: Path) -> tuple[int, str]:
    """`quarterdeck reap RUN --yes`: exit code and what it said."""
    command = [sys.executable, "-m", "console", "reap", str(run_dir), "--yes"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def _check_nothing_left(run_dir: Path, report: Report) -> None:
    """No process of the run, no root of a sandbox, and nothing open in the ledger after `reap`."""
    code, said = reap(run_dir)
    report.check(code == 0, f"reap: {code}: {said}")
    ledger = LedgerView(run_dir)
    ledger.refresh()
    report.check(not ledger.open, f"open in the ledger: {[entry.name for entry in ledger.open]}")
    deadline = time.monotonic() + 10
    while (left := processes_of(run_dir)) and time.monotonic() < deadline:
        time.sleep(0.1)
    report.check(not left, f"processes: {left}")
    roots = [path.name for path in (run_dir / "sandboxes").iterdir()] if (run_dir / "sandboxes").is_dir() else []
    report.check(not roots, f"roots: {roots}")
