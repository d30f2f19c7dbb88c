"""The timeline of a replay: where it stands, the ends of steps, how tries ended, alarms, and what is missing.

14:01:58 ━━━━┿━━━━━┿━━━●──┼─────┼───░░░──?──┼── 15:22:10
outcomes  ▁▂▃▄▄▅▆▆!▆▇▇▇███                       x s11
alarms         *         !!
"""

from __future__ import annotations

import time

from console.records.timeline import StepMark, Tally, Timeline
from console.state.sanitize import sanitize
from console.tui import glyphs
from console.tui.picture import Scene
from console.tui.text import Line, Span, clock, fit, line, width

ROWS = 3
LABEL = 10
_DAY = 86400.0
_FULL_MARKS = 0.25
"""Share of a slice's tries at which the sign of their class stands for the slice."""


class Ruler:
    """Cells of the bar and the times they stand for."""

    def __init__(self, timeline: Timeline, cells: int) -> None:
        self.first = timeline.first_ts or 0.0
        self.length = max(1e-6, (timeline.last_ts or 0.0) - self.first)
        self.cells = max(1, cells)

    def cell(self, ts: float) -> int:
        """The cell of a moment; moments outside are at the ends."""
        return max(0, min(self.cells - 1, int((ts - self.first) / self.length * self.cells)))

    def start(self, cell: int) -> float:
        """The moment at which a cell begins."""
        return self.first + cell * self.length / self.cells


def rows_wanted(height: int) -> int:
    """Rows of the timeline on a screen of that many rows."""
    return 1 if height < 24 else 2 if height < 36 else ROWS


def bar_cells(cells: int) -> int:
    """Cells of the bar in a line of `cells`: what an arrow key moves over in scrubbing."""
    return max(8, cells - 2 * LABEL)


def timeline_rows(scene: Scene, cells: int, rows: int = ROWS) -> list[Line]:
    """At most `rows` lines (1 to 3), as wide as `cells`; none without a timeline.

    With fewer than three rows alarms and holes stand on the bar itself.
    """
    timeline = scene.link.timeline
    if timeline is None or timeline.first_ts is None or rows < 1:
        return []
    ruler = Ruler(timeline, bar_cells(cells))
    lines = [_bar(scene, timeline, ruler, alarms=rows < ROWS)]
    if rows > 1:
        lines.append(_outcomes(scene, timeline, ruler))
    if rows > 2:
        lines.append(_alarms(scene, timeline, ruler))
    if scene.link.news:
        loud = scene.link.urgent
        note = line(Span(f" {'!' if scene.link.detail or loud else '*'} ", "alert" if loud else "limit+bold"))
        lines[-1] = (*note, Span(f"{' ' * loud}{sanitize(scene.link.news, limit=300)}", "bold" if loud else "limit"))
    return [fit(one, cells) for one in lines]


# --- the bar ---


def _bar(scene: Scene, timeline: Timeline, ruler: Ruler, alarms: bool) -> Line:
    marks, ascii_only = scene.marks, scene.ascii
    here = ruler.cell(scene.now)
    cells = [(marks.full, "accent") if i <= here else (marks.light, "rule") for i in range(ruler.cells)]
    tick = "+" if ascii_only else "┼"
    for at, label in _ticks(timeline, ruler):
        cells[at] = (tick, cells[at][1])
        for offset, char in enumerate(label, 1):
            if at + offset < ruler.cells:
                cells[at + offset] = (char, "muted")
    for gap in timeline.down:
        if gap.end - gap.start >= ruler.length / ruler.cells / 2:
            for at in range(ruler.cell(gap.start), ruler.cell(gap.end) + 1):
                cells[at] = (":" if ascii_only else "░", "muted")
    found = timeline.marks
    for hole in found.holes if found is not None else ():
        for at in range(ruler.cell(hole.start), ruler.cell(hole.end) + 1):
            cells[at] = ("?", "limit+bold")
    if alarms and found is not None:
        for alarm in found.alarms:
            critical = alarm.level == "critical"
            if critical or cells[ruler.cell(alarm.ts)][0] != "!":
                cells[ruler.cell(alarm.ts)] = ("!", "infra+bold") if critical else ("*", "limit+bold")
    cells[here] = ("O" if ascii_only else "●", "key")
    scrub = scene.link.scrub
    if scrub is not None:
        cells[ruler.cell(scrub)] = ("X" if ascii_only else "◆", "badge-replay")
    left = _label(timeline.first_ts or 0.0, ruler) if scrub is None else f">{_label(scrub, ruler)[1:]}"
    right = _label(timeline.last_ts or 0.0, ruler)
    if scrub is not None:
        right = f" {_step_at(timeline, scrub)}"
    elif scene.link.behind is not None:
        right = f" -{clock(scene.link.behind)} B"
    return line(
        Span(f"{left:<{LABEL}}", "key" if scrub is not None else "muted"),
        *_joined(cells),
        Span(f"{right:<{LABEL}}", "limit" if scene.link.behind is not None else "muted"),
    )


