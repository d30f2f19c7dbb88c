"""The writer with the reader: numbers, restarts, torn tails, failures, locks."""

from __future__ import annotations

import math
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.errors import UsageError
from console.journal import events as ev
from console.journal.codec import decode_event
from console.journal.layout import JournalWriteError
from console.journal.reader import Journal
from console.journal.writer import JournalWriter

TEXT = st.text(st.characters(), max_size=20)
NUMBER = st.floats()
SMALL = st.integers(0, 5)
EVENTS = st.one_of(
    st.builds(ev.Note, text=TEXT, level=TEXT, source=TEXT),
    st.builds(ev.TrialTurn, step=SMALL, group=SMALL, trial=SMALL, turn=SMALL, try_=SMALL, seconds=NUMBER),
    st.builds(
        ev.StepFinished,
        step=SMALL,
        reward_mean=st.none() | NUMBER,
        ppo_loss=st.none() | NUMBER,
        outcomes=st.dictionaries(TEXT, SMALL, max_size=3),
    ),
    st.builds(
        ev.TrialFinished,
        step=SMALL,
        group=SMALL,
        trial=SMALL,
        outcome=TEXT,
        reward=st.none() | NUMBER,
        seconds=st.dictionaries(TEXT, NUMBER, max_size=3),
    ),
    st.builds(
        ev.CommandRequested,
        id=TEXT,
        command=TEXT,
        args=st.dictionaries(TEXT, st.none() | st.booleans() | SMALL | NUMBER | TEXT, max_size=3),
    ),
    st.builds(ev.UnknownEvent, original=TEXT, body=st.dictionaries(TEXT, TEXT, max_size=2)),
    st.builds(ev.AlarmOpened, key=TEXT, level=st.sampled_from(["warning", "critical"]), text=TEXT),
)


def notes(writer: JournalWriter, count: int) -> None:
    for number in range(count):
        writer.append(ev.Note(text=f"note {number}"))


def texts(directory: Path) -> list[str]:
    return [event.text for event in Journal(directory).events() if isinstance(event, ev.Note)]


@settings(max_examples=60, deadline=None)
@given(runs=st.lists(st.lists(EVENTS, max_size=12), min_size=1, max_size=4), data=st.data())
def test_what_append_returns_is_what_a_reader_sees_over_restarts(
    runs: list[list[ev.Event]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("run") / "journal"
    clock = iter(data.draw(st.lists(st.floats(0, 2e9), min_size=60, max_size=60)))
    written: list[ev.Event] = []
    heard: list[ev.Event] = []
    for events in runs:
        with JournalWriter(directory, clock=lambda: next(clock), chunk_bytes=700) as writer:
            writer.subscribe(lambda line, event: heard.append(event))
            written += [writer.append(event) for event in events]
    journal = Journal(directory)
    assert list(journal.events()) == written == heard
    assert [event.seq for event in written] == list(range(1, len(written) + 1))
    assert [event.ts for event in written] == sorted(event.ts for event in written)
    assert [decode_event(line) for line in journal.lines()] == written
    assert journal.damage == []
    assert journal.step_rows() == [event for event in written if isinstance(event, ev.StepFinished)]


def test_numbers_that_are_not_finite_become_null_or_the_default(tmp_path: Path) -> None:
    with JournalWriter(tmp_path / "journal") as writer:
        row = writer.append(ev.StepFinished(step=1, reward_mean=math.nan, ppo_loss=math.inf))
        turn = writer.append(ev.TrialTurn(step=1, group=0, trial=0, turn=1, seconds=math.nan))
    assert isinstance(row, ev.StepFinished) and row.reward_mean is None and row.ppo_loss is None
    assert isinstance(turn, ev.TrialTurn) and turn.seconds == 0.0 and turn.turn == 1


def test_files_are_private(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    with JournalWriter(directory, chunk_bytes=500) as writer:
        notes(writer, 30)
        writer.append(ev.StepFinished(step=0))
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert len(modes) > 4
    assert set(modes.values()) == {0o600}


def test_a_second_writer_is_refused_with_the_pid(tmp_path: Path) -> None:
    with JournalWriter(tmp_path / "run" / "journal"):
        with pytest.raises(UsageError, match=rf"run: the run is live, process {os.getpid()} ") as refused:
            JournalWriter(tmp_path / "run" / "journal")
        assert refused.value.exit_code == 2
    JournalWriter(tmp_path / "run" / "journal").close()


def test_a_directory_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="choose another run directory"):
        JournalWriter(tmp_path / "file" / "journal")


def test_an_event_is_on_disk_before_append_returns(tmp_path: Path) -> None:
    with JournalWriter(tmp_path / "journal") as writer:
        for number in range(5):
            writer.append(ev.Note(text=str(number)))
            assert texts(tmp_path / "journal")[-1] == str(number)


def test_durable_events_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (synced.append(fd), real(fd)))
    with JournalWriter(tmp_path / "journal") as writer:

        def syncs(event: ev.Event) -> bool:
            synced.clear()
            writer.append(event)
            return bool(synced)

        assert syncs(ev.RunStarted())
        assert not syncs(ev.CommandRequested(id="1", command="stop")), "what answers it is synced with it"
        assert syncs(ev.CommandAccepted(id="1"))
        assert syncs(ev.CommandFinished(id="1", status="done"))
        assert syncs(ev.CheckpointSaved(name="a", step=1))
        assert syncs(ev.AlarmOpened(key="a", level="critical", text="x"))
        assert not syncs(ev.AlarmOpened(key="b", level="warning", text="x"))
        assert not syncs(ev.Note(text="x"))
        assert syncs(ev.RunFinished(status="completed", exit_code=0))


def test_a_flush_syncs_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (synced.append(os.fstat(fd).st_size), real(fd)))
    monkeypatch.setattr("console.journal.writer.FLUSH_SECONDS", 0.0)
    with JournalWriter(tmp_path / "journal", chunk_bytes=1 << 20) as writer:
        for number in range(3):
            notes(writer, number)
            writer.flush()
            writer.flush()
        size = sum(path.stat().st_size for path in (tmp_path / "journal").glob("0*.jsonl"))
        writer.close(seal=False)
    assert len(synced) == 3 and synced[-2:] == [size, size], "after 1 and 3 notes, and at the end"


