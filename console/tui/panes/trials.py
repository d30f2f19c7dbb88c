"""The trials of a group, one row each: sign, phase or outcome, turns, tokens, what it does now, and how long."""

from __future__ import annotations

from console.outcomes.classes import SCORED
from console.state.model import GroupState, TrialState
from console.tui.glyphs import SIGNS, kind_of, sign_text
from console.tui.panes.bench import money
from console.tui.picture import Scene, shown_trials
from console.tui.text import Line, Span, cell, clock, count, fit, number, restyle

WIDE = 76
REUSED, STOOD = "reused", "stood"
"""Of a trial that ended under an engine before and counts again after a resume; of a benchmark, in a job before."""
_SAME_TIME = 10.0
"""Seconds by which a phase must have begun after its try for both times to be told."""
_STALE_COUNTS = 20.0
"""Seconds after which the last report on open calls says nothing about now."""
_LABELS = {
    "pass": "pass",
    "partial": "partial",
    "zero": "zero",
    "agent_timeout": "timeout",
    "context_overflow": "context",
    "output_limit": "out limit",
    "running": "agent",
    "stalled": "stalled",
    "verifying": "verify",
}


def trials_title(scene: Scene) -> tuple[str, str]:
    """Left and right part of the section's title."""
    group = scene.group
    if group is None:
        return "Trials", ""
    task = cell(group.task, 40).strip()
    shown = shown_trials(scene.selection, group, scene.now)
    picked = f"{len(shown)} of " if len(shown) < len(group.trials) else f"{scene.selection.trial + 1}/"
    what = "Attempts at" if scene.bench else "Trials of"
    return f"{what} g{group.group + 1}  {task}", f"{picked}{len(group.trials)}"


def trial_rows(scene: Scene, cells: int, rows: int) -> list[Line]:
    """At most `rows` lines, the selected trial among them."""
    group = scene.group
    if group is None:
        return []
    shown = shown_trials(scene.selection, group, scene.now)
    index = next((i for i, t in enumerate(shown) if t is scene.trial), 0)
    top = scene.selection.window("trials", len(shown), rows, index)
    table = TrialRows(scene, cells)
    return [table.row(group, trial) for trial in shown[top : top + rows]]