def _ticks(timeline: Timeline, ruler: Ruler) -> list[tuple[int, str]]:
    """Cells of step ends, thinned so that they stay apart, each with its label if there is room for one."""
    steps = timeline.steps
    if not steps:
        return []
    density = len(steps) / ruler.cells
    every = next((n for n in _intervals() if density / n <= 1 / 4), len(steps))
    labelled = next((n for n in _intervals() if n % every == 0 and density / n <= 1 / 10), 0)
    found: list[tuple[int, str]] = []
    free = 0
    for mark in steps:
        at = ruler.cell(mark.ended)
        if mark.step % every or at < free:
            continue
        label = f"s{mark.step}" if labelled and mark.step % labelled == 0 else ""
        found.append((at, label))
        free = at + len(label) + 2
    return found


def _intervals() -> tuple[int, ...]:
    return tuple(base * 10**power for power in range(6) for base in (1, 2, 5))


def _step_at(timeline: Timeline, ts: float) -> str:
    mark: StepMark | None = next((m for m in timeline.steps if m.ended >= ts), None)
    if mark is not None:
        return f"s{mark.step}"
    return f"s{timeline.steps[-1].step + 1}" if timeline.steps else ""


def _label(ts: float, ruler: Ruler) -> str:
    """A moment in at most nine cells: time of day, or the day too in a long recording."""
    return time.strftime(" %d %H:%M" if ruler.length >= _DAY else " %H:%M:%S", time.localtime(ts))


# --- the rows beneath it ---


def _outcomes(scene: Scene, timeline: Timeline, ruler: Ruler) -> Line:
    marks = timeline.marks
    cells: list[tuple[str, str]] = []
    total: Tally = {}
    for at in range(ruler.cells):
        tally = marks.between(ruler.start(at), ruler.start(at + 1)) if marks is not None else {}
        cells.append(_mix(tally, scene.ascii))
        for kind, count in tally.items():
            total[kind] = total.get(kind, 0) + count
    tries = sum(total.values())
    label = " outcomes" if tries or marks is not None else " reading.."
    right = f" {tries} tries" if tries < 1000 else f" {tries / 1000:.0f}k tries"
    return line(Span(f"{label:<{LABEL}}", "muted"), *_joined(cells), Span(f"{right:<{LABEL}}"[:LABEL], "muted"))


def _mix(tally: Tally, ascii_only: bool) -> tuple[str, str]:
    """One cell for the tries that ended in a slice: the sign of a trouble that weighs, else a block as high as the
    share of full rewards."""
    tries = sum(tally.values())
    if not tries:
        return " ", ""
    trouble = {kind: count for kind, count in tally.items() if kind not in ("pass", "partial", "zero", "completed")}
    if trouble:
        worst = max(trouble, key=lambda kind: (trouble[kind], kind))
        if trouble[worst] >= tries * _FULL_MARKS:
            kind = worst if worst in glyphs.SIGNS else "unreadable"
            return glyphs.sign_text(kind, ascii_only), glyphs.SIGNS[kind].role
    share = (tally.get("pass", 0) + tally.get("partial", 0) / 2 + tally.get("completed", 0) / 2) / tries
    blocks = glyphs.marks(ascii_only).blocks
    return blocks[1 + round(share * (len(blocks) - 2))], "pass" if share > 0 else "zero"


def _alarms(scene: Scene, timeline: Timeline, ruler: Ruler) -> Line:
    cells: list[tuple[str, str]] = [(" ", "")] * ruler.cells
    found = timeline.marks.alarms if timeline.marks is not None else ()
    last = timeline.last_ts or 0.0
    for alarm in found:
        first, end = ruler.cell(alarm.ts), ruler.cell(alarm.closed if alarm.closed is not None else last)
        for at in range(first, end + 1):
            if cells[at][0] == " ":
                cells[at] = (scene.marks.light, "muted")
    for alarm in sorted(found, key=lambda one: one.level == "critical"):
        critical = alarm.level == "critical"
        cells[ruler.cell(alarm.ts)] = ("!", "infra+bold") if critical else ("*", "limit+bold")
    right = f" {len(found)}" if found else " none" if timeline.marks is not None else ""
    return line(Span(f"{' alarms':<{LABEL}}", "muted"), *_joined(cells), Span(f"{right:<{LABEL}}", "muted"))


def _joined(cells: list[tuple[str, str]]) -> list[Span]:
    """Neighbours of one role as one span."""
    spans: list[Span] = []
    for char, role in cells:
        if spans and spans[-1].role == role:
            spans[-1] = Span(spans[-1].text + char, role)
        else:
            spans.append(Span(char, role))
    assert width(spans) == len(cells)
    return spans
