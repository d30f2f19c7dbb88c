"""The reader on journals that no writer of ours would leave: damaged, hostile, from a later version."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from console.errors import RecordingError
from console.journal import events as ev
from console.journal.codec import encode_event
from console.journal.layout import LINE_LIMIT
from console.journal.reader import Journal
from console.journal.scan import BLOCK_EVENTS, Scan
from console.journal.writer import JournalWriter


def line(seq: int, text: str = "some words", ts: float = 1.79e9) -> bytes:
    return encode_event(ev.Note(seq=seq, ts=ts + seq, text=text)) + b"\n"


def plain(tmp_path: Path, *lines: bytes, first_seq: int = 1) -> Path:
    (tmp_path / f"{first_seq:012d}.jsonl").write_bytes(b"".join(lines))
    return tmp_path


def seqs(directory: Path) -> list[int]:
    return [event.seq for event in Journal(directory).events()]


def reasons(journal: Journal) -> list[str]:
    list(journal.events())
    return [damage.reason for damage in journal.damage]


def test_an_empty_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert (journal.last_seq, journal.first_ts, journal.last_ts) == (0, None, None)
    assert list(journal.events()) == [] and journal.nearest_snapshot() is None and journal.step_rows() == []
    assert journal.seq_at(1e9) == 0 and journal.follow().poll() == [] and journal.damage == []


def test_no_directory_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="name a run directory") as error:
        Journal(tmp_path / "nothing")
    assert error.value.exit_code == 10


def test_events_of_a_later_version_are_kept(tmp_path: Path) -> None:
    later = b'{"type":"weather.report","seq":2,"ts":1.5,"wind":{"knots":12}}'
    more = b'{"type":"note","seq":3,"ts":2.0,"text":"hi","colour":"red"}'
    plain(tmp_path, line(1), later + b"\n", more + b"\n")
    journal = Journal(tmp_path)
    _, unknown, note = journal.events()
    assert isinstance(unknown, ev.UnknownEvent)
    assert unknown.original == "weather.report" and unknown.body["wind"] == {"knots": 12}
    assert isinstance(note, ev.Note) and note.text == "hi"
    assert list(journal.lines(1)) == [later, more]
    JournalWriter(tmp_path).close()
    assert list(Journal(tmp_path).lines(1)) == [later, more]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([line(1), b"rubbish\n", line(3)], [1, 3]),
        ([line(1), b"\n", line(2)], [1, 2]),
        ([line(1), line(900), line(3), line(4)], [1, 3, 4]),  # a number damaged in the middle
        ([line(900), line(2), line(3)], [2, 3]),
        ([line(1), line(2), line(900)], [1, 2]),  # at the end nobody confirms it
        ([line(1), line(7), line(8)], [1, 7, 8]),  # lines taken out by hand
        ([line(1), line(2), line(2), line(1), line(3)], [1, 2, 3]),
        ([line(1), line(2)[:-1] + line(3), line(4)], [1, 4]),  # the newline is gone
        ([line(1), line(2)[:20] + b"\n" + line(2)[20:], line(3)], [1, 3]),
        ([line(1), b"[" * 100_000 + b"\n", line(3)], [1, 3]),
        ([line(1), b'{"type":"x","seq":null,"ts":1}\n', line(3)], [1, 3]),
        ([line(1), b'{"type":"note","seq":2,"ts":1e300,"text":""}\n', line(3)], [1, 3]),
        ([line(1), b'{"type":"note","seq":2,"ts":1,"text":5}\n', line(3)], [1, 3]),
        ([line(1), b'{"type":"x","x":' + b'{"a":' * 5000 + b"1" + b"}" * 5001 + b"\n", line(3)], [1, 3]),
    ],
)
def test_a_damaged_line_costs_itself_alone(tmp_path: Path, lines: list[bytes], expected: list[int]) -> None:
    plain(tmp_path, *lines)
    journal = Journal(tmp_path)
    assert [event.seq for event in journal.events()] == expected
    assert reasons(journal)
    # The same verdict when the lines arrive one by one, and after sealing.
    scan = Scan(1)
    for piece in lines:
        scan.feed(piece)
    scan.finish(scan.offset)
    assert scan.index.last_seq == expected[-1]
    JournalWriter(tmp_path).close()
    assert seqs(tmp_path) == expected
    kept = tmp_path / "000000000001.damaged"
    good = b"".join(one + b"\n" for one in Journal(tmp_path).lines())
    assert len(good) + (kept.stat().st_size if kept.exists() else 0) == len(b"".join(lines))


def test_a_writer_goes_on_after_damage_without_using_a_number_twice(tmp_path: Path) -> None:
    plain(tmp_path, line(1), line(2), line(900))
    with JournalWriter(tmp_path) as writer:
        assert writer.append(ev.Note(text="next")).seq == 3
    assert seqs(tmp_path) == [1, 2, 3]


def test_missing_chunks_are_a_gap(tmp_path: Path) -> None:
    plain(tmp_path, line(1), line(2))
    plain(tmp_path, line(10), line(11), first_seq=10)
    journal = Journal(tmp_path)
    assert reasons(journal) == ["events 3 to 9 are missing"]
    assert seqs(tmp_path) == [1, 2, 10, 11]
    assert [event.seq for event in journal.events(2)] == [10, 11]
    assert [event.seq for event in journal.events(1, 10)] == [2, 10]


def test_a_row_that_the_chunks_lost_comes_from_the_side_file(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    with JournalWriter(directory) as writer:
        writer.append(ev.Note(text="a"))
        row = writer.append(ev.StepFinished(step=4, reward_mean=0.5))
        writer.append(ev.Note(text="b"))
        writer.close(seal=False)
    (chunk,) = directory.glob("0*.jsonl")
    chunk.write_bytes(chunk.read_bytes().replace(b"step.finished", b"step.fini\0hed"))
    journal = Journal(directory)
    assert [event.seq for event in journal.events()] == [1, 2, 3]
    assert journal.step_rows() == [row] == list(journal.events(1, 2))
    assert reasons(journal)


def test_a_line_or_a_frame_too_large_is_damage_and_bounded(tmp_path: Path) -> None:
    huge = b'{"type":"note","seq":2,"ts":1.0,"text":"' + b"x" * LINE_LIMIT + b'"}\n'
    plain(tmp_path, line(1), huge, line(3))
    journal = Journal(tmp_path)
    assert [event.seq for event in journal.events()] == [1, 3]
    assert sum(damage.size for damage in journal.damage) == len(huge)
    endless = tmp_path / "endless"
    endless.mkdir()
    plain(endless, line(1), b"x" * (LINE_LIMIT + 100))
    assert seqs(endless) == [1] and reasons(Journal(endless))
    bombs = tmp_path / "bombs"
    bombs.mkdir()
    bomb = zstandard.ZstdCompressor(level=1).compress(b"\n" * (65 << 20))
    good = zstandard.ZstdCompressor().compress(line(1))
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(line(2))
    (bombs / "000000000001.jsonl.zst").write_bytes(good + bomb + unsized + zstandard.compress(line(3)))
    assert seqs(bombs) == [1, 3]
    assert "not an intact frame" in reasons(Journal(bombs))


def test_seeking_by_time(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    clock = iter(range(100, 10_000, 10))
    with JournalWriter(
        directory, clock=lambda: float(next(clock)), snapshot=lambda: (b"{}", 0), snapshot_events=20, chunk_bytes=3000
    ) as writer:
        for _ in range(200):
            writer.append(ev.Note(text="tick"))
    journal = Journal(directory)
    events = list(journal.events())
    assert (journal.first_ts, journal.last_ts) == (100.0, events[-1].ts)
    for ts in (0.0, 99.9, 100.0, 105.0, 777.0, 1500.0, 1e6):
        past = [event for event in events if event.ts <= ts]
        assert journal.seq_at(ts) == (past[-1].seq if past else 0)
        snapshots = [event for event in past if isinstance(event, ev.Snapshot)]
        assert journal.nearest_snapshot(ts=ts) == (snapshots[-1] if snapshots else None)


def test_a_follower_waits_for_the_end_of_a_line(tmp_path: Path) -> None:
    chunk = plain(tmp_path, line(1)) / "000000000001.jsonl"
    follower = Journal(tmp_path).follow()
    assert [record.event.seq for record in follower.poll()] == [1]
    data = line(2) + line(3)
    for cut in range(len(data) + 1):
        chunk.write_bytes(line(1) + data[:cut])
        assert [record.event.seq for record in follower.poll()] == {len(line(2)): [2], len(data): [3]}.get(cut, [])


def _sealed_run(directory: Path) -> Path:
    """A journal that was closed in order; its one chunk has several frames."""
    with JournalWriter(directory) as journal:
        journal.append(ev.StepFinished(step=0, policy_version=1))
        for _ in range(2 * BLOCK_EVENTS):
            journal.append(ev.Note(text="some words"))
        journal.append(ev.RunFinished(status="stopped", exit_code=3))
    (chunk,) = directory.glob("*.jsonl.zst")
    return chunk


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("damage", ["cut", "cut to nothing", "last frame", "gone"])
def test_a_lost_end_is_known(tmp_path: Path, damage: str, index: bool) -> None:
    chunk = _sealed_run(tmp_path)
    assert not Journal(tmp_path).end_lost
    if not index:
        chunk.with_name(chunk.name.replace(".jsonl.zst", ".idx")).unlink()
        assert not Journal(tmp_path).end_lost
    data = chunk.read_bytes()
    if damage == "gone":
        chunk.unlink()  # its step is in the side file
    elif damage == "last frame":
        chunk.write_bytes(data[:-12] + bytes(8) + data[-4:])
    else:
        chunk.write_bytes(data[: len(data) - 5 if damage == "cut" else 0])
    assert Journal(tmp_path).end_lost


def test_an_end_that_can_be_read_is_not_lost(tmp_path: Path) -> None:
    """Neither in the middle of a journal, nor where an engine was killed in the middle of a line, is an end lost."""
    assert not Journal(plain(tmp_path, line(1), line(2), line(3)[:20])).end_lost
    (tmp_path / "sealed").mkdir()
    chunk = _sealed_run(tmp_path / "sealed")
    data = chunk.read_bytes()
    chunk.write_bytes(data[:20] + bytes(8) + data[28:])
    journal = Journal(tmp_path / "sealed")
    assert any("cannot be unpacked" in reason for reason in reasons(journal)) and not journal.end_lost
