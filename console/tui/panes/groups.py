"""The groups of the step, each with its strip of trials, and the trials of the selected group."""

from __future__ import annotations

from console.outcomes.classes import SCORED
from console.state.model import CommandState, GroupState, TrialState
from console.tui.glyphs import SIGNS, kind_of, sign_text
from console.tui.picture import Scene
from console.tui.text import Line, Span, cell, clock, count, fit, line, number, restyle

STRIP_MAX = 32
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


def groups_title(scene: Scene) -> tuple[str, str]:
    """Left and right part of the section's title."""
    trials = [t for g in scene.groups for t in g.trials]
    scored = sum(t.outcome in SCORED and t.phase == "done" for t in trials)
    kept = sum(g.kept is True for g in scene.groups)
    failed = sum(t.phase in ("done", "held") and t.outcome not in SCORED and t.outcome != "cancelled" for t in trials)
    live = sum(t.phase not in ("queued", "held", "done") for t in trials)
    dot = scene.marks.dot
    parts = [f"{len(scene.groups)}", f"kept {kept}", f"scored {scored}/{len(trials)}"]
    parts.append(f"were live {live}" if scene.dead else f"live {live}")
    if failed:
        parts.append(f"not scored {failed}")
    return f"Groups  {f' {dot} '.join(parts)}", f"sort: {scene.selection.sort}"


def group_rows(scene: Scene, cells: int, start: int, rows: int) -> list[Line]:
    """`rows` lines from the `start`th group on."""
    shown = scene.groups[start : start + rows]
    if not shown:
        return [line(Span(f"  {_waiting(scene)}", "muted"))]
    columns = _Columns(scene, cells)
    return [columns.row(group) for group in shown]


def _waiting(scene: Scene) -> str:
    state = scene.state
    if state.status in ("finished", "stopped", "failed"):
        return "the run is over"
    if scene.link.status == "connecting":
        return "connecting to the engine"
    return "no step has begun yet" if state.step is None else "no groups yet"


class _Columns:
    """Column widths of the groups table for one paint. Columns go in the order sd, tokens, note."""

    def __init__(self, scene: Scene, cells: int) -> None:
        self.scene, self.cells = scene, cells
        groups = scene.groups
        self.id = max(len(f"g{g.group + 1}") for g in groups)
        most = max(len(g.trials) for g in groups)
        self.strip = min(most, STRIP_MAX)
        self.done = 2 * len(str(most)) + 1
        self.note = 10 if cells < 100 else 22
        self.sd, self.tokens = 8, 5
        self.time = 5 if all(self._age(g) < 3600 for g in groups) else 7
        fixed = 2 + self.id + 1 + 1 + self.strip + 2 + self.done + 2 + 6 + 2 + self.time
        longest = max(12, min(28, max(len(g.task) for g in groups)))
        for column in ("sd", "tokens", "note"):
            if self._task(fixed) >= min(longest, 16):
                break
            setattr(self, column, 0)
        self.task = max(4, min(longest, self._task(fixed)))

    def _age(self, group: GroupState) -> float:
        return (group.finished if group.finished is not None else self.scene.now) - group.started

    def _task(self, fixed: int) -> int:
        return self.cells - fixed - sum(2 + size for size in (self.sd, self.tokens, self.note) if size)

    def row(self, group: GroupState) -> Line:
        scene = self.scene
        selected = group.group == scene.selection.group
        sd = f"sd {number(group.reward_std, 2)}" if group.reward_std is not None else "sd --"
        tokens = sum(t.prompt_tokens + t.sampled_tokens for t in group.trials)
        done = sum(t.phase == "done" for t in group.trials)
        spans = [
            Span(scene.marks.cursor if selected else " ", "title" if selected else ""),
            Span(" " + cell(f"g{group.group + 1}", self.id) + " ", "muted" if group.kept is not None else ""),
            Span(cell(group.task, self.task) + " "),
            *self._strip(group),
            Span("  " + cell(f"{done}/{len(group.trials)}", self.done, right=True)),
            Span("  " + cell(f"r {number(group.reward_mean, 2)}", 6)),
        ]
        if self.sd:
            flat = group.zero_variance or (group.reward_std == 0 and done == len(group.trials) and done > 1)
            text = "sd 0" if group.reward_std == 0 else sd
            spans += [
                Span("  " + text),
                Span("=" if flat else " ", "limit"),
                Span(" " * max(0, self.sd - len(text) - 1)),
            ]
        if self.tokens:
            spans.append(Span("  " + cell(count(tokens), self.tokens, right=True)))
        spans.append(Span("  " + cell(clock(self._age(group)), self.time, right=True)))
        if self.note:
            note = self._note(group)
            spans += [Span("  "), Span(cell(note.text, self.note), note.role)]
        out = fit(spans, self.cells)
        return restyle(out, "selected") if selected else out

    def _strip(self, group: GroupState) -> list[Span]:
        shown = group.trials[: self.strip]
        spans: list[Span] = []
        for trial in shown:
            kind = kind_of(trial, self.scene.now)
            spans.append(Span(sign_text(kind, self.scene.ascii), SIGNS[kind].role))
        if len(group.trials) > self.strip and spans:
            spans[-1] = Span("…", "muted")
        if len(spans) < self.strip:
            spans.append(Span(" " * (self.strip - len(spans))))
        return _merged(spans)

    def _note(self, group: GroupState) -> Span:
        pending = pending_command(self.scene, group.group)
        if pending is not None:
            doing = "retrying" if pending.command == "retry" else "cancelling"
            return Span(doing if pending.status == "accepted" else "requested", "limit")
        held = [t for t in group.trials if t.phase == "held"]
        if held:
            left = min((t.hold_deadline or 0.0) for t in held) - self.scene.now
            return Span(f"HELD {clock(left)}", "infra+bold")
        if group.kept is False:
            return Span(f"dropped {group.reason}" if self.cells >= 78 and self.note >= 22 else "dropped", "limit")
        if group.zero_variance:
            return Span("no signal", "limit")
        return Span("kept", "muted") if group.kept else Span("")


