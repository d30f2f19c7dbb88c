"""The marks of a timeline: the same however the events come, bounded, and gathered beside a reader."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.journal import events as ev
from console.journal.layout import Damage
from console.journal.writer import JournalWriter
from console.records import timeline
from console.records.marking import MarkReader, missing
from console.records.run_dir import RunRecord
from console.records.timeline import BUCKETS, Gap, MarkScan, kind_of_end

KEYS = st.sampled_from(["disk", "gateway"])
ANY = st.one_of(
    st.builds(ev.AlarmOpened, key=KEYS, level=st.sampled_from(["warning", "critical"]), text=st.just("t")),
    st.builds(ev.AlarmClosed, key=KEYS),
    st.builds(ev.TrialFinished, step=st.just(0), group=st.just(0), trial=st.just(0),
              outcome=st.sampled_from(["completed", "infrastructure"]), reward=st.sampled_from([None, 0.0, 0.5, 1.0])),
    st.builds(ev.StepFinished, step=st.just(0), outcomes=st.just({"completed": 2})),
    st.builds(ev.RunStarted),
    st.builds(ev.Note, text=st.just("n")),
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(
    events=st.lists(ANY, max_size=40),
    gaps=st.lists(st.tuples(st.integers(1, 4), st.floats(0, 1e5)), min_size=40, max_size=40),
    cuts=st.sets(st.integers(0, 40)),
)  # fmt: skip
def test_marks_do_not_depend_on_how_events_come(
    events: list[ev.Event], gaps: list[tuple[int, float]], cuts: set[int]
) -> None:
    seq, ts = 0, 1000.0
    for event, (skip, wait) in zip(events, gaps):
        seq, ts = seq + skip, ts + wait
        event.seq, event.ts = seq, ts
    whole, pieces = MarkScan(1000.0, 2000.0), MarkScan(1000.0, 2000.0)
    whole.feed(events)
    edges = [0, *sorted(cut for cut in cuts if cut <= len(events)), len(events)]
    for a, b in zip(edges, edges[1:]):  # noqa: RUF007
        pieces.feed(events[a:b])
    marks = whole.marks()
    assert marks == pieces.marks()
    assert len(marks.mix) <= 2 * BUCKETS
    tries = sum(isinstance(e, ev.TrialFinished) for e in events)
    assert sum(sum(t.values()) for t in marks.mix) >= tries
    present = {e.seq for e in events}
    for hole in marks.holes:
        assert hole.start <= hole.end and hole.first_seq not in present and hole.last_seq not in present
    missing_seqs = set(range(1, seq + 1)) - present
    assert missing_seqs <= {n for hole in marks.holes for n in range(hole.first_seq, hole.last_seq + 1)}
    for alarm in marks.alarms:
        assert alarm.closed is None or alarm.closed >= alarm.ts
    open_keys = [alarm.key for alarm in marks.alarms if alarm.closed is None]
    assert len(open_keys) == len(set(open_keys))


def test_an_alarm_that_rises_is_a_mark_of_its_own_and_a_new_text_is_none() -> None:
    scan = MarkScan(0.0, 10.0)
    scan.feed(
        [
            ev.AlarmOpened(key="a", level="warning", text="one", seq=1, ts=1.0),
            ev.AlarmOpened(key="a", level="warning", text="two", seq=2, ts=2.0),
            ev.AlarmOpened(key="a", level="critical", text="three", seq=3, ts=3.0),
            ev.AlarmOpened(key="a", level="critical", text="four", seq=4, ts=4.0),
            ev.AlarmClosed(key="a", seq=5, ts=5.0),
            ev.AlarmOpened(key="a", level="warning", text="again", seq=6, ts=6.0),
        ]
    )
    assert [(a.seq, a.level, a.text, a.closed) for a in scan.marks().alarms] == [
        (1, "warning", "one", 3.0), (3, "critical", "three", 5.0), (6, "warning", "again", None)
    ]  # fmt: skip


def test_a_log_without_trials_counts_its_steps() -> None:
    scan = MarkScan(0.0, 10.0)
    scan.feed([ev.StepFinished(step=0, outcomes={"completed": 7}, seq=1, ts=4.0)])
    assert scan.marks().between(0.0, 10.0) == {"completed": 7}
    scan.feed([ev.TrialFinished(step=1, group=0, trial=0, outcome="completed", reward=1.0, seq=2, ts=5.0),
               ev.StepFinished(step=1, outcomes={"completed": 1}, seq=3, ts=6.0)])  # fmt: skip
    assert scan.marks().between(0.0, 10.0) == {"completed": 7, "pass": 1}


def test_marks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "ALARMS_KEPT", 3)
    monkeypatch.setattr(timeline, "HOLES_KEPT", 2)
    scan = MarkScan(0.0, 1.0)
    for n in range(1, 30):
        scan.feed([ev.AlarmOpened(key=f"k{n}", level="warning", text="x" * 9000, seq=3 * n, ts=float(n))])
    marks = scan.marks()
    assert (len(marks.alarms), len(marks.holes)) == (3, 2) and len(marks.alarms[0].text) == 400


def test_kinds_follow_the_reward() -> None:
    assert [kind_of_end("completed", r) for r in (None, -1.0, 0.0, 0.3, 1.0, 2.0)] == [
        "zero", "zero", "zero", "partial", "pass", "pass"
    ]  # fmt: skip
    assert kind_of_end("agent_timeout", 1.0) == "agent_timeout"


def test_what_is_missing_is_named() -> None:
    holes = tuple(Gap(start=float(n), end=n + 1.0, first_seq=n, last_seq=n + (n % 2)) for n in (1, 2, 30))
    text = missing(holes, [], lambda ts: f"<{ts:g}>")
    assert (
        text
        == "events 1 to 2 (<1> to <2>) and event 2 (<2> to <3>) and one more stretch cannot be read; the rest is shown"
    )
    assert "one place (torn)" in missing((), [Damage("f", 0, 1, "torn")], str)
    assert "2 places" in missing((), [Damage("f", n, 1, "torn") for n in range(2)], str)
    assert missing((), [], str) == ""


def test_the_reader_goes_on_with_what_is_written_later(tmp_path: Path) -> None:
    with JournalWriter(tmp_path / "journal") as writer:
        writer.append(ev.RunStarted(run_id="r"))
        record = RunRecord(tmp_path)
        reader = MarkReader(record)
        reader.follow()
        assert reader.marks is None
        reader.begin(10.0)
        assert reader.complete and reader.marks is not None and reader.marks.alarms == ()
        writer.append(ev.AlarmOpened(key="late", level="critical", text="now"))
        reader.follow()
        assert reader.marks.alarms == ()  # the record was not refreshed yet
        record.refresh()
        reader.follow()
        assert [a.key for a in reader.marks.alarms] == ["late"]


THREADS = """
import sys, threading
from console.journal.reader import Journal
def read():
    for _ in range(15):
        assert sum(1 for _ in Journal(sys.argv[1]).lines()) == 6000
threads = [threading.Thread(target=read) for _ in range(3)]
[t.start() for t in threads]
[t.join() for t in threads]
print("whole")
"""


def test_a_sealed_journal_can_be_read_by_several_threads(tmp_path: Path) -> None:
    with JournalWriter(tmp_path / "journal") as writer:
        for n in range(6000):
            writer.append(ev.Note(text=f"{n} {'abc' * (n % 40)}"))
    done = subprocess.run(
        [sys.executable, "-c", THREADS, str(tmp_path / "journal")], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr[-400:]
