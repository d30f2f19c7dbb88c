"""Opening and seeking a recorded run equals folding its events, whatever happened to the files."""

from __future__ import annotations

import random
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.errors import RecordingError
from console.journal import events as ev
from console.journal.codec import decode_event
from console.journal.writer import JournalWriter
from console.records.run_dir import Manifest, RunRecord, read_manifest, write_manifest
from console.state.model import encode_state
from console.state.reduce import RunView, apply, fold

SMALL = st.integers(0, 2)
WORD = st.text("abc", max_size=3)
MAYBE = st.none() | st.floats(0, 1)
PLACE = {"step": SMALL, "group": SMALL, "trial": SMALL, "try_": SMALL}
ANY_EVENT = st.one_of(
    st.builds(ev.RunStarted, run_id=WORD, steps=st.none() | SMALL, resumed_from=st.none() | SMALL),
    st.builds(ev.RunPhase, phase=st.sampled_from(["training", "stopping"]), detail=WORD),
    st.builds(ev.RunPlanned, steps=SMALL),
    st.builds(ev.RunFinished, status=st.sampled_from(["completed", "stopped", "failed"]), exit_code=SMALL),
    st.builds(ev.StepStarted, step=SMALL, groups=SMALL, policy_version=SMALL),
    st.builds(ev.StepFinished, step=SMALL, reward_mean=MAYBE, policy_version=SMALL, seconds_total=MAYBE),
    st.builds(ev.GroupStarted, step=SMALL, group=SMALL, task=WORD, size=st.just(3)),
    st.builds(ev.GroupFinished, step=SMALL, group=SMALL, kept=st.booleans(), reward_mean=MAYBE),
    st.builds(ev.TrialPhase, phase=st.sampled_from(["queued", "agent", "verify"]), **PLACE),
    st.builds(ev.TrialTurn, turn=SMALL, prompt_tokens=SMALL, sampled_tokens=SMALL, **PLACE),
    st.builds(
        ev.TrialFinished,
        outcome=st.sampled_from(["completed", "infrastructure"]),
        reward=MAYBE,
        seconds=st.dictionaries(WORD, st.floats(0, 9), max_size=2),
        **PLACE,
    ),
    st.builds(ev.TrialHeld, deadline=st.floats(0, 9), **PLACE),
    st.builds(ev.TrialRetried, by=WORD, **PLACE),
    st.builds(ev.GatewayHealth, reachable=st.booleans(), latency_ms=MAYBE),
    st.builds(ev.CaptureStats, calls=SMALL, sampled_tokens=SMALL),
    st.builds(ev.SandboxStats, live=SMALL, left=st.lists(WORD, max_size=2)),
    st.builds(ev.CheckpointSaved, name=WORD, step=SMALL),
    st.builds(ev.AlarmOpened, key=WORD, level=st.sampled_from(["warning", "critical"]), text=WORD),
    st.builds(ev.AlarmClosed, key=WORD),
    st.builds(ev.CommandRequested, id=WORD, command=WORD, args=st.dictionaries(WORD, MAYBE | SMALL, max_size=2)),
    st.builds(ev.CommandAccepted, id=WORD, effect=WORD),
    st.builds(ev.CommandFinished, id=WORD, status=st.sampled_from(["done", "refused"])),
    st.builds(ev.StopRequested, when=st.sampled_from(["", "now", "after_step"])),
    st.builds(ev.Note, text=WORD),
    st.builds(ev.UnknownEvent, original=WORD),
)


def record(
    run_dir: Path, engines: list[list[ev.Event]], *, chunk_bytes: list[int], snapshot_events: int
) -> tuple[RunView, list[ev.Event]]:
    """Write a run as its engines would, each starting from what is on disk.

    Returns the last one's live view, and the events as they were announced.
    """
    clock = iter(range(1000, 10**9))
    view = RunView()
    heard: list[ev.Event] = []
    for number, events in enumerate(engines):
        view = RunRecord(run_dir).view_at_end() if (run_dir / "journal").exists() else view

        def state(view: RunView = view) -> tuple[bytes, int]:
            return encode_state(view.state), view.state.steps_done

        def reduce(line: bytes, event: ev.Event, view: RunView = view) -> None:
            apply(view, event)
            heard.append(decode_event(line))

        with JournalWriter(
            run_dir / "journal",
            snapshot=state,
            clock=lambda: float(next(clock)),
            chunk_bytes=chunk_bytes[number],
            snapshot_events=snapshot_events,
        ) as writer:
            writer.subscribe(reduce)
            for event in events:
                writer.append(event)
            writer.close(seal=number == 0)
    return view, heard


