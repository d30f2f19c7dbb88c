"""The selected trial at a glance: how it stands, why its outcome is what it is, where its time went, what was said.

All of it comes from the state; the trial's own page has its transcript, verifier, tokens and log.
"""

from __future__ import annotations

import time

from console.outcomes.classes import SCORED
from console.state.benchmark import score_of
from console.state.lines import trial_name
from console.state.model import TrialState
from console.state.sanitize import sanitize
from console.tui.glyphs import SIGNS, kind_of, sign_text
from console.tui.panes.bench import money
from console.tui.panes.trials import elapsed, meaning
from console.tui.picture import Scene
from console.tui.text import Line, Span, cell, clock, count, lasted, line, number, short_time, wrap

_LABEL = 12
_EVIDENCE_ROWS = 8


def detail_title(scene: Scene) -> tuple[str, str]:
    """Left and right part of the pane's title."""
    if scene.group is None or scene.trial is None:
        return "Trial", ""
    name = trial_name(scene.group.group, scene.trial.trial)
    what = "Attempt" if scene.bench else "Trial"
    return f"{what} {name}  {cell(scene.group.task, 30).strip()}", "enter opens"


def detail_lines(scene: Scene, cells: int, rows: int, with_tail: bool = False) -> list[Line]:
    """At most `rows` lines from the pane's scroll position on; `with_tail`: what is left is the transcript's."""
    if scene.trial is None or scene.group is None:
        return [line(Span("  no trial is selected", "muted"))]
    lines = [line(" ", *one) for one in _glance(scene, scene.trial, cells - 2)]
    room = rows - len(lines) - 1
    if with_tail and scene.tail and room > 0:
        lines += [(Span(f" {scene.marks.light * (cells - 2)}", "rule"),), *(line(" ", *x) for x in scene.tail[-room:])]
    top = scene.selection.tops["detail"] = max(0, min(scene.selection.tops.get("detail", 0), len(lines) - rows))
    return lines[top : top + rows]


def _glance(scene: Scene, trial: TrialState, cells: int) -> list[Line]:
    kind = kind_of(trial, scene.now)
    sign = SIGNS[kind]
    out = [line(Span(sign_text(kind, scene.ascii), sign.role), f" {meaning(scene, trial)}")]
    if trial.hold_deadline is not None and trial.phase == "held":
        text = f"the run stops in {clock(trial.hold_deadline - scene.now)} unless it is retried or its group cancelled"
        out += _row("held", text, cells, "infra+bold")
    if trial.outcome is not None:
        out += _row("outcome", _outcome(scene, trial), cells, "bold")
        out += _row("exception", sanitize(trial.exception, limit=200), cells) if trial.exception else []
    else:
        out += _row("phase", f"{sanitize(trial.phase, limit=20)} for {clock(scene.now - trial.phase_since)}", cells)
    if trial.reused:
        out += _row(
            "stood" if scene.bench else "reused",
            "it ended in an earlier run of the job and stands: nothing was run"
            if scene.bench
            else "it ended under an engine before this one and counts again: nothing was run",
            cells,
            "muted",
        )
    took, turns = clock(elapsed(trial, scene.now)), f"{trial.turns} turn{'' if trial.turns == 1 else 's'}"
    out += _row(
        "so far" if trial.outcome is None else "in all",
        _used(trial, took)
        if scene.bench
        else f"{turns}, in {count(trial.prompt_tokens)} out {count(trial.sampled_tokens)} tokens, {took}",
        cells,
    )
    if trial.evidence or trial.rule:
        why = sanitize(trial.evidence or "no evidence was kept", limit=1200)
        rule = f" (rule {sanitize(trial.rule, limit=60)})" if trial.rule else ""
        out += _row("why", why + rule, cells)[:_EVIDENCE_ROWS]
    out += _times(scene, trial, cells)
    if trial.trial_dir:
        out += _row("files", sanitize(trial.trial_dir, limit=400), cells)
    out += _row("task" if scene.bench else "group", _group(scene), cells)
    return out