class TrialRows:
    """Column widths of the trials for one paint. `lead`: cells before the name that the caller fills."""

    def __init__(self, scene: Scene, cells: int, lead: int = 1) -> None:
        self.scene, self.cells = scene, cells
        self.wide = cells - lead >= WIDE
        self.label = 12 if cells - lead >= 62 else 8
        self.tries = scene.state.tunables.get("max_tries")
        fixed = lead + 5 + 1 + 2 + self.label + (28 if self.wide else 20) + 2 + 7 + 1
        self.note = max(6, cells - fixed)
        self.calling = _calling(scene)
        self.reused = STOOD if scene.bench else REUSED

    def row(self, group: GroupState, trial: TrialState, lead: str = "") -> Line:
        """One trial; `lead` stands before it, in the tree."""
        scene = self.scene
        selected = group is scene.group and trial is scene.trial
        focused = selected and scene.selection.focus == "trials"
        kind = kind_of(trial, scene.now)
        sign = SIGNS[kind]
        spans = [
            Span(scene.marks.cursor if selected else " ", "title" if focused else "muted"),
        ]
        if lead:
            spans = [Span(lead[:2], "rule"), spans[0] if selected else Span(lead[2:], "rule")]
        spans += [
            Span(f" {f't{trial.trial + 1}':<3} "),
            Span(sign_text(kind, scene.ascii), sign.role),
            Span(" " + cell(label(trial, kind), self.label) + " "),
        ]
        if trial.phase != "queued":
            note = self._note(trial, kind)
            took = elapsed(trial, scene.now)
            turns = f"{trial.turns:>3}" if trial.turns < 1000 else count(trial.turns)
            if self.wide:
                tokens = f"  in {count(trial.prompt_tokens):>5} out {count(trial.sampled_tokens):>5}"
            else:
                tokens = f" {count(trial.prompt_tokens):>5}/{count(trial.sampled_tokens):<5}"
            turn = f"turn {turns}" if self.wide else f"turn{turns:>4}"
            if scene.bench:  # model calls are not seen; what it cost often is
                turn = f"{money(trial.cost_usd) if trial.cost_usd is not None else '':>8}"
            spans += [
                Span(turn),
                Span(tokens),
                Span("  " + cell(note.text, self.note), note.role),
                Span(f"{'' if took is None else clock(took):>7} ", "muted"),
            ]
        out = fit(spans, self.cells)
        return restyle(out, "selected") if focused else out

    def _note(self, trial: TrialState, kind: str) -> Span:
        scene = self.scene
        if trial.phase == "held":
            left = None if trial.hold_deadline is None else trial.hold_deadline - scene.now
            acts = trial.retryable and not scene.dead and scene.link.status != "replay"
            return Span(f"HELD {clock(left)}{'  r retry' if acts else ''}{self._try(trial)}", "infra+bold")
        if trial.phase == "done":
            if trial.outcome in SCORED:
                again = f"  {self.reused}" if trial.reused else ""
                return Span(f"r {number(trial.reward, 2)}{self._try(trial)}{again}")
            words = [self._try(trial, always=trial.outcome == "infrastructure").strip()]
            if trial.outcome == "infrastructure" and not scene.bench:
                words.append("retryable" if trial.retryable else "not retryable")
            elif trial.cause:
                words.append(trial.cause.replace("_", " "))
            words.append(self.reused if trial.reused else "")
            return Span("  ".join(w for w in words if w), "muted")
        if scene.dead and _at_work(trial):
            return Span(f"when the engine died{self._try(trial)}", "limit")
        if trial.phase == "agent" and not scene.bench:
            idle = clock(scene.now - trial.last_event) if trial.last_event else "--"
            text = f"{'idle' if kind == 'stalled' else self.calling or 'idle'} {idle}"
        elif scene.bench and (elapsed(trial, scene.now) or 0.0) - (scene.now - trial.phase_since) < _SAME_TIME:
            text = ""  # the last column has it
        else:
            text = f"for {clock(scene.now - trial.phase_since)}"
        return Span((text + self._try(trial)).strip(), "limit" if kind == "stalled" else "muted")

    def _try(self, trial: TrialState, always: bool = False) -> str:
        if not trial.try_ and not always:
            return ""
        return f"  try {trial.try_ + 1}" + (
            "" if self.tries is None or trial.try_ >= self.tries else f"/{self.tries:.0f}"
        )


def _calling(scene: Scene) -> str:
    """What every agent at work does, as far as the count of open model calls tells: empty when it does not."""
    capture = scene.state.capture
    if scene.dead or not capture.reported or scene.now - capture.reported > _STALE_COUNTS:
        return ""
    if capture.inflight == 0:
        return "in a tool"
    agents = sum(t.phase == "agent" for g in scene.state.groups.values() for t in g.trials)
    return "generating" if capture.inflight >= agents else ""


def _at_work(trial: TrialState) -> bool:
    return trial.phase not in ("queued", "retrying", "held", "done")


def meaning(scene: Scene, trial: TrialState) -> str:
    """What the trial's sign means; of a run whose engine is gone, what the trial was at then."""
    said = SIGNS[kind_of(trial, scene.now)].meaning
    return f"{said} when the engine died" if scene.dead and _at_work(trial) else said


def elapsed(trial: TrialState, now: float) -> float | None:
    """Seconds that the try has taken so far, None when it has not begun."""
    if trial.started is None:
        return None
    return (trial.finished if trial.finished is not None and trial.phase in ("done", "held") else now) - trial.started


def label(trial: TrialState, kind: str) -> str:
    """Phase or outcome in a word, not sanitised: an exception's name may be in it."""
    if kind in _LABELS:
        return _LABELS[kind]
    if trial.phase in ("held", "done") and trial.outcome != "cancelled":
        return trial.exception or (trial.cause or trial.outcome or "").replace("_", " ")
    return trial.phase if kind != "cancelled" else "cancelled"
