"""The groups of the step, each with its strip of trials; on wide screens with its trials beneath it, as a tree."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from rich.cells import cell_len

from console.outcomes.classes import SCORED
from console.state.benchmark import score_of
from console.state.model import CommandState, GroupState, TrialState
from console.state.sanitize import sanitize
from console.tui.glyphs import SIGNS, kind_of, sign_text
from console.tui.panes.trials import TrialRows, elapsed
from console.tui.picture import DONE, Scene, attention, shown_trials
from console.tui.text import Line, Span, cell, clock, count, fit, line, number, restyle

STRIP_MAX = 64
STRIP_COUNTED = 22
_TASK_MIN = 10
GROUPS, TASKS = "Groups", "Tasks"
"""What the rows are, in a training and in a benchmark."""
_RANK_NAMES = {0: "held", 1: "failed", 2: "stalled", 3: "running", 4: "waiting", DONE: "done"}
Row = tuple[GroupState, TrialState | None]
"""A row of the tree: a group, or one of its trials."""


def groups_title(scene: Scene) -> tuple[str, str]:
    """Left and right part of the section's title."""
    groups = scene.state.groups.values()
    total = scored = failed = live = 0
    for group in groups:
        for t in group.trials:
            total += 1
            if scene.bench and t.phase == "done" and t.outcome is not None:
                counts = score_of(t) is not None
                scored, failed = scored + counts, failed + (not counts)
            elif t.phase == "done" or t.phase == "held":
                if t.outcome in SCORED:
                    scored += t.phase == "done"
                elif t.outcome != "cancelled":
                    failed += 1
            elif t.phase != "queued":
                live += 1
    selection, dot = scene.selection, scene.marks.dot
    parts = [f"{len(groups)}"]
    if selection.filter:
        parts = [f"/{cell(selection.filter.text, 24).strip()}", f"{len(scene.groups)} of {len(groups)}"]
    kept = sum(g.kept is True for g in groups)
    if scene.bench:
        parts += [f"counted {scored}/{total}"]  # what passed is told of these, infra-excluded
    else:
        parts += [f"kept {kept}"] * bool(kept) + [f"scored {scored}/{total}"]
    parts.append(f"were live {live}" if scene.dead else f"live {live}")
    if failed:
        parts.append(f"{'left out' if scene.bench else 'not scored'} {failed}")
    if selection.marked:
        parts.append(f"marked {len(selection.marked)}")
    name = TASKS if scene.bench else GROUPS
    return f"{name}  {f' {dot} '.join(parts)}", f"sort: {selection.sort}"


def group_rows(scene: Scene, cells: int, rows: int) -> list[Line]:
    """At most `rows` lines with the selected group among them; when there are more, the last line sums up the rest."""
    groups = scene.groups
    if not groups:
        return [line(Span(f"  {_empty(scene)}", "muted"))]
    index = next((i for i, g in enumerate(groups) if g is scene.group), 0)
    size = _rows_for(len(groups), rows)
    top = scene.selection.window("groups", len(groups), size, index)
    table = _Table(scene, cells)
    out = [table.row(group) for group in groups[top : top + size]]
    return [*out, _rest(scene, groups, top, size, cells)] if size < rows and len(groups) > size else out


def _rows_for(total: int, rows: int) -> int:
    return rows if total <= rows or rows < 4 else rows - 1


def _empty(scene: Scene) -> str:
    state = scene.state
    if state.groups:
        return f"no {'task' if scene.bench else 'group'} passes the filter: esc clears it"
    if state.status in ("finished", "stopped", "failed"):
        return "the run is over"
    if scene.link.status == "connecting":
        return "connecting to the engine"
    if scene.bench:
        return "no task is known yet" if state.step is None else "no task has begun yet"
    return "no step has begun yet" if state.step is None else "no groups yet"


def _rest(scene: Scene, groups: list[GroupState], top: int, size: int, cells: int) -> Line:
    """What is not in sight, by how much it needs the operator."""
    marks = scene.marks
    hidden = Counter(attention(g, scene.now) for g in (*groups[:top], *groups[top + size :]))
    below = len(groups) - top - size
    where = [f"{marks.up} {top} above"] * (top > 0) + [f"{marks.down} {below} below"] * (below > 0)
    text = f"  {'  '.join(where)}: " + f" {marks.dot} ".join(f"{n} {_RANK_NAMES[r]}" for r, n in sorted(hidden.items()))
    return fit(line(Span(text, "limit" if 0 in hidden or 1 in hidden else "muted")), cells)


def tree_title(scene: Scene) -> tuple[str, str]:
    """Left and right part of the tree's title."""
    left, right = groups_title(scene)
    if scene.bench:
        return left.replace(TASKS, f"{TASKS} & Attempts", 1), right
    return left.replace(GROUPS, f"{GROUPS} & Trials", 1), right


