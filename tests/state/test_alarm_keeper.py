"""When alarms open, are told again, and close."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from console.journal import events as ev
from console.state.alarm_keeper import AlarmKeeper
from console.state.alarms import alarms
from console.state.findings import Finding
from console.state.reduce import RunView, apply


def finding(key: str = "a", level: str = "warning", text: str = "x", **more: Any) -> Finding:
    return Finding(key=key, level=level, text=text, **more)


class Story:
    """Steps a keeper through findings."""

    def __init__(self) -> None:
        self.keeper = AlarmKeeper()

    def at(self, now: float, *findings: Finding) -> list[str]:
        """What it says at that time: `+` opened or told again, `-` closed."""
        found = []
        for event in self.keeper.step({f.key: f for f in findings}, now):
            if isinstance(event, ev.AlarmOpened):
                found.append(f"+{event.key} {event.level} {event.text}")
            elif isinstance(event, ev.AlarmClosed):
                found.append(f"-{event.key}")
        return found


def test_a_fact_opens_and_closes_at_once() -> None:
    story = Story()
    assert story.at(0.0, finding()) == ["+a warning x"]
    assert story.at(1.0, finding()) == []
    assert story.at(2.0) == ["-a"]
    assert story.at(3.0) == []
    assert story.at(4.0, finding()) == ["+a warning x"]


def test_the_event_holds_all_that_the_rule_says() -> None:
    said = finding(consequence="c", remedy="r", action="pause")
    assert AlarmKeeper().step({"a": said}, 0.0) == [
        ev.AlarmOpened(key="a", level="warning", text="x", consequence="c", remedy="r", action="pause")
    ]


def test_it_must_hold_without_a_gap_before_it_opens() -> None:
    story, slow = Story(), finding(after=10.0)
    assert story.at(0.0, slow) == []
    assert story.at(9.9, slow) == []
    assert story.at(10.0, slow) == ["+a warning x"]
    story = Story()
    story.at(0.0, slow)
    assert story.at(5.0) == [], "it was never told of, so nothing is over"
    assert story.at(6.0, slow) == []
    assert story.at(15.9, slow) == []
    assert story.at(16.0, slow) == ["+a warning x"]


def test_it_must_be_gone_without_a_gap_before_it_closes() -> None:
    story, slow = Story(), finding(clear=10.0)
    story.at(0.0, slow)
    assert story.at(5.0) == []
    assert story.at(14.9) == []
    assert story.at(14.95, slow) == [], "still the same alarm"
    assert story.at(20.0) == []
    assert story.at(30.0) == ["-a"]


def test_flapping_makes_no_noise() -> None:
    story = Story()
    said = [story.at(float(n), *([finding(clear=10.0)] if n % 3 else [])) for n in range(1, 300)]
    assert [x for x in said if x] == [["+a warning x"]]
    story = Story()
    assert not any(story.at(float(n), *([finding(after=2.0)] if n % 2 else [])) for n in range(300))


def test_a_level_rises_at_once_and_falls_late() -> None:
    story = Story()
    low, high = finding(clear=10.0), finding(level="critical", clear=10.0)
    story.at(0.0, low)
    assert story.at(1.0, high) == ["+a critical x"]
    assert story.at(2.0, low) == []
    assert story.at(8.0, high) == []
    assert story.at(9.0, low) == []
    assert story.at(18.9, low) == []
    assert story.at(19.0, low) == ["+a warning x"]


def test_a_level_rises_after_the_delay_of_its_rule() -> None:
    story = Story()
    low, high = finding(after=5.0), finding(level="critical", after=5.0)
    story.at(0.0, low)
    assert story.at(5.0, low) == ["+a warning x"]
    assert story.at(6.0, high) == []
    assert story.at(11.0, high) == ["+a critical x"]


def test_a_text_is_told_again_when_what_matters_changed() -> None:
    story = Story()
    story.at(0.0, finding(text="g1/t1 held"))
    assert story.at(1.0, finding(text="g1/t1 and 1 more held")) == ["+a warning g1/t1 and 1 more held"]
    story = Story()
    story.at(0.0, finding(text="down: refused", basis=""))
    assert story.at(1.0, finding(text="down: timed out", basis="")) == []
    story.at(2.0, finding(text="step 7 slow", basis="step 7"))
    assert story.at(3.0, finding(text="step 8 slow", basis="step 8")) == ["+a warning step 8 slow"]


def test_a_figure_is_told_again_when_it_doubled_or_halved() -> None:
    story = Story()
    told = [n for n in range(1000) if story.at(float(n), finding(text=f"{n + 10} ms", figure=float(n + 10)))]
    assert told == [0, 10, 30, 70, 150, 310, 630]
    assert story.at(1000.0, finding(text="321 ms", figure=321.0)) == []
    assert story.at(1001.0, finding(text="320 ms", figure=320.0)) == ["+a warning 320 ms"]


def test_several_alarms_keep_the_order_of_the_rules() -> None:
    story = Story()
    assert story.at(0.0, finding("b"), finding("a"), finding("c", after=1.0)) == ["+b warning x", "+a warning x"]
    assert story.at(1.0, finding("c", after=1.0)) == ["-b", "-a", "+c warning x"]


def test_a_clock_that_goes_back_delays_and_breaks_nothing() -> None:
    story, slow = Story(), finding(after=5.0, clear=5.0)
    story.at(1000.0, slow)
    assert story.at(10.0, slow) == []
    assert story.at(15.0, slow) == ["+a warning x"]
    assert story.at(5.0) == []
    assert story.at(10.0) == ["-a"]


def test_the_same_findings_at_the_same_times_make_the_same_events() -> None:
    def run() -> list[list[str]]:
        rng, story, said = random.Random(7), Story(), []
        for n in range(500):
            keys = [k for k in "abcd" if rng.random() < 0.6]
            some = [
                finding(k, rng.choice(["warning", "critical"]), after=rng.choice([0.0, 3.0]), clear=4.0) for k in keys
            ]
            said.append(story.at(n * 0.7, *some))
        return said

    assert run() == run()


WORDS = st.sampled_from(["", "rollout", "agent", "verify", "held", "infrastructure", "bad_reward", "t\x1b[0m", "hold"])
NUMBERS = st.one_of(st.none(), st.floats(allow_nan=True), st.sampled_from([0.0, -1.0, 0.5, 1e18]))
SMALL = st.integers(-1, 5)


def _event(kind: type[ev.Event]) -> st.SearchStrategy[ev.Event]:
    by_type = {
        "str": WORDS, "str | None": WORDS, "float | None": NUMBERS, "float": NUMBERS.map(lambda x: x or 0.0),
        "int": SMALL, "int | None": st.one_of(st.none(), st.integers(0, 10**13)), "bool": st.booleans(),
        "bool | None": st.booleans(), "list[str]": st.lists(WORDS, max_size=3),
        "dict[str, int]": st.just({}), "dict[str, str]": st.just({}), "dict[str, float]": st.just({"total": 1.0}),
        "Scalars": st.just({"config.save_every": 0}),
        "dict[str, float | None]": st.dictionaries(st.sampled_from(list(ev.TUNABLES)), NUMBERS, max_size=3),
    }  # fmt: skip
    fields = {n: a for c in reversed(kind.__mro__) for n, a in getattr(c, "__annotations__", {}).items()}
    return st.builds(kind, **{n: by_type[a] for n, a in fields.items() if n not in ("seq", "ts")})


KINDS = [ev.RunPhase, ev.StepFinished, ev.GroupStarted, ev.TrialPhase, ev.TrialFinished, ev.TrialHeld]
KINDS += [ev.GatewayHealth, ev.CaptureStats, ev.HostStats, ev.SandboxStats, ev.CheckpointSaved, ev.RunTuned]
KINDS += [ev.DispatchPaused, ev.RunStarted, ev.StepStarted, ev.TaskQuarantined]


@given(
    st.lists(st.one_of(*map(_event, KINDS)), max_size=30),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_no_journal_breaks_a_rule(events: list[ev.Event], now: float) -> None:
    """Whatever was recorded: rules judge it, and what they say is one clean line."""
    view = RunView()
    for seq, event in enumerate([ev.RunStarted(run_id="r"), *events], 1):
        event.seq, event.ts = seq, float(seq)
        apply(view, event)
    view.state.status = "live"
    for at in (now, 40.0, 1e5):
        for found in alarms(view, at).values():
            assert found.text.isprintable() and found.level in ("warning", "critical")