@pytest.mark.parametrize("tail", [b'{"type":"note","seq":4,"ts":', b"\0" * 5000, b'{"type":"note","seq":4,"ts":1.0}'])
def test_a_torn_tail_is_cut_and_told(tmp_path: Path, tail: bytes) -> None:
    directory = tmp_path / "journal"
    with JournalWriter(directory) as writer:
        notes(writer, 3)
        writer.close(seal=False)
    (chunk,) = directory.glob("0*.jsonl")
    with chunk.open("ab") as file:
        file.write(tail)
    torn = Journal(directory)
    assert len(list(torn.events())) == 3
    assert [(d.file, d.size, d.reason) for d in torn.damage] == [(chunk.name, len(tail), "unfinished line")]
    with JournalWriter(directory) as writer:
        notes(writer, 1)
    journal = Journal(directory)
    assert [(event.seq, type(event).__name__) for event in journal.events(3)] == [(4, "JournalRepaired"), (5, "Note")]
    assert next(iter(journal.events(3))) == ev.JournalRepaired(
        dropped_bytes=len(tail), seq=4, ts=next(iter(journal.events(3))).ts
    )
    assert journal.damage == []


def test_chunks_left_plain_are_sealed_by_the_next_writer(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    with JournalWriter(directory, chunk_bytes=400) as writer:
        notes(writer, 20)
    sealed = sorted(directory.glob("*.zst"))
    # As a crash leaves it: one chunk plain and sealed, half-written files beside it.
    data = b"".join(line + b"\n" for line in Journal(directory).lines() if decode_event(line).seq < 8)
    first = sealed[0].name.removesuffix(".zst")
    count = sealed[1].name.split(".")[0]
    (directory / first).write_bytes(b"".join(data.splitlines(keepends=True)[: int(count) - 1]))
    (directory / "000000000001.jsonl.zst.tmp").write_bytes(b"half")
    (directory / "steps.jsonl.tmp").write_bytes(b"half")
    assert texts(directory) == [f"note {n}" for n in range(20)]
    JournalWriter(directory).close()
    assert not list(directory.glob("*.tmp")) and not (directory / first).exists()
    assert texts(directory) == [f"note {n}" for n in range(20)]


def test_the_side_file_is_made_again(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    with JournalWriter(directory, chunk_bytes=600) as writer:
        for step in range(8):
            writer.append(ev.StepFinished(step=step, reward_mean=step / 8))
    side = directory / "steps.jsonl"
    whole = side.read_bytes()
    rows = Journal(directory).step_rows()
    lines = whole.splitlines(keepends=True)
    extra = lines[-1].replace(b'"seq":8', b'"seq":9')
    for damaged in (None, b"", whole[:-5], whole[: len(whole) // 2], whole + extra, b"".join(lines[1:])):
        if damaged is None:
            side.unlink()
        else:
            side.write_bytes(damaged)
        assert Journal(directory).step_rows() == rows
        JournalWriter(directory).close()
        assert side.read_bytes() == whole


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Files may not grow beyond `size`: what a full disk does, a part of the line written included."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("truncate_fails", [False, True])
def test_a_full_disk_is_an_error_and_nothing_is_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, truncate_fails: bool
) -> None:
    directory = tmp_path / "journal"
    with JournalWriter(directory) as writer:
        heard: list[int] = []
        writer.subscribe(lambda line, event: heard.append(event.seq))
        notes(writer, 5)
        if truncate_fails:

            def refuse(fd: int, size: int) -> None:
                raise OSError(5, "Input/output error")

            monkeypatch.setattr(os, "ftruncate", refuse)
        with file_size_limit(600):
            for _ in range(3):
                with pytest.raises(JournalWriteError, match="make room, then resume"):
                    writer.append(ev.Note(text="x" * 1000))
        monkeypatch.undo()
        assert writer.last_seq == 5
        notes(writer, 2)
        with file_size_limit(1200), pytest.raises(JournalWriteError):
            writer.append(ev.Note(text="x" * 2000))
        assert heard == [1, 2, 3, 4, 5, 6, 7]
        assert texts(directory) == ["note 0", "note 1", "note 2", "note 3", "note 4", "note 0", "note 1"]
        assert bool(Journal(directory).damage) == truncate_fails
    journal = Journal(directory)
    assert [event.seq for event in journal.events()] == [1, 2, 3, 4, 5, 6, 7]
    assert bool(list(directory.glob("*.damaged"))) == truncate_fails


def test_a_chunk_that_cannot_be_sealed_stays_plain(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    with JournalWriter(directory, chunk_bytes=400) as writer:
        (directory / "000000000001.jsonl.zst.tmp").mkdir()
        notes(writer, 20)
    assert texts(directory) == [f"note {n}" for n in range(20)]
    assert (directory / "000000000001.jsonl").exists()
    (directory / "000000000001.jsonl.zst.tmp").rmdir()
    JournalWriter(directory).close()
    assert not list(directory.glob("0*.jsonl"))
    assert texts(directory) == [f"note {n}" for n in range(20)]


def test_a_plain_chunk_goes_only_when_its_sealed_form_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.replace

    def refuse(source: Path, target: Path) -> None:
        if str(target).endswith(".zst"):
            raise OSError(28, "No space left on device")
        real(source, target)

    with JournalWriter(tmp_path / "journal", chunk_bytes=400) as writer:
        monkeypatch.setattr(os, "replace", refuse)
        notes(writer, 20)
        writer.close()
    assert not list((tmp_path / "journal").glob("*.zst"))
    assert texts(tmp_path / "journal") == [f"note {n}" for n in range(20)]


def test_a_chunk_sealed_while_it_is_read(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "journal", chunk_bytes=200_000, snapshot=lambda: (b"{}", 0), snapshot_events=50)
    notes(writer, 500)
    journal = Journal(tmp_path / "journal")
    reading = journal.events()
    first = [next(reading) for _ in range(120)]
    late = Journal(tmp_path / "journal")
    writer.close()
    rest = list(reading)
    assert [event.seq for event in first + rest] == list(range(1, writer.last_seq + 1))
    assert journal.damage == []
    found = late.nearest_snapshot()
    assert found is not None and found.seq > 400
    assert [event.seq for event in late.events(300)] == list(range(301, writer.last_seq + 1))


def test_an_event_too_large_or_after_the_end_is_refused(tmp_path: Path) -> None:
    with JournalWriter(tmp_path / "journal") as writer:
        with pytest.raises(ValueError, match="too large"):
            writer.append(ev.Note(text="x" * (17 << 20)))
        notes(writer, 1)
    with pytest.raises(JournalWriteError, match="closed"):
        writer.append(ev.Note(text="late"))
    assert texts(tmp_path / "journal") == ["note 0"]


def test_subscribers_hear_in_order_even_when_one_appends(tmp_path: Path) -> None:
    with JournalWriter(tmp_path / "journal") as writer:
        heard: list[tuple[str, int]] = []

        def answer(line: bytes, event: ev.Event) -> None:
            heard.append(("answer", event.seq))
            if isinstance(event, ev.Note) and event.text == "ask":
                writer.append(ev.Note(text="answer"))

        def broken(line: bytes, event: ev.Event) -> None:
            raise RuntimeError("a viewer's fault")

        writer.subscribe(answer)
        writer.subscribe(broken)
        end = writer.subscribe(lambda line, event: heard.append(("listen", event.seq)))
        assert writer.append(ev.Note(text="ask")).seq == 1
        assert heard == [("answer", 1), ("listen", 1), ("answer", 2), ("listen", 2)]
        end()
        notes(writer, 1)
        assert heard[4:] == [("answer", 3)]


def test_snapshots_come_by_count_and_by_bytes_and_at_the_start_of_a_chunk(tmp_path: Path) -> None:
    def spacing(name: str, padding: int) -> list[int]:
        directory = tmp_path / name
        state = b'{"padding":"' + b"x" * padding + b'"}'
        with JournalWriter(directory, snapshot=lambda: (state, 3), snapshot_events=10) as writer:
            notes(writer, 100)
        return [event.seq for event in Journal(directory).events() if isinstance(event, ev.Snapshot)]

    assert spacing("small", 1) == [11, 22, 33, 44, 55, 66, 77, 88, 99]
    assert 2 <= len(spacing("large", 700)) <= 4
    directory = tmp_path / "chunks"
    with JournalWriter(directory, snapshot=lambda: (b"{}", 3), chunk_bytes=2000, snapshot_events=1000) as writer:
        notes(writer, 100)
    starts = [int(path.name[:12]) for path in sorted(directory.glob("*.zst"))]
    assert len(starts) > 3
    journal = Journal(directory)
    assert [event.seq for event in journal.events() if isinstance(event, ev.Snapshot)] == starts[1:]
    found = journal.nearest_snapshot(seq=starts[2] + 3)
    assert found is not None and found.seq == starts[2] and found.steps_done == 3
    assert journal.nearest_snapshot(seq=starts[1] - 1) is None


def test_a_snapshot_that_fails_loses_no_event(tmp_path: Path) -> None:
    def fail() -> tuple[bytes, int]:
        raise TypeError("no state")

    with JournalWriter(tmp_path / "journal", snapshot=fail, snapshot_events=2) as writer:
        notes(writer, 10)
    assert len(texts(tmp_path / "journal")) == 10


def test_a_follower_keeps_up_while_chunks_are_sealed(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    writer = JournalWriter(directory, chunk_bytes=1500, snapshot=lambda: (b"{}", 0), snapshot_events=40)
    written: list[ev.Event] = []
    writer.subscribe(lambda line, event: written.append(event))
    followed: list[list[ev.Event]] = [[], [], []]
    over = threading.Event()

    def follow(place: list[ev.Event]) -> None:
        follower = Journal(directory).follow()
        while True:
            last = over.is_set()
            place += [record.event for record in follower.poll()]
            if last:
                assert follower.journal.damage == []
                return

    threads = [threading.Thread(target=follow, args=(place,)) for place in followed]
    for thread in threads:
        thread.start()
    for number in range(1500):
        writer.append(ev.StepFinished(step=number) if number % 50 == 0 else ev.Note(text=str(number)))
    writer.close()
    over.set()
    for thread in threads:
        thread.join()
    assert [len(place) for place in followed] == [len(written)] * 3
    assert all(place == written for place in followed)


CHILD = """
import sys
from console.journal import events as ev
from console.journal.writer import JournalWriter
writer = JournalWriter(sys.argv[1], snapshot=lambda: (b"{}", 0), snapshot_events=50, chunk_bytes=20_000)
number = 0
while True:
    number += 1
    event = writer.append(ev.StepFinished(step=number) if number % 20 == 0 else ev.Note(text="n" * (number % 300)))
    sys.stdout.write(f"{event.seq}\\n")
    sys.stdout.flush()
"""


def test_a_writer_that_is_killed_loses_nothing_and_its_successor_goes_on(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    last = 0
    for lines in (3, 180, 411, 977):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(directory)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for _ in range(lines):
            acknowledged = int(child.stdout.readline())
        child.kill()
        rest = child.stdout.read().split("\n")
        child.wait()
        acknowledged = max([acknowledged, *(int(line) for line in rest[:-1])])
        journal = Journal(directory)
        seqs = [event.seq for event in journal.events()]
        assert seqs == list(range(1, len(seqs) + 1))
        assert len(seqs) >= acknowledged > last
        assert all(damage.reason == "unfinished line" for damage in journal.damage)
        last = len(seqs)
    JournalWriter(directory).close()
    journal = Journal(directory)
    assert journal.last_seq in (last, last + 1)
    assert len(journal.step_rows()) == sum(isinstance(event, ev.StepFinished) for event in journal.events())
    assert journal.damage == [] and not list(directory.glob("0*.jsonl"))