def _outcome(scene: Scene, trial: TrialState) -> str:
    outcome = sanitize((trial.outcome or "").replace("_", " "), limit=40)
    cause = f", {sanitize(trial.cause.replace('_', ' '), limit=40)}" if trial.cause else ""
    if trial.outcome in SCORED:
        said = f"r {number(trial.reward)}"
    elif scene.bench:
        score = score_of(trial)
        said = (
            f"counts as {score:g}"
            if score is not None
            else "not graded" + (", a mop-up runs it again" if trial.outcome == "infrastructure" else "")
        )
    else:
        said = "not scored" + (", retryable" if trial.retryable else "")
    most = scene.state.tunables.get("max_tries")
    # Tries are numbered over all engines of the run, and each engine grants so many anew.
    tries = f"  try {trial.try_ + 1}" + ("" if most is None or trial.try_ >= most else f"/{most:.0f}")
    return f"{outcome}{cause}: {said}{tries}"


def _used(trial: TrialState, took: str) -> str:
    """Tokens, time and cost of a benchmark's trial. Harbor tells the tokens when it ends."""
    if trial.outcome is None:
        return took
    cached = f" (cached {count(trial.cached_tokens)})" if trial.cached_tokens else ""
    cost = "" if trial.cost_usd is None else f", {money(trial.cost_usd)}"
    return f"in {count(trial.prompt_tokens)}{cached} out {count(trial.sampled_tokens)} tokens, {took}{cost}"


def _times(scene: Scene, trial: TrialState, cells: int) -> list[Line]:
    """A bar for each phase that has a time of its own."""
    parts = [(name, value) for name, value in trial.seconds.items() if name != "total" and value > 0][:8]
    longest = max((value for _, value in parts), default=0.0)
    size = max(4, min(40, cells - _LABEL - 9))
    out: list[Line] = []
    for name, value in parts:
        bar = max(1, round(size * value / longest))
        out.append(
            line(
                Span(cell(name, _LABEL), "muted"),
                Span(f"{lasted(value) if scene.bench else short_time(value):>7}  "),
                Span(scene.marks.full * bar, "accent"),
            )
        )
    return out


def _group(scene: Scene) -> str:
    group = scene.group
    if group is None:
        return ""
    done = sum(t.phase == "done" for t in group.trials)
    text = f"g{group.group + 1}: {done} of {len(group.trials)} done, r {number(group.reward_mean, 2)}"
    text += f" sd {number(group.reward_std, 2)}"
    if scene.bench:
        return text
    if group.kept is False:
        return f"{text}, dropped: {sanitize(group.reason, limit=200)}"
    if group.zero_variance:
        return f"{text}, no signal: all rewards are equal"
    return text + (", kept" if group.kept else "")


def _row(name: str, text: str, cells: int, role: str = "") -> list[Line]:
    head, *rest = wrap(text, cells - _LABEL, role)
    return [line(Span(f"{name:<{_LABEL}}", "muted"), *head), *(line(" " * _LABEL, *more) for more in rest)]


def tail_title(scene: Scene) -> tuple[str, str]:
    """Left and right part of the pane's title."""
    if scene.group is None or scene.trial is None:
        return "Transcript", ""
    name = trial_name(scene.group.group, scene.trial.trial)
    return (f"Transcript {name}", "t opens") if scene.tail else (f"Events of {name}", "t opens its transcript")


def tail_lines(scene: Scene, cells: int, rows: int) -> list[Line]:
    """The newest lines of the transcript, or, as long as those are not known, what was reported of the trial."""
    if scene.tail:
        return list(scene.tail[-rows:])
    if scene.group is None or scene.trial is None:
        return []
    name = trial_name(scene.group.group, scene.trial.trial)
    out: list[Line] = []
    for one in reversed(scene.state.lines):
        words = one.text.replace(":", " ").split()
        if name not in words:
            continue
        moment = time.strftime("%H:%M:%S", time.localtime(one.ts))
        head, *rest = wrap(sanitize(one.text, limit=400), max(10, cells - 11))
        role = "infra" if one.level == "error" else ""
        out.append(line(Span(f" {moment} ", "muted"), *(Span(s.text, role) for s in head)))
        out += [line(" " * 10, *(Span(s.text, role) for s in more)) for more in rest]
        if len(out) >= rows:
            break
    return out[:rows] or [line(Span("  nothing was reported of it yet", "muted"))]
