"""Which events become messages, and what is in them."""

from __future__ import annotations

import msgspec
import pytest

from console.engine.notices import Announcer, Notice
from console.journal import events as ev
from console.state.reduce import RunView, apply


class Watch:
    """Applies events at given times and collects what an announcer says."""

    def __init__(self, level: str = "critical", every: float = 100.0) -> None:
        self.view, self.announcer = RunView(), Announcer(level, every)
        self.put(0.0, ev.RunStarted(run_id="r1", name="de\x1b[31mmo"))

    def put(self, ts: float, event: ev.Event) -> list[Notice]:
        event.ts, event.seq = ts, self.view.state.seq + 1
        apply(self.view, event)
        return self.announcer.see(event, self.view.state)

    def open(self, ts: float, level: str = "critical", key: str = "k", text: str = "wrong") -> list[str]:
        return self.short(self.put(ts, ev.AlarmOpened(key=key, level=level, text=text, remedy="r", consequence="c")))

    def close(self, ts: float, key: str = "k") -> list[str]:
        return self.short(self.put(ts, ev.AlarmClosed(key=key)))

    def due(self, now: float) -> list[str]:
        return self.short(self.announcer.due(self.view.state, now))

    @staticmethod
    def short(notices: list[Notice]) -> list[str]:
        return [f"{n.event} {n.key} {n.level}" for n in notices]


OPENED, CLOSED = ["alarm.opened k critical"], ["alarm.closed k critical"]


def test_a_message_says_which_run_and_what_to_do() -> None:
    watch = Watch()
    watch.put(1.0, ev.StepStarted(step=4, groups=1, policy_version=4))
    (notice,) = watch.put(
        2.0, ev.AlarmOpened(key="k", level="critical", text="a\x1b]0;x\x07b\n", remedy="r", consequence="c")
    )
    assert msgspec.to_builtins(notice) == {
        "v": 1, "event": "alarm.opened", "key": "k", "level": "critical", "text": "ab ", "consequence": "c",
        "remedy": "r", "run": "demo", "run_id": "r1", "host": "", "step": 4, "ts": 2.0,
    }  # fmt: skip
    (over,) = watch.put(3.0, ev.AlarmClosed(key="k"))
    assert (over.event, over.text, over.remedy, over.ts) == ("alarm.closed", "over: ab ", "", 3.0)


def test_only_alarms_of_the_level() -> None:
    watch = Watch()
    assert watch.open(1.0, "warning") == [] and watch.close(2.0) == []
    assert Watch("warning").open(1.0, "warning") == ["alarm.opened k warning"]


def test_a_rise_is_told_at_once() -> None:
    watch = Watch()
    assert watch.open(1.0, "warning") == [] and watch.open(2.0, "critical") == OPENED
    watch = Watch("warning")
    assert watch.open(1.0, "warning") == ["alarm.opened k warning"]
    assert watch.open(2.0, "critical") == OPENED
    assert watch.open(3.0, "critical", text="changed") == []


def test_one_key_is_told_once_in_a_while() -> None:
    watch = Watch()
    assert watch.open(10.0) == OPENED and watch.close(20.0) == CLOSED
    assert watch.open(30.0) == [] and watch.close(40.0) == [], "nobody was told that it opened"
    assert watch.open(50.0, key="other") == ["alarm.opened other critical"]
    assert watch.open(110.0) == OPENED


def test_what_opened_too_soon_and_stays_is_told_later() -> None:
    watch = Watch()
    watch.open(10.0), watch.close(20.0)
    assert watch.open(30.0) == [] and watch.due(109.0) == []
    assert watch.due(110.0) == OPENED and watch.due(111.0) == []
    assert watch.close(120.0) == CLOSED
    assert watch.open(130.0) == [] and watch.close(140.0) == [] and watch.due(500.0) == []


def test_what_somebody_has_seen_is_not_told() -> None:
    watch = Watch("warning")
    watch.open(10.0, "warning"), watch.close(20.0)
    watch.open(30.0, "warning")
    watch.put(31.0, ev.AlarmAcked(key="k", by="ada"))
    assert watch.due(500.0) == []


def test_a_shelved_alarm_is_told_when_the_shelf_is_over() -> None:
    watch = Watch()
    watch.put(1.0, ev.AlarmShelved(key="k", until=50.0))
    assert watch.open(10.0) == [] and watch.due(49.0) == []
    assert watch.due(50.0) == OPENED
    watch = Watch()
    watch.put(1.0, ev.AlarmShelved(key="k", until=50.0))
    assert watch.open(10.0) == [] and watch.open(20.0, "warning") == [] and watch.due(60.0) == []


def test_pauses_are_told_whatever_the_level() -> None:
    watch = Watch()
    (paused,) = watch.put(1.0, ev.DispatchPaused(paused=True, by="ada@x"))
    (resumed,) = watch.put(2.0, ev.DispatchPaused(paused=False, by="bob"))
    assert (paused.event, paused.text) == ("run.paused", "dispatch paused by ada@x: no new trial begins")
    assert (resumed.event, resumed.level) == ("run.resumed", "info")


@pytest.mark.parametrize(
    ("event", "level", "text"),
    [
        (ev.RunFinished(status="completed", exit_code=0), "info", "run completed, exit 0"),
        (ev.RunFinished(status="stopped", exit_code=3, reason="stopped now by ada"), "info",
         "run stopped, exit 3: stopped now by ada"),
        (ev.RunFinished(status="failed", exit_code=7, reason="OSError: disk"), "critical",
         "run failed, exit 7: OSError: disk"),
        (ev.RunFinished(status="completed", exit_code=8, reason="1 sandboxes left behind: box"), "critical",
         "run completed, exit 8: 1 sandboxes left behind: box"),
        (ev.RunFinished(status="stopped", exit_code=4, reason="g1/t2 (task): bad reward E: I said: hi"),
         "critical", "run stopped, exit 4: g1/t2 (task): bad reward E"),
    ],
)  # fmt: skip
def test_the_end_is_told_without_evidence(event: ev.RunFinished, level: str, text: str) -> None:
    (notice,) = Watch().put(5.0, event)
    assert (notice.event, notice.level, notice.text) == ("run.ended", level, text)


def test_a_long_run_keeps_few_keys() -> None:
    watch = Watch()
    for n in range(1000):
        watch.open(n * 10.0, key=f"k{n}"), watch.close(n * 10.0 + 1, key=f"k{n}")
    assert len(watch.announcer._told_at) <= 11 and not watch.announcer._told
