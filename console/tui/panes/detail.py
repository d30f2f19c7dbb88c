"""What is known of one trial without asking for its content: its head line, and why its outcome was given."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from console.outcomes.classes import SCORED
from console.outcomes.meaning import class_meaning, policy_meaning, rule_meaning
from console.state.benchmark import score_of
from console.state.lines import trial_name
from console.state.model import TrialBrief, TrialState
from console.state.sanitize import sanitize
from console.tui.event_log import Entry
from console.tui.glyphs import SIGNS, kind_of, sign_text
from console.tui.panes.trials import meaning
from console.tui.picture import Scene
from console.tui.text import Line, Span, clock, count, fit, lasted, line, number, short_time, width, wrap

_EVIDENCE_ROWS = 40
_NAME = 10


@dataclass(frozen=True)
class Subject:
    """The trial that is looked at.

    Attributes:
        step, group, trial: indices from 0; task: its name, empty when it is not known.
        state: as it was last seen, None for never; gone: its step is over.
        reads: which earlier try the text beneath is of, empty for the last one, which the head is about.
    """

    step: int
    group: int
    trial: int
    task: str = ""
    state: TrialState | None = None
    gone: bool = False
    reads: str = ""


def head(scene: Scene, subject: Subject, cells: int) -> list[Line]:
    """Two rows: what the trial is and does, and its figures; or that it is gone."""
    trial = subject.state
    if trial is None:
        text = f"of step {subject.step}, which is over" if subject.gone else "nothing is known of this trial"
        return [line(f" {text}"), ()]
    kind = kind_of(trial, scene.now)
    sign = SIGNS[kind]
    first: list[Span] = [
        Span(" "), Span(sign_text(kind, scene.ascii), sign.role), Span(f" {meaning(scene, trial)}", "bold"),
    ]  # fmt: skip
    if subject.reads:
        first = [Span(f" beneath is {subject.reads}; the last try: ", "limit"), *first[1:]]
    if trial.outcome is not None and trial.cause:
        first.append(Span(f", {sanitize(trial.cause.replace('_', ' '), limit=40)}"))
    if trial.exception:
        first.append(Span(f" {sanitize(trial.exception, limit=60)}", "infra"))
    if trial.phase not in ("done", "held", "queued"):
        age = "" if subject.gone else f" {clock(scene.now - trial.phase_since)}"
        first.append(Span(f"  {sanitize(trial.phase, limit=20)}{age}", "muted"))
    left: Line = ()
    if trial.hold_deadline is not None and trial.phase == "held" and not subject.gone:
        left = line(Span(f"  the run stops in {clock(trial.hold_deadline - scene.now)} ", "infra+bold"))
        first = list(fit(first, min(width(first), cells - width(left))))  # how much time is left is never cut
    figures = []
    if trial.try_ or trial.phase == "retrying":
        figures.append(f"try {trial.try_ + 1}")
    if trial.outcome is not None:
        without = "not graded" if scene.bench else "not scored"
        if scene.bench and (score := score_of(trial)) is not None:
            without = f"counts as {score:g}"
        figures.append(f"reward {number(trial.reward)}" if trial.outcome in SCORED else without)
    figures += [] if scene.bench else [f"{trial.turns} turns"]
    figures += [
        f"in {count(trial.prompt_tokens)} out {count(trial.sampled_tokens)} tokens",
        f"time {clock(duration(trial, scene.now))}",
    ]  # fmt: skip
    second: list[Span] = [Span(" " + f" {scene.marks.dot} ".join(figures))]
    if subject.gone:
        second = [Span(f" step {subject.step} is over, this is what it was:", "limit"), *second]
    return [fit((*first, *left), cells), fit(second, cells)]


def duration(trial: TrialState, now: float) -> float | None:
    """Seconds that the try took, or takes so far; None before it began."""
    if trial.started is None:
        return None
    over = trial.finished is not None and trial.phase in ("done", "held")
    return (trial.finished if over and trial.finished is not None else now) - trial.started


def why(scene: Scene, subject: Subject, entries: Sequence[Entry], cells: int) -> list[Line]:
    """Why the outcome was given, what may become of it, what happened before; rows of at most `cells`."""
    trial = subject.state
    if trial is None:
        return [*_row("", "only the step that runs is known in detail", cells), *_happened(entries, cells)]
    out: list[Line] = []
    if trial.outcome is None:
        out += _row("outcome", f"none yet: the trial is in {sanitize(trial.phase, limit=20)}", cells, "bold")
    else:
        out += _outcome(scene, trial, cells)
    before = [] if subject.gone else _earlier_tries(scene, subject, trial)
    if before:
        out += [(), line(Span("Earlier tries", "title"))]
    for brief in before:
        what = " ".join(x.replace("_", " ") for x in (brief.outcome, brief.cause) if x)
        said = " ".join(sanitize(x, limit=80) for x in (what, brief.exception) if x)
        out += _row(moment(brief.ts), f"{said}, after {clock(brief.seconds)}", cells)
    if trial.evidence:
        out += [(), line(Span("Evidence", "title"))]
        shown = sanitize(trial.evidence, keep_newlines=True).split("\n")[:_EVIDENCE_ROWS]
        out += [row for text in shown for row in wrap(text, cells)]
    out.append(())
    if trial.seconds:
        words = lasted if scene.bench else short_time
        parts = [f"{sanitize(k, limit=20)} {words(v)}" for k, v in trial.seconds.items()]
        out += _row("time" if scene.bench else "seconds", ", ".join(parts), cells)
    out += _captured(trial, cells)
    if trial.trial_dir:
        out += _row("files", sanitize(trial.trial_dir, limit=1000), cells)
    return [*out, *_happened(entries, cells)]


def _earlier_tries(scene: Scene, subject: Subject, trial: TrialState) -> list[TrialBrief]:
    name, begun = trial_name(subject.group, subject.trial), scene.state.step_started or 0.0
    return [b for b in scene.state.recent if b.name == name and b.ts >= begun and b.ts != trial.finished]


def _outcome(scene: Scene, trial: TrialState, cells: int) -> list[Line]:
    outcome = trial.outcome or ""
    words = sanitize(outcome.replace("_", " "), limit=40)
    cause = f", {sanitize(trial.cause.replace('_', ' '), limit=40)}" if trial.cause else ""
    out = _row("outcome", words + cause, cells, "bold")
    if meaning := class_meaning(outcome):
        out += _row("", meaning, cells)
    if trial.rule:
        meaning = rule_meaning(trial.rule) or "a rule that this version does not know"
        out += _row("rule", f"{sanitize(trial.rule, limit=60)}: {meaning}", cells)
    if trial.exception:
        out += _row("exception", sanitize(trial.exception, limit=120), cells)
    if scene.bench:
        return out + _row("graded", _graded(trial), cells)
    if outcome in SCORED:
        out += _row("scored", f"yes, reward {number(trial.reward)}", cells)
    else:
        out += _row("scored", "no, it never trains", cells)
        out += _row("retryable", "yes" if trial.retryable else "no", cells)
    policy = policy_meaning(outcome, scene.state.on_failure, trial.retryable)
    asked = "" if outcome in SCORED else f"{sanitize(scene.state.on_failure, limit=20)}: "
    out += _row("policy", asked + policy, cells)
    if trial.hold_deadline is not None and trial.phase == "held":
        left = clock(trial.hold_deadline - scene.now)
        unless = "it is retried or cancelled" if trial.retryable else "its group or the trial is cancelled"
        out += _row("held", f"the run stops in {left} unless {unless}", cells, "infra")
    return out


def _graded(trial: TrialState) -> str:
    """Whether a benchmark's trial counts, and what may become of it."""
    if trial.outcome in SCORED:
        return f"yes, reward {number(trial.reward)}; it stands, and no mop-up runs it again unless it is named"
    if trial.outcome == "infrastructure":
        return "no: it says nothing about the agent, and a mop-up runs it again"
    if trial.outcome == "agent_failure":
        return f"it counts as {score_of(trial):g} infra-excluded; `quarterdeck bench tally --help` says how elsewhere"
    return "no: it is left out of the figures"


