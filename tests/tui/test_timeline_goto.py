"""Where people want to go, as they write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.records.timeline import StepMark, Timeline
from console.tui.goto import parse_goto

DAY = 86400.0
NOON = 1_790_000_000.0 - 1_790_000_000.0 % DAY + 12 * 3600  # 2026-09-21 12:00 UTC; tests run in UTC


def line(length: float = 7200.0) -> Timeline:
    """A recording from noon on, with steps 3 to 5."""
    steps = [StepMark(step=n, seq=100 * n, ended=NOON + 600 * (n - 2), started=None) for n in (3, 4, 5)]
    return Timeline(first_ts=NOON + 5, last_ts=NOON + length, last_seq=900, steps=steps)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("13:00", 3600), ("13:00:07", 3607), ("12:00", 5), ("+5m", 1300), ("-30s", 970), ("+1h30m", 6400),
        ("+2h", 7200), ("-9d", 5), ("+0.5m", 1030), ("0%", 5), ("100%", 7200), ("50 %", 3602.5),
        ("2026-09-21T13:30", 5400),
        ("2026-09-21 13:30:01Z", 5401), ("2026-09-21T15:30+02:00", 5400), (" 13:00 ", 3600),
    ],
)  # fmt: skip
def test_times(text: str, seconds: float) -> None:
    assert parse_goto(text, line(), NOON + 1000) == (None, pytest.approx(NOON + seconds))


@pytest.mark.parametrize(
    ("text", "seq"),
    [
        ("s3", 300), ("S5", 500), ("step 4", 400), ("s6", 900), ("#4", 4), ("4", 4), ("#900", 900), ("start", 1),
        ("END", 900),
    ],
)  # fmt: skip
def test_steps_and_events(text: str, seq: int) -> None:
    assert parse_goto(text, line(), NOON) == (seq, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "write one of"), ("noon", "write one of"), ("25:00", "no such time"), ("12:61", "no such time"),
        ("11:59", "lasts from 2026-09-21 12:00:05 to 2026-09-21 14:00:00"), ("12:00:04", "lasts from"),
        ("15:00", "lasts from"), ("s2", "steps 3 to 5"), ("s7", "steps 3 to 5"), ("#0", "#1 to #900"),
        ("#901", "#1 to #900"), ("101%", "100 %"), ("2020-01-01", "lasts from"), ("+5", "write one of"),
        ("2026-13-01", "write one of"), ("999999999999999999", "write one of"),
    ],
)  # fmt: skip
def test_nonsense_gets_one_line(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        parse_goto(text, line(), NOON)
    assert "\n" not in str(caught.value)


def test_a_time_of_day_is_the_nearest_one() -> None:
    days = line(4 * DAY)
    assert parse_goto("13:00", days, NOON + 2 * DAY) == (None, NOON + 2 * DAY + 3600)
    assert parse_goto("13:00", days, NOON + 3.4 * DAY) == (None, NOON + 3 * DAY + 3600)
    assert parse_goto("11:00", days, NOON) == (None, NOON + DAY - 3600)
    assert parse_goto("13:00", days, NOON + 9 * DAY) == (None, NOON + 3 * DAY + 3600)


@given(st.text(max_size=30) | st.from_regex(r"[+-]?[0-9:%#sdhm.]{1,20}", fullmatch=True))
def test_anything_typed_is_a_place_within_or_an_error(text: str) -> None:
    recording = line()
    try:
        seq, ts = parse_goto(text, recording, NOON + 100)
    except ValueError:
        return
    assert (seq is None) != (ts is None)
    assert seq is None or 1 <= seq <= 900
    assert ts is None or NOON + 5 <= ts <= NOON + 7200


def test_a_recording_without_steps_says_so() -> None:
    bare = Timeline(first_ts=NOON, last_ts=NOON, last_seq=3, steps=[])
    with pytest.raises(ValueError, match="no step of this recording"):
        parse_goto("s0", bare, NOON)
    assert parse_goto("50%", bare, NOON) == (None, NOON)