def tree_rows(scene: Scene, cells: int, rows: int) -> list[Line]:
    """The groups with their trials beneath them, as far as there is room: those of the selected group first."""
    if not scene.groups:
        return [line(Span(f"  {_empty(scene)}", "muted"))]
    flat = tree(scene, rows)
    own = [i for i, (g, _) in enumerate(flat) if g is scene.group]
    index = next((i for i in own if flat[i][1] is scene.trial), own[0]) if scene.selection.focus == "trials" else own[0]
    size = _rows_for(len(flat), rows)
    scene.selection.window("tree", len(flat), size, own[-1])
    top = scene.selection.window("tree", len(flat), size, index)
    table, trials = _Table(scene, cells, "bold"), TrialRows(scene, cells, lead=3)
    out: list[Line] = []
    for at in range(top, min(top + size, len(flat))):
        group, trial = flat[at]
        if trial is None:
            out.append(table.row(group))
        else:
            last = at + 1 == len(flat) or flat[at + 1][0] is not group
            out.append(trials.row(group, trial, f"  {scene.marks.leaf if last else scene.marks.branch}"))
    if len(flat) <= size or size == rows:
        return out
    seen = {id(g) for g, _ in flat[top : top + size]}
    first = next(i for i, g in enumerate(scene.groups) if id(g) in seen)
    return [*out, _rest(scene, scene.groups, first, len(seen), cells)]


def tree(scene: Scene, rows: int) -> list[Row]:
    """The rows of the tree. Groups open in the order shown while all fits; the selected one is open in any case."""
    selection, now = scene.selection, scene.now
    room = rows - len(scene.groups)
    trials: dict[int, list[TrialState]] = {}
    if scene.group is not None:
        trials[scene.group.group] = shown_trials(selection, scene.group, now)
        room -= len(trials[scene.group.group])
    for group in scene.groups:
        if group is not scene.group and len(group.trials) <= room:
            trials[group.group] = shown_trials(selection, group, now)
            room -= len(trials[group.group])
    return [row for g in scene.groups for row in ((g, None), *((g, t) for t in trials.get(g.group, ())))]