def _captured(trial: TrialState, cells: int) -> list[Line]:
    """What was captured of it: how calls follow each other, what does not train, and what was refused."""
    refused = _row("refused", _tally(trial.refused), cells) if trial.refused else []
    if not (trial.segments or trial.bridged or trial.unbridged):
        return refused
    calls = trial.bridged + sum(trial.unbridged.values())
    anew = _tally({reason: n for reason, n in trial.unbridged.items() if reason != "first"})
    out = _row(
        "captured",
        f"{_plural(calls, 'call')} in {_plural(trial.segments, 'segment')}; {trial.bridged} extend the one before"
        + (f"; begun anew: {anew}" if anew else ""),
        cells,
    )
    if trial.excluded:
        out += _row("untrained", _tally(trial.excluded), cells)
    return out + refused


def _plural(number: int, what: str) -> str:
    return f"{count(number)} {what}{'' if number == 1 else 's'}"


def _tally(counts: dict[str, int]) -> str:
    ranked = sorted(counts.items(), key=lambda item: -item[1])[:8]
    return ", ".join(f"{sanitize(reason, limit=20)} {count(number)}" for reason, number in ranked)


def _happened(entries: Sequence[Entry], cells: int) -> list[Line]:
    out: list[Line] = [(), line(Span("What happened", "title"))] if entries else []
    for entry in entries:
        role = "infra" if entry.level == "error" else ""
        out += _row(moment(entry.ts), sanitize(entry.text, limit=400), cells, role)
    return out


def _row(name: str, value: str, cells: int, role: str = "") -> list[Line]:
    """A name and its value, which goes on beneath itself."""
    first, *rest = wrap(value, max(10, cells - _NAME), role)
    return [line(Span(f"{name:<{_NAME}}", "muted"), *first), *(line(" " * _NAME, *row) for row in rest)]


def moment(ts: float) -> str:
    """Time of day."""
    return time.strftime("%H:%M:%S", time.localtime(ts))
