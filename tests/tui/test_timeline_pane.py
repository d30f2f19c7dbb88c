"""The timeline beneath a replay: position, steps, outcomes, alarms, holes, times without an engine."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len

from console.journal import events as ev
from console.journal.writer import JournalWriter
from console.records.run_dir import RunRecord
from console.records.timeline import Gap, Marks, StepMark, Timeline
from console.tui import glyphs
from console.tui.panes.timeline import LABEL, bar_cells, rows_wanted, timeline_rows
from console.tui.replay import ReplaySource
from console.tui.source import Link
from console.tui.text import plain


def scene(timeline: Timeline | None, now: float, ascii_only: bool = False, **link: Any) -> Any:
    """What the pane looks at."""
    return SimpleNamespace(
        link=Link("replay", timeline=timeline, **link), now=now, ascii=ascii_only, marks=glyphs.marks(ascii_only)
    )


def shown(timeline: Timeline, now: float, cells: int = 100, rows: int = 3, **options: Any) -> list[str]:
    return [plain(one) for one in timeline_rows(scene(timeline, now, **options), cells, rows)]


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from quarterdeck_recordings import Plan, make

    path = tmp_path_factory.mktemp("operated") / "run"
    make(path, Plan(operated=True))
    return path


@pytest.fixture(scope="module")
def timeline(operated: Path) -> Timeline:
    source = ReplaySource(RunRecord(operated))
    source.read_marks(30)
    assert source.marked
    return source.timeline


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("cells", [60, 80, 120, 200])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_every_size_is_filled_and_never_wider(timeline: Timeline, cells: int, rows: int, ascii_only: bool) -> None:
    lines = shown(timeline, timeline.first_ts or 0.0, cells, rows, ascii_only=ascii_only)
    assert [cell_len(text) for text in lines] == [cells] * rows
    assert not ascii_only or all(text.isascii() for text in lines)


def test_what_the_operated_run_looks_like(timeline: Timeline, matches_snapshot) -> None:
    first, last = timeline.first_ts or 0.0, timeline.last_ts or 0.0
    out: list[str] = []
    for cells, rows, ascii_only in ((120, 3, False), (80, 2, False), (60, 1, False), (80, 3, True)):
        out += shown(timeline, (first + last) / 2, cells, rows, ascii_only=ascii_only)
    matches_snapshot("timeline_operated", out)


def test_marks_are_those_of_the_run(operated: Path, timeline: Timeline) -> None:
    events = list(RunRecord(operated).journal.events())
    marks = timeline.marks
    assert marks is not None and marks.holes == ()
    assert [(a.key, a.level) for a in marks.alarms] == [
        ("gateway.slow", "warning"), ("disk.low", "warning"), ("disk.low", "critical"), ("learning.flat", "warning")
    ]  # fmt: skip
    by_seq = {event.seq: event for event in events}
    assert all(isinstance(by_seq[a.seq], ev.AlarmOpened) and by_seq[a.seq].ts == a.ts for a in marks.alarms)
    assert [a.closed is None for a in marks.alarms] == [False, False, False, False]  # the run's end closes the last
    ends = [event for event in events if isinstance(event, ev.TrialFinished)]
    total: dict[str, int] = {}
    for tally in marks.mix:
        for kind, count in tally.items():
            total[kind] = total.get(kind, 0) + count
    assert sum(total.values()) == len(ends)
    assert total["infrastructure"] == sum(e.outcome == "infrastructure" for e in ends)
    assert total["pass"] == sum(e.outcome == "completed" and e.reward == 1.0 for e in ends)
    # However the bar is cut, each try is in one cell.
    for cells in (7, 60, 180):
        width = ((timeline.last_ts or 0) - (timeline.first_ts or 0)) / cells
        edges = [(timeline.first_ts or 0) + i * width for i in range(cells + 2)]
        parts = [sum(marks.between(a, b).values()) for a, b in pairwise(edges)]
        assert sum(parts) == len(ends)


def test_position_and_scrub_move_along_the_bar(timeline: Timeline) -> None:
    first, last = timeline.first_ts or 0.0, timeline.last_ts or 0.0
    for share in (0.0, 0.3, 1.0):
        bar = shown(timeline, first + share * (last - first))[0]
        at = bar.index("●") - LABEL
        assert at == min(bar_cells(100) - 1, int(share * bar_cells(100)))
    text = shown(timeline, first, scrub=first + 0.5 * (last - first))[0]
    assert text.index("◆") - LABEL == bar_cells(100) // 2 and "●" in text
    assert text.startswith(">14:") and text.rstrip().endswith(" s7")


def test_alarms_stand_on_the_bar_where_they_have_no_row(timeline: Timeline) -> None:
    first = timeline.first_ts or 0.0
    assert "!" in shown(timeline, first, rows=2)[0] and "*" in shown(timeline, first, rows=2)[0]
    assert "!" not in shown(timeline, first, rows=3)[0] and "!" in shown(timeline, first, rows=3)[2]


def test_holes_and_times_without_an_engine_are_signs_of_their_own(tmp_path: Path) -> None:
    now = [1000.0]
    with JournalWriter(tmp_path / "journal", clock=lambda: now[0]) as writer:
        writer.append(ev.RunStarted(run_id="r"))
        for _ in range(10):
            now[0] += 10
            writer.append(ev.Note(text="work"))
        now[0] += 300
        writer.append(ev.RunStarted(run_id="r", resumed_from=0))
        now[0] += 100
        writer.append(ev.Note(text="end"))
    source = ReplaySource(RunRecord(tmp_path))
    source.read_marks(10)
    line = source.timeline
    assert line.down == [Gap(start=1100.0, end=1400.0)]
    bar = shown(line, 1000.0, 120)[0]
    assert bar.count("░") == pytest.approx(100 * 300 / 500, abs=2) and "?" not in bar
    assert line.marks is not None
    holed = msgspec.structs.replace(
        line, marks=msgspec.structs.replace(line.marks, holes=(Gap(start=1450, end=1475, first_seq=8, last_seq=9),))
    )
    text = shown(holed, 1000.0, 120, news="events 8 to 9 cannot be read")
    assert text[0].count("?") == pytest.approx(5, abs=2) and "events 8 to 9" in text[-1]
    assert ":::" in shown(line, 1000.0, 120, ascii_only=True)[0]


def test_a_trouble_that_weighs_shows_its_sign_and_others_a_height() -> None:
    def row(**tally: int) -> str:
        marks = Marks(start=0.0, width=1.0, mix=({}, dict(tally)))
        line = Timeline(first_ts=0.0, last_ts=10.0, last_seq=5, steps=[], marks=marks)
        return shown(line, 0.0, 30)[1][LABEL:-LABEL].strip()

    assert row(infrastructure=1, completed=0, zero=2) == "!"
    assert row(agent_timeout=2, infrastructure=1) == "T"
    assert row(infrastructure=1, **{"pass": 9}) == "▆"
    assert (row(**{"pass": 4}), row(zero=4), row(partial=2)) == ("▇", "▁", "▄")
    assert row(**{"\x1b[31mnew": 3}) == "U"


def test_a_long_run_has_ticks_that_stay_apart() -> None:
    steps = [StepMark(step=n, seq=n + 2, ended=float(n), started=None) for n in range(10_000)]
    line = Timeline(first_ts=0.0, last_ts=10_000.0, last_seq=10_002, steps=steps)
    bar = shown(line, 0.0, 120)[0]
    labels = [word for word in bar.replace("━", " ").replace("─", " ").split() if word.startswith("┼s")]
    assert "┼s1000" in bar and 3 <= len(labels) <= 12
    assert shown(line, 0.0, 120)[1].startswith(" reading")


def test_a_timeline_of_one_moment_is_no_trouble() -> None:
    line = Timeline(first_ts=5.0, last_ts=5.0, last_seq=1, steps=[])
    assert len(shown(line, 5.0)) == 3
    empty = Timeline(first_ts=None, last_ts=None, last_seq=0, steps=[])
    assert shown(empty, 0.0) == [] and timeline_rows(scene(None, 0.0), 80) == []


def test_foreign_text_is_made_safe(timeline: Timeline) -> None:
    text = shown(timeline, 0.0, news="alarm \x1b]0;owned\x07 \x9b31m end")[-1]
    assert "\x1b" not in text and "\x9b" not in text and "owned" not in text


def test_a_look_back_says_how_far_it_is_behind(timeline: Timeline) -> None:
    assert shown(timeline, 0.0, behind=65.0)[0].rstrip().endswith("-01:05 B")


def test_small_screens_have_fewer_rows() -> None:
    assert [rows_wanted(height) for height in (16, 23, 24, 35, 36, 60)] == [1, 1, 2, 2, 3, 3]