class _Table:
    """Columns of the groups for one paint; they go in the order sd, tokens, note. `name`: role of the names."""

    def __init__(self, scene: Scene, cells: int, name: str = "") -> None:
        self.scene, self.cells, self.name = scene, cells, name
        groups = scene.groups
        self.pending = pending_commands(scene)
        self.id = max(len(f"g{g.group + 1}") for g in groups)
        most = max(len(g.trials) for g in groups)
        self.done = 2 * len(str(most)) + 1
        self.note = 22 if cells >= 100 else 8 if scene.bench else 10
        self.sd, self.tokens = 8, 9 if scene.bench else 5
        self.time = 5 if all(self._age(g) < 3600 for g in groups) else 7
        fixed = 2 + self.id + 1 + 1 + 2 + self.done + 2 + 6 + 2 + self.time
        room = max(8, cells - fixed - _TASK_MIN)
        self.strip = most if most <= min(room, STRIP_MAX) else min(STRIP_COUNTED, room)
        fixed += self.strip
        longest = max(12, min(28, max(_task_cells(g.task) for g in groups)))
        if scene.bench and scene.state.bench.attempts == 1:
            self.sd = 0
        for column, enough in (("sd", 16), ("tokens", 16), ("note", _TASK_MIN)):
            if self._task(fixed) >= min(longest, enough):
                break
            setattr(self, column, 0)
        self.task = max(4, min(longest, self._task(fixed)))

    def _age(self, group: GroupState) -> float:
        if self.scene.bench:  # its attempts wait between each other: the longest of them that ran, or runs
            return max((elapsed(t, self.scene.now) or t.seconds.get("total", 0.0) for t in group.trials), default=0.0)
        return (group.finished if group.finished is not None else self.scene.now) - group.started

    def _task(self, fixed: int) -> int:
        return self.cells - 1 - fixed - sum(2 + size for size in (self.sd, self.tokens, self.note) if size)

    def row(self, group: GroupState) -> Line:
        scene = self.scene
        selected = group is scene.group
        marked = group.group in scene.selection.marked
        done = tokens = 0
        for t in group.trials:
            done += t.phase == "done"
            tokens += t.prompt_tokens + t.sampled_tokens
        spans = [
            Span(scene.marks.cursor if selected else " ", "title" if selected else ""),
            Span("*" if marked else " ", "key" if marked else ""),
            Span(f"{f'g{group.group + 1}':<{self.id}} ", "muted" if group.kept is not None else ""),
            Span(cell(group.task, self.task) + " ", self.name),
            *self._strip(group),
            Span(f"  {f'{done}/{len(group.trials)}':>{self.done}}"),
            Span("  " + cell(f"r {number(group.reward_mean, 2)}", 6)),
        ]
        if self.sd:
            flat = group.zero_variance or (group.reward_std == 0 and done == len(group.trials) and done > 1)
            flat = flat and not scene.bench  # nothing is learnt from it anyway
            text = cell(f"sd {number(group.reward_std, 2)}", self.sd - 1).rstrip()
            spans += [Span("  " + text), Span(f"{'=' if flat else ' ':<{self.sd - len(text)}}", "limit")]
        if self.tokens:
            spans.append(Span(f"  {count(tokens):>5}{' tok' if scene.bench else ''}"))
        spans.append(Span(f"  {clock(self._age(group)):>{self.time}}"))
        if self.note:
            note = self._note(group)
            spans += [Span("  "), Span(cell(note.text, self.note), note.role)]
        out = fit(spans, self.cells)
        return restyle(out, "selected") if selected else out

    def _strip(self, group: GroupState) -> list[Span]:
        """One sign a trial, or, when they are too many, how many there are of each sign."""
        now, plain = self.scene.now, self.scene.ascii
        if len(group.trials) > self.strip:
            return self._counted(group)
        spans: list[Span] = []
        text, role = "", None
        for trial in group.trials:
            kind = kind_of(trial, now)
            if SIGNS[kind].role != role:
                if text:
                    spans.append(Span(text, role or ""))
                text, role = "", SIGNS[kind].role
            text += sign_text(kind, plain)
        if text:
            spans.append(Span(text, role or ""))
        if len(group.trials) < self.strip:
            spans.append(Span(" " * (self.strip - len(group.trials))))
        return spans

    def _counted(self, group: GroupState) -> list[Span]:
        found = Counter(kind_of(t, self.scene.now) for t in group.trials)
        spans: list[Span] = []
        left = self.strip
        for kind in sorted(found, key=lambda k: _ORDER[k]):
            text = f"{found[kind]}{sign_text(kind, self.scene.ascii)}"
            if len(text) > left:
                break
            spans += [Span(text, SIGNS[kind].role), Span(" " if len(text) < left else "")]
            left -= len(text) + (len(text) < left)
        return [*spans, Span(" " * left)]

    def _note(self, group: GroupState) -> Span:
        pending = self.pending.get(group.group)
        if pending is not None:
            doing = "retrying" if pending.command == "retry" else "cancelling"
            return Span(doing if pending.status == "accepted" else "requested", "limit")
        deadlines = [t.hold_deadline or 0.0 for t in group.trials if t.phase == "held"]
        if deadlines:
            return Span(f"HELD {clock(min(deadlines) - self.scene.now)}", "infra+bold")
        if self.scene.bench:
            return self._bench_note(group)
        if group.kept is False:
            return Span(f"dropped {group.reason}" if self.note >= 22 else "dropped", "limit")
        if group.zero_variance:
            return Span("no signal", "limit")
        if group.task in self.scene.state.quarantined:
            return Span("quarantined" if self.note >= 22 else "quarant.", "limit")
        if reused := sum(t.reused for t in group.trials):
            return Span(f"{reused} reused", "muted")
        return Span("kept", "muted") if group.kept else Span("")

    def _bench_note(self, group: GroupState) -> Span:
        reused = sum(t.reused for t in group.trials)
        lost = sum(
            t.phase == "done" and t.outcome is not None
            and score_of(t) is None
            for t in group.trials
        )  # fmt: skip
        if lost:
            return Span(f"{lost} left out" if self.note >= 12 else f"{lost} out", "infra")
        return Span(f"{reused} stood" if reused else "", "muted")


_ORDER = {
    kind: at
    for at, kind in enumerate(
        [k for k, s in SIGNS.items() if s.role.startswith("infra") and k != "retrying"]
        + ["stalled", "retrying", "running", "building", "verifying"]
        + [k for k, s in SIGNS.items() if not s.role.startswith("infra") and k not in (
            "stalled", "running", "building", "verifying", "queued")]
        + ["queued"]
    )
}  # fmt: skip
"""Failures first in a strip of counts, then what runs, what is done, what waits."""


@lru_cache(maxsize=1024)
def _task_cells(task: str) -> int:
    return cell_len(sanitize(task, limit=200))


def pending_commands(scene: Scene) -> dict[int, CommandState]:
    """By group, the newest command on it (or on one of its trials) that is on its way."""
    found: dict[int, CommandState] = {}
    for command in scene.state.commands.values():
        group = command.args.get("group")
        if command.finished is None and isinstance(group, int):
            found[group] = command
    return found