def pending_command(scene: Scene, group: int) -> CommandState | None:
    """A command on this group (or one of its trials) that is on its way."""
    for command in reversed(scene.state.commands.values()):
        if command.finished is None and command.args.get("group") == group:
            return command
    return None


def _merged(spans: list[Span]) -> list[Span]:
    out: list[Span] = []
    for span in spans:
        if out and out[-1].role == span.role:
            out[-1] = Span(out[-1].text + span.text, span.role)
        else:
            out.append(span)
    return out


def trials_title(scene: Scene) -> tuple[str, str]:
    """Left and right part of the section's title."""
    group = scene.group
    if group is None:
        return "Trials", ""
    task = cell(group.task, min(40, len(group.task) or 1)).strip()
    return f"Trials of g{group.group + 1}  {task}", f"{scene.selection.trial + 1}/{len(group.trials)}"


def trial_rows(scene: Scene, cells: int, start: int, rows: int) -> list[Line]:
    """`rows` lines from the `start`th trial of the selected group on."""
    group = scene.group
    if group is None:
        return []
    return [_trial_row(scene, trial, cells) for trial in group.trials[start : start + rows]]


def _trial_row(scene: Scene, trial: TrialState, cells: int) -> Line:
    selected = trial.trial == scene.selection.trial
    kind = kind_of(trial, scene.now)
    sign = SIGNS[kind]
    began = trial.started
    ended = trial.finished if trial.finished is not None and trial.phase in ("done", "held") else scene.now
    spans = [
        Span(
            scene.marks.cursor if selected else " ",
            "title" if selected and scene.selection.focus == "trials" else "muted",
        ),
        Span(f" {cell(f't{trial.trial + 1}', 3)} "),
        Span(sign_text(kind, scene.ascii), sign.role),
        Span(" " + cell(_label(trial, kind), 12) + " "),
    ]
    if trial.phase != "queued":
        note = _trial_note(scene, trial, kind)
        size = max(8, cells - 59)
        spans += [
            Span(f"turn {trial.turns:>3}"),
            Span(f"  in {count(trial.prompt_tokens):>5}"),
            Span(f" out {count(trial.sampled_tokens):>5}"),
            Span("  " + cell(note.text, size), note.role),
            Span(cell(clock(ended - began), 7, right=True) if began is not None else " " * 7, "muted"),
        ]
    out = fit(spans, cells)
    return restyle(out, "selected") if selected and scene.selection.focus == "trials" else out


def _label(trial: TrialState, kind: str) -> str:
    if kind in _LABELS:
        return _LABELS[kind]
    if trial.phase in ("held", "done") and trial.outcome != "cancelled":
        return trial.exception or (trial.cause or trial.outcome or "").replace("_", " ")
    return trial.phase if kind != "cancelled" else "cancelled"


def _trial_note(scene: Scene, trial: TrialState, kind: str) -> Span:
    if trial.phase == "held":
        left = None if trial.hold_deadline is None else trial.hold_deadline - scene.now
        return Span(f"HELD {clock(left)}" + ("  r retry" if trial.retryable and not scene.dead else ""), "infra+bold")
    if trial.phase == "done":
        if trial.outcome in SCORED:
            return Span(f"r {number(trial.reward, 2)}" + (f"  try {trial.try_ + 1}" if trial.try_ else ""))
        words = [f"try {trial.try_ + 1}"] if trial.try_ or trial.outcome == "infrastructure" else []
        if trial.outcome == "infrastructure":
            words.append("retryable" if trial.retryable else "not retryable")
        elif trial.cause:
            words.append(trial.cause.replace("_", " "))
        return Span("  ".join(words), "muted")
    idle = scene.now - trial.last_event if trial.last_event else None
    text = f"idle {clock(idle)}" if trial.phase == "agent" else f"for {clock(scene.now - trial.phase_since)}"
    if trial.try_:
        text += f"  try {trial.try_ + 1}"
    return Span(text, "limit" if kind == "stalled" else "muted")