def without_snapshots(events: list[ev.Event]) -> RunView:
    """The fold that no snapshot takes part in, placed at the last event."""
    view = fold(event for event in events if not isinstance(event, ev.Snapshot))
    if events:
        view.state.seq, view.state.ts = events[-1].seq, events[-1].ts
    return view


@settings(max_examples=80, deadline=None)
@given(engines=st.lists(st.lists(ANY_EVENT, max_size=40), min_size=1, max_size=3), data=st.data())
def test_live_view_snapshots_and_full_fold_agree(
    engines: list[list[ev.Event]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run_dir = tmp_path_factory.mktemp("run")
    live, heard = record(run_dir, engines, chunk_bytes=[2500] * 3, snapshot_events=6)
    run = RunRecord(run_dir)
    events = list(run.journal.events())
    assert events == heard
    assert run.view_at_end() == fold(events) == live == without_snapshots(events)
    for _ in range(8):
        seq = data.draw(st.integers(0, len(events)))
        assert run.view_at(seq=seq) == fold(events[:seq]) == without_snapshots(events[:seq])
        ts = data.draw(st.floats(990, 1010 + len(events)))
        assert run.view_at(ts=ts) == fold(event for event in events if event.ts <= ts)
    assert run.damage == []


def training_run(rng: random.Random, first: int, last: int, groups: int = 2, trials: int = 3) -> Iterator[ev.Event]:
    """An engine's events, steps first to last: trials with turns, some lost and tried again."""
    resumed = first or None
    yield ev.RunStarted(run_id="r1", name="small", groups_per_batch=groups, group_size=trials, resumed_from=resumed)
    for step in range(first, last + 1):
        yield ev.StepStarted(step=step, groups=groups, policy_version=step)
        for group in range(groups):
            yield ev.GroupStarted(step=step, group=group, task=f"task-{group}", size=trials)
        for group in range(groups):
            for trial in range(trials):
                yield from _trial(rng, step, group, trial)
            yield ev.GroupFinished(step=step, group=group, kept=True, reward_mean=rng.random())
        yield ev.StepFinished(step=step, reward_mean=rng.random(), groups_kept=groups, policy_version=step + 1)


def _trial(rng: random.Random, step: int, group: int, trial: int) -> Iterator[ev.Event]:
    yield ev.TrialPhase(step=step, group=group, trial=trial, phase="agent")
    for turn in (1, 2):
        yield ev.TrialTurn(step=step, group=group, trial=trial, turn=turn, sampled_tokens=rng.randrange(90))
    if rng.random() < 0.2:
        yield ev.TrialFinished(step=step, group=group, trial=trial, outcome="infrastructure", evidence="gone")
        yield ev.TrialRetried(step=step, group=group, trial=trial, try_=1)
    yield ev.TrialFinished(step=step, group=group, trial=trial, outcome="completed", try_=1, reward=rng.random())


class Recording:
    """A run on disk, and what its lines and frames are, found out without the reader."""

    def __init__(self, run_dir: Path, last: int = 6) -> None:
        rng = random.Random(7)
        self.run_dir = run_dir
        engines = [list(training_run(rng, first, to)) for first, to in ((0, last), (last - 2,) * 2, (last - 2,) * 2)]
        del engines[1][14:], engines[2][10:]
        _, heard = record(run_dir, engines, chunk_bytes=[9000, 90_000, 90_000], snapshot_events=20)
        self.journal = run_dir / "journal"
        self.files = {path.name: path.read_bytes() for path in self.journal.iterdir() if path.name != "lock"}
        (self.active,) = (name for name in self.files if name.endswith(".jsonl") and name[0] == "0")
        self.sealed = sorted(name for name in self.files if name.endswith(".zst"))
        self.active_lines = self.files[self.active].splitlines(keepends=True)
        self.events = {event.seq: event for event in heard}
        self.rows = {seq: e for seq, e in self.events.items() if isinstance(e, ev.StepFinished | ev.RunStarted)}

    def frames(self, name: str) -> list[tuple[int, int, int, int]]:
        """Of a sealed chunk: (offset, size, first seq, last seq) of each frame."""
        stored = msgspec.json.decode(self.files[name.replace(".jsonl.zst", ".idx")])
        return [(block[0], block[1], block[2], block[3]) for block in stored["index"]["blocks"]]

    def copy(self, target: Path) -> RunRecord:
        shutil.copytree(self.run_dir, target)
        return RunRecord(target)

    def restore(self, target: Path, name: str) -> None:
        (target / "journal" / name).write_bytes(self.files[name])

    def lost(self, first: int, last: int) -> set[int]:
        """Event numbers that are gone with the events first..last: finished steps have a copy."""
        return {seq for seq in range(first, last + 1) if seq not in self.rows}


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    made = Recording(tmp_path_factory.mktemp("recording") / "run")
    assert len(made.sealed) >= 3 and len(made.events) > 200
    assert len(made.active_lines) > 15 and any(b'"snapshot"' in line for line in made.active_lines[4:])
    return made


def test_a_journal_cut_at_every_byte_of_its_active_chunk(tmp_path: Path) -> None:
    """It is read thousands of times, and what lies before the active chunk each time again: of that there is little."""
    recording = Recording(tmp_path / "recording", last=2)
    assert recording.sealed and len(recording.active_lines) > 15
    assert any(b'"snapshot"' in line for line in recording.active_lines[4:])
    recording.copy(tmp_path / "run")
    chunk = tmp_path / "run" / "journal" / recording.active
    data = recording.files[recording.active]
    before = int(recording.active[:12]) - 1
    views = {count: fold(e for seq, e in recording.events.items() if seq <= before + count) for count in range(100)}
    for size in range(len(data), -1, -1):
        with chunk.open("r+b") as file:
            file.truncate(size)
        run = RunRecord(tmp_path / "run")
        whole = data[:size].count(b"\n")
        assert run.journal.last_seq == before + whole
        assert run.view_at_end() == views[whole]
        torn = size - data.rfind(b"\n", 0, size) - 1 if size else 0
        assert [damage.size for damage in run.damage] == ([torn] if torn else [])
        if size % 50 == 0:
            assert fold(run.journal.events()) == views[whole]


def test_a_sealed_chunk_cut_anywhere(recording: Recording, tmp_path: Path) -> None:
    rng = random.Random(11)
    run_dir = tmp_path / "run"
    recording.copy(run_dir)
    for index_too in (False, True):
        for _ in range(375):
            name = rng.choice(recording.sealed)
            size = rng.randrange(len(recording.files[name]))
            (run_dir / "journal" / name).write_bytes(recording.files[name][:size])
            if index_too:
                index = name.replace(".jsonl.zst", ".idx")
                (run_dir / "journal" / index).write_bytes(recording.files[index][: rng.randrange(300)])
            gone: set[int] = set()
            for offset, length, first, last in recording.frames(name):
                if offset + length > size:
                    gone |= recording.lost(first, last)
            run = RunRecord(run_dir)
            expected = fold(e for seq, e in recording.events.items() if seq not in gone)
            assert fold(run.journal.events()) == expected == run.view_at_end()
            assert run.damage
            recording.restore(run_dir, name)
            if index_too:
                recording.restore(run_dir, index)


def test_an_index_or_the_side_file_cut_anywhere_loses_nothing(recording: Recording, tmp_path: Path) -> None:
    rng = random.Random(12)
    run_dir = tmp_path / "run"
    recording.copy(run_dir)
    expected = fold(recording.events.values())
    names = [name for name in recording.files if name.endswith(".idx")] + ["steps.jsonl"] * 2
    for _ in range(250):
        name = rng.choice(names)
        (run_dir / "journal" / name).write_bytes(recording.files[name][: rng.randrange(len(recording.files[name]))])
        run = RunRecord(run_dir)
        assert list(run.journal.events()) == list(recording.events.values())
        assert run.view_at_end() == expected
        recording.restore(run_dir, name)


def test_a_flipped_bit_anywhere_costs_its_line_or_frame_alone(recording: Recording, tmp_path: Path) -> None:
    rng = random.Random(13)
    run_dir = tmp_path / "run"
    recording.copy(run_dir)
    names = [*recording.sealed, *[recording.active] * 4, "steps.jsonl", *recording.files]
    for _ in range(500):
        name = rng.choice(names)
        data = bytearray(recording.files[name])
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)
        (run_dir / "journal" / name).write_bytes(data)
        touched: set[int] = set()
        if name == recording.active:
            line = recording.files[name].count(b"\n", 0, at)
            first = int(recording.active[:12])
            newline = recording.files[name][at : at + 1] == b"\n"
            touched = {first + line, first + line + newline}
        elif name in recording.sealed:
            for offset, length, first, last in recording.frames(name):
                if offset <= at < offset + length:
                    touched = set(range(first, last + 1))
        run = RunRecord(run_dir)
        events = {event.seq: event for event in run.journal.events()}
        if name != recording.active:  # all but plain lines carry checksums: a damaged frame never passes as another
            assert all(event == recording.events[seq] for seq, event in events.items())
        assert {s: e for s, e in events.items() if s not in touched} == {
            s: e for s, e in recording.events.items() if s not in touched
        }
        assert {s: e for s, e in events.items() if s in recording.rows} == recording.rows
        assert run.view_at_end() == fold(events.values())
        run.timeline()
        recording.restore(run_dir, name)


def test_a_snapshot_heals_what_was_lost_before_it(recording: Recording, tmp_path: Path) -> None:
    run = recording.copy(tmp_path / "run")
    whole = run.view_at_end()
    lines = list(recording.active_lines)
    at = next(n for n, line in enumerate(lines) if b'"snapshot"' in line and n > 3)
    lines[at - 2] = b"\xff" * 100 + b"\n"
    (tmp_path / "run" / "journal" / recording.active).write_bytes(b"".join(lines))
    run = RunRecord(tmp_path / "run")
    assert len(list(run.journal.events())) == len(recording.events) - 1
    assert fold(run.journal.events()) == run.view_at_end() == whole


def test_a_snapshot_that_does_not_fit_is_passed_over(tmp_path: Path) -> None:
    states = [b'{"seq":1}', b'{"seq":5,"run_id":7}', b"[]", b'{"seq":7,"run_id":"wrong place"}']
    with JournalWriter(tmp_path / "journal", snapshot=lambda: (states.pop(0), 0), snapshot_events=1) as writer:
        for _ in range(5):
            writer.append(ev.RunStarted(run_id="right"))
    run = RunRecord(tmp_path)
    assert sum(isinstance(event, ev.Snapshot) for event in run.journal.events()) == 4
    view = run.view_at_end()
    assert view.state.run_id == "right" and view == fold(run.journal.events())


def test_the_timeline_has_the_steps_of_the_lineage(recording: Recording) -> None:
    run = RunRecord(recording.run_dir)
    timeline = run.timeline()
    assert [mark.step for mark in timeline.steps] == list(range(4))
    assert timeline.last_seq == max(recording.events)
    assert timeline.first_ts == 1000.0 and timeline.last_ts == recording.events[timeline.last_seq].ts
    for mark in timeline.steps:
        assert run.view_at(seq=mark.seq).state.steps_done == mark.step + 1
        assert recording.events[mark.seq].ts == mark.ended


def test_a_record_takes_in_what_was_written_since(tmp_path: Path) -> None:
    with JournalWriter(tmp_path / "journal") as writer:
        run = RunRecord(tmp_path)
        assert run.view_at_end() == RunView()
        writer.append(ev.RunStarted(run_id="a"))
        run.refresh()
        assert run.view_at_end().state.run_id == "a"


@pytest.mark.parametrize(
    ("made", "named", "message"),
    [
        ("run/journal/", "run", None),
        ("run/journal/", "run/journal", None),
        ("other/", "other", "not a run directory .no journal/ in it.; name"),
        ("file", "file", "not a run directory"),
        ("", "nothing", "there is no such directory"),
    ],
)
def test_a_path_is_a_run_directory_or_a_clear_error(tmp_path: Path, made: str, named: str, message: str | None) -> None:
    if made.endswith("/"):
        (tmp_path / made).mkdir(parents=True)
    elif made:
        (tmp_path / made).write_text("")
    if message is None:
        assert RunRecord(tmp_path / named).path == tmp_path / "run"
        return
    with pytest.raises(RecordingError, match=message) as error:
        RunRecord(tmp_path / named)
    assert error.value.exit_code == 10 and str(tmp_path / named) in str(error.value)


def test_the_manifest_round_trip_and_its_errors(tmp_path: Path) -> None:
    manifest = Manifest(
        run_id="r1", name="n", created=1.5, versions={"tinker": "0.38"}, config={"a.b": None, "c": 1.5, "d": True}
    )
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path) == manifest
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    assert stat.S_IMODE((tmp_path / "run.json").stat().st_mode) == 0o600
    for data, message in [
        (b"{", "damaged"),
        (b'{"run_id":5}', "damaged"),
        (b'{"run_id":"x","schema":99}', "later version"),
    ]:
        (tmp_path / "run.json").write_bytes(data)
        with pytest.raises(RecordingError, match=message):
            read_manifest(tmp_path)
    (tmp_path / "run.json").unlink()
    with pytest.raises(RecordingError, match=r"run\.json: cannot be read"):
        read_manifest(tmp_path)
