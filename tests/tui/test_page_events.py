"""The events page: the whole history, followed, filtered, searched, gone to."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_bench import AskedSource, BenchShell, desk_on, keys, page_text, play_to_hold, story

from console.journal import events as ev
from console.journal.writer import JournalWriter
from console.records.manifest import Manifest, write_manifest
from console.records.run_dir import RunRecord
from console.state.reduce import RunView, apply
from console.tui.desk import Desk
from console.tui.event_log import read_entries
from console.tui.pages.events import EventsPage
from console.tui.pages.trial import TrialPage
from console.tui.source import Link


class Bare:
    """A live source that is fed by the test."""

    mode = "live"
    acts = True
    presence = ()

    def __init__(self) -> None:
        self.view, self.version, self.listener = RunView(), 0, None

    def link(self) -> Link:
        return Link("ok")

    def now(self) -> float:
        return self.view.state.ts

    def poll(self) -> None:
        pass

    def feed(self, *events: ev.Event) -> None:
        for event in events:
            event.seq = event.seq or self.view.state.seq + 1
            event.ts = event.ts or 1000.0 + event.seq
            apply(self.view, event)
            if self.listener is not None:
                self.listener(event)

    def jump(self, view: RunView) -> None:
        self.view = view
        if self.listener is not None:
            self.listener(None)


def body(desk: Desk, width: int = 100, height: int = 40) -> str:
    return "\n".join(page_text(desk, width, height))


def said(desk: Desk) -> str:
    return "".join(span.text for span in desk.scene().message)


async def replayed(recording: Path, *pressed: str) -> tuple[Desk, BenchShell, AskedSource]:
    source = AskedSource(RunRecord(recording), story())
    play_to_hold(source, recording)
    desk, shell, _ = desk_on(source)
    await keys(desk, shell, "E", *pressed)
    return desk, shell, source


def begin(steps: int = 1) -> list[ev.Event]:
    return [
        ev.RunStarted(run_id="r-1", name="r"),
        ev.StepStarted(step=0, groups=1, policy_version=0),
        ev.GroupStarted(step=0, group=0, task="archive", size=4),
    ]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_snapshots(recording: Path, size: tuple[int, int], matches_snapshot) -> None:
    desk, *_ = await replayed(recording)
    matches_snapshot(f"events-{size[0]}x{size[1]}", page_text(desk, *size))


async def test_all_events_of_the_journal_up_to_the_moment_are_there(recording: Path) -> None:
    desk, _, source = await replayed(recording)
    page = desk.page
    assert isinstance(page, EventsPage)
    body(desk)
    text = page.text.text()
    assert "run demo started" in text
    assert "   s12 T g1/t3 agent timeout" in text.rsplit("\n", 1)[1]
    everything = read_entries(RunRecord(recording).journal, source.view.state.seq)
    assert (everything.after, everything.last) == (0, source.view.state.seq)
    assert [e.text for e in everything.entries][-200:] == [line.text for line in source.view.state.lines]
    assert len(page.text.lines) == len(everything.entries) + 1  # and the line of the day
    assert "step 14 done" not in text


async def test_what_happens_while_it_is_open_is_added_and_a_seek_starts_anew(recording: Path) -> None:
    desk, shell, source = await replayed(recording)
    assert "follows" in body(desk)
    seq = next(e.seq for e in source.record.journal.events() if isinstance(e, ev.TrialRetried))
    source.play_to(seq)
    assert "granted by ada@bridge" in body(desk).rsplit("\n", 3)[-1] + body(desk)
    await keys(desk, shell, "k", "k")
    source.play_to(source.record.journal.last_seq)
    assert "new" in body(desk).split("\n")[0]
    source.seek(seq - 200)
    assert "granted" not in body(desk)
    await shell.settle()
    page = desk.page
    assert isinstance(page, EventsPage)
    assert "run demo started" in page.text.text()
    assert "granted" not in page.text.text()


async def test_filter_shows_some_and_n_finds_them_among_all(recording: Path) -> None:
    desk, shell, _ = await replayed(recording)
    shell.answers = ["class:infra"]
    await keys(desk, shell, "slash")
    text = body(desk)
    assert "filter: class:infra" in text
    rows = [row for row in text.split("\n")[1:] if row.strip()]
    assert len(rows) == 2 and "g3/t5 infrastructure sandbox" in rows[1]
    await keys(desk, shell, "escape")
    assert "step 11 done" in body(desk)
    await keys(desk, shell, "g", "n")
    page = desk.page
    assert isinstance(page, EventsPage)
    assert page.entry is not None and page.entry.outcome == "infrastructure"
    assert page.yank_text().endswith("after 601917 ms")
    for query, expected in [
        ("step:4", 4), ("kind:checkpoint", 2), ("!level:info step:12", 5), ("g:3 t:5", 2), ('"step 7 done"', 1),
    ]:  # fmt: skip
        shell.answers = [query]
        await keys(desk, shell, "slash")
        found = [row for row in body(desk).split("\n")[1:] if row.strip()]
        assert found[1:], query
        if query == "g:3 t:5":
            assert all("g3/t5" in row for row in found[1:])
        if query == "kind:checkpoint":
            assert len(found) == 1 + expected
    shell.answers = ["nothing:here"]
    await keys(desk, shell, "slash")
    assert "no key nothing" in said(desk)
    shell.answers = ["zzz"]
    await keys(desk, shell, "slash")
    assert "no event passes the filter" in body(desk)
    await keys(desk, shell, "escape", "escape")
    assert desk.page.id == "run"


async def test_enter_goes_to_what_the_event_names(recording: Path) -> None:
    desk, shell, source = await replayed(recording)
    shell.answers = ["class:infra"]
    await keys(desk, shell, "slash", "enter")
    assert isinstance(desk.page, TrialPage)
    assert "g3/t5" in body(desk)
    await keys(desk, shell, "escape", "escape")
    shell.answers = ["step:4 class:agent_timeout"]
    await keys(desk, shell, "slash", "enter")
    assert "step 4, which is over" in body(desk)
    await keys(desk, shell, "escape", "escape")
    shell.answers = ["step:7 done"]
    before = source.view.state.seq
    await keys(desk, shell, "slash", "enter")
    assert source.view.state.seq < before
    assert "at event #" in said(desk)
    assert source.view.state.steps_done == 8


async def test_live_and_far_away_it_keeps_what_comes_on_top_of_the_states_lines() -> None:
    source = Bare()
    source.feed(*begin(), *[ev.Note(text=f"early {n}") for n in range(10)])
    desk, shell, _ = desk_on(source)  # type: ignore[arg-type]
    source.feed(*[ev.Note(text=f"later {n}") for n in range(300)])
    await keys(desk, shell, "E")
    page = desk.page
    assert isinstance(page, EventsPage)
    texts = page.text.text()
    assert "later 0\n" in texts and "later 299" in texts
    source.feed(ev.AlarmOpened(key="gateway.slow", level="warning", text="gateway slow"))
    assert "alarm: gateway slow" in body(desk)
    assert page.entry is not None and page.entry.kind == "alarm.opened"
    await keys(desk, shell, "enter")
    assert desk.page.id == "alarms"


async def test_a_new_connection_keeps_what_was_known_and_says_what_is_missing() -> None:
    source = Bare()
    desk, shell, _ = desk_on(source)  # type: ignore[arg-type]
    await keys(desk, shell, "E")
    source.feed(*begin(), ev.Note(text="before the gap"))
    other = Bare()
    other.feed(*begin(), ev.Note(text="before the gap"), *[ev.Note(text=f"missed {n}") for n in range(250)])
    body(desk)
    source.jump(other.view)
    body(desk)
    await shell.settle()
    page = desk.page
    assert isinstance(page, EventsPage)
    text = page.text.text()
    assert text.count("before the gap") == 1
    assert "some events before this one are not known here" in text
    assert text.rstrip().endswith("missed 249")


async def test_a_live_run_of_this_machine_has_its_whole_journal(tmp_path: Path) -> None:
    source = Bare()
    run_dir = tmp_path / "run"
    desk, shell, _ = desk_on(source)  # type: ignore[arg-type]
    with JournalWriter(run_dir / "journal") as writer:
        for event in (
            ev.RunStarted(run_id="r-1", name="r", run_dir=str(run_dir)),
            *[ev.Note(text=f"note {n}") for n in range(400)],
        ):
            source.feed(writer.append(event))
    write_manifest(run_dir, Manifest(run_id="r-1", name="r", created=1.0))
    await keys(desk, shell, "E")
    page = desk.page
    assert isinstance(page, EventsPage)
    body(desk)
    assert "note 0\n" in page.text.text()
    source.feed(ev.Note(text="and on"))
    assert "and on" in body(desk)
    assert page.text.text().count("note 399") == 1
    write_manifest(run_dir, Manifest(run_id="another", name="r", created=1.0))
    desk, shell, _ = desk_on(source)  # type: ignore[arg-type]
    await keys(desk, shell, "E")
    body(desk)
    assert "note 0\n" not in desk.page.text.text()  # type: ignore[attr-defined]


async def test_a_journal_that_cannot_be_read_is_said(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from console.errors import RecordingError
    from console.tui import history

    def broken(*_: object) -> None:
        raise RecordingError("journal: torn \x1b[2J")

    monkeypatch.setattr(history, "read_entries", broken)
    desk, *_ = await replayed(recording)
    assert "the journal cannot be read: journal: torn" in body(desk)
    assert "g3/t5 held" in body(desk)


def test_a_window_of_a_long_journal_invents_no_change_of_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    from console.tui import event_log

    monkeypatch.setattr(event_log, "EVENTS_READ", 3)

    class Log:
        def events(self, after_seq: int = 0, until_seq: int | None = None):
            every = [
                ev.RunStarted(seq=1, run_id="r"), ev.GatewayHealth(seq=2, reachable=True),
                ev.GatewayHealth(seq=3, ts=3.0, reachable=True), ev.GatewayHealth(seq=4, ts=4.0, reachable=False),
                ev.Note(seq=5, text="x"),
            ]  # fmt: skip
            return iter([e for e in every if after_seq < e.seq <= (until_seq or 9)])

    read = read_entries(Log(), 5)
    assert (read.after, read.last) == (2, 5)
    assert [e.text for e in read.entries] == ["gateway unreachable: ", "x"]
