"""The alarms page: sections, what each row says, the cursor, and where enter goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_bench import AskedSource, BenchShell, Clock, desk_on, keys, page_text, play_to_hold, story

from console.journal import events as ev
from console.records.run_dir import RunRecord
from console.state.reduce import apply
from console.state.thresholds import AlarmThresholds
from console.tui.desk import Desk
from console.tui.pages.alarms import AlarmsPage
from console.tui.panes.alarm_list import meanings


def alarm(key: str, level: str = "critical", **more: str) -> ev.AlarmOpened:
    return ev.AlarmOpened(key=key, level=level, text=f"{key} is wrong", **more)


ALARMS: list[ev.Event] = [
    alarm("gateway.slow", "warning", remedy="look at the gateway's load", action="set"),
    alarm("held.g3", consequence="the run stops at the deadline", remedy="retry it or drop the group", action="retry"),
    alarm("learning.kl", "warning", action="stop_after_step"),
    alarm("host.disk", remedy="make room"),
    ev.AlarmAcked(key="learning.kl", by="ada@bridge"),
    ev.AlarmClosed(key="host.disk"),
    alarm("stalled.g1/t2", "warning", action="cancel_trial"),
    alarm("task.failing.fix-permissions", "warning", action="quarantine"),
    ev.AlarmShelved(key="task.failing.fix-permissions", until=1_790_000_600.0, by="ada@bridge"),
    ev.AlarmShelved(key="step.slow", until=1_790_000_600.0, by="ada@bridge"),
]


async def opened(
    recording: Path, events: list[ev.Event] | None = None, *pressed: str
) -> tuple[Desk, BenchShell, Clock, AskedSource]:
    source = AskedSource(RunRecord(recording), story(), live=True)
    play_to_hold(source, recording)
    source.record = None  # type: ignore[assignment]  # as far away as a run behind a socket
    desk, shell, clock = desk_on(source)
    for event in ALARMS if events is None else events:
        feed(source, event)
    await keys(desk, shell, "L", *pressed)
    return desk, shell, clock, source


def feed(source: AskedSource, event: ev.Event) -> None:
    event.seq, event.ts = source.view.state.seq + 1, source.view.state.ts
    apply(source.view, event)
    source.version += 1
    if source.listener is not None:
        source.listener(event)


def body(desk: Desk, width: int = 100, height: int = 60) -> str:
    return "\n".join(page_text(desk, width, height))


def chosen(desk: Desk) -> str:
    page = desk.page
    assert isinstance(page, AlarmsPage)
    return page.selected_alarm.key if page.selected_alarm is not None else ""


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
@pytest.mark.parametrize("name", ["open", "none"])
async def test_snapshots(recording: Path, name: str, size: tuple[int, int], matches_snapshot) -> None:
    desk, *_ = await opened(recording, None if name == "open" else [])
    if name == "none":
        desk.state.groups = {}
    matches_snapshot(f"alarms-{name}-{size[0]}x{size[1]}", page_text(desk, *size))


async def test_sections_in_order_and_what_each_says(recording: Path) -> None:
    desk, *_ = await opened(recording)
    text = body(desk)
    order = [
        "Asking for you (3)", "held.g3 is wrong", "gateway.slow is wrong", "stalled.g1/t2 is wrong", "Acknowledged (1)",
        "learning.kl is wrong", "Over, not acknowledged yet (1)", "host.disk is wrong", "Shelved (2)",
        "task.failing.fix-permissions", "step.slow is silent, should it come", "Past, newest first",
        "What is watched",
    ]  # fmt: skip
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "what follows the run stops at the deadline" in text
    assert "what to do   retry it or drop the group" in text
    assert "key          r retry" in text
    assert "key          = set" in text
    assert "acknowledged by ada@bridge" in text
    assert "shelved until 14:23:20" in text


async def test_the_cursor_moves_over_alarms_past_and_thresholds(recording: Path) -> None:
    desk, shell, *_ = await opened(recording)
    body(desk, 100, 24)
    assert chosen(desk) == "held.g3"
    seen = []
    for _ in range(9):
        seen.append(chosen(desk))
        await keys(desk, shell, "j")
        text = body(desk, 100, 24)
        if chosen(desk):
            assert chosen(desk) in text
    assert seen[:7] == [
        "held.g3", "gateway.slow", "stalled.g1/t2", "learning.kl", "host.disk", "task.failing.fix-permissions",
        "step.slow",
    ]  # fmt: skip
    assert seen[7] == ""
    await keys(desk, shell, "G")
    assert "loop lag critical seconds" in body(desk, 100, 24)
    await keys(desk, shell, "g")
    assert chosen(desk) == "held.g3"
    assert "Asking for you" in body(desk, 100, 24)
    await keys(desk, shell, "exclamation_mark")
    assert chosen(desk) == "gateway.slow"
    assert desk.page.yank_text().startswith(" *  gateway.slow is wrong")  # type: ignore[attr-defined]


async def test_an_acknowledged_alarm_hands_the_cursor_to_the_next(recording: Path) -> None:
    desk, shell, _, source = await opened(recording)
    body(desk)
    await keys(desk, shell, "j")
    assert chosen(desk) == "gateway.slow"
    feed(source, ev.AlarmAcked(key="gateway.slow", by="me"))
    body(desk)
    assert chosen(desk) == "held.g3"
    feed(source, ev.AlarmClosed(key="stalled.g1/t2"))
    body(desk)
    assert chosen(desk) == "held.g3"
    feed(source, ev.AlarmAcked(key="held.g3", by="me"))
    body(desk)
    assert chosen(desk) == "held.g3"  # nobody else asks: it stays where it was


async def test_a_and_h_are_for_the_selected_one(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk, shell, *_ = await opened(recording)
    sent: list[object] = []

    async def send(command: str, args: dict[str, object], *_: object, **__: object) -> None:
        sent.append((command, args))

    monkeypatch.setattr(desk.orders, "send", send)
    body(desk)
    shell.answers = ["30"]
    await keys(desk, shell, "j", "a", "h")
    assert sent == [("ack", {"alarm": "gateway.slow"}), ("shelve", {"alarm": "gateway.slow", "minutes": 30.0})]


@pytest.mark.parametrize(
    ("key", "page", "at"),
    [
        ("held.g3", "trial", (2, 4)), ("stalled.g1/t2", "trial", (0, 1)), ("learning.kl", "metrics", None),
        ("gateway.slow", "run", None), ("step.slow", "metrics", None),
    ],
)  # fmt: skip
async def test_enter_goes_to_what_it_is_about(recording: Path, key: str, page: str, at: tuple[int, int] | None) -> None:
    desk, shell, *_ = await opened(recording)
    body(desk)
    for _ in range(8):
        if chosen(desk) == key:
            break
        await keys(desk, shell, "j")
    await keys(desk, shell, "enter")
    assert desk.page.id == page
    if at is not None:
        assert (desk.selection.group, desk.selection.trial) == at


async def test_an_alarm_of_a_task_goes_to_its_group(recording: Path) -> None:
    desk, shell, _, source = await opened(recording, [])
    task = source.view.state.groups[3].task
    feed(source, alarm(f"task.failing.{task}"))
    body(desk)
    await keys(desk, shell, "enter")
    assert (desk.page.id, desk.selection.group) == ("run", 3)


async def test_nothing_is_wrong(recording: Path) -> None:
    desk, shell, _, source = await opened(recording, [])
    assert "g3/t5 waits for you" in body(desk)
    source.view.state.groups = {}
    text = body(desk)
    assert "all is well: no alarm is open" in text
    assert "gateway down seconds" in text
    shell.answers = ["level:critical"]
    await keys(desk, shell, "slash")
    assert "no alarm passes the filter" in body(desk)
    await keys(desk, shell, "escape")
    assert desk.page.id == "alarms"
    source.view.state.status = "finished"
    assert "the run is over" in body(desk)


async def test_filter(recording: Path) -> None:
    desk, shell, *_ = await opened(recording)
    shell.answers = ["g:3"]
    await keys(desk, shell, "slash")
    text = body(desk)
    assert "held.g3" in text.split("Past")[0]
    assert "gateway.slow" not in text.split("Past")[0]


def test_every_threshold_has_words_and_changed_ones_are_told(recording: Path) -> None:
    assert list(meanings()) == list(AlarmThresholds.__struct_fields__)
    assert all(len(text) > 20 for text in meanings().values())


async def test_changed_thresholds_stand_out(recording: Path) -> None:
    desk, *_ = await opened(recording, [])
    desk.state.thresholds = {"kl": 0.5}
    assert "kl                                  0.5" in body(desk, 120, 100)
    assert "(default 0.01)" in body(desk, 120, 100)
