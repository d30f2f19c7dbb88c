"""Where to go in a recording, as people write it: 14:01, +5m, s12, #4711, 50%."""

from __future__ import annotations

import re
import time
from datetime import datetime

from console.records.timeline import Timeline

HINT = "14:01  +5m  -30s  s12 (the end of step 12)  #4711  50%  2026-11-29T14:01  start  end"
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_SPAN = re.compile(r"([+-])((?:\d{1,9}(?:\.\d{1,3})?[dhms])+)")
_PART = re.compile(r"(\d+(?:\.\d+)?)([dhms])")
_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_DAY = 86400.0


def parse_goto(text: str, line: Timeline, now: float) -> tuple[int | None, float | None]:
    """An event number or a time (Unix seconds), the other one None. Times of day are local.

    Args:
        text: what the operator typed; line: of the recording; now: the time that is shown.

    Raises:
        ValueError: it means nothing, or nothing in this recording; one line.
    """
    wanted = text.strip()
    first, last = line.first_ts or 0.0, line.last_ts or 0.0
    lower = wanted.lower()
    if lower in ("start", "end"):
        return (1 if lower == "start" else line.last_seq), None
    if match := re.fullmatch(r"#?(\d{1,15})", wanted):
        return _event(int(match[1]), line), None
    if match := re.fullmatch(r"(\d{1,3}(?:\.\d{1,3})?)\s*%", wanted):
        if float(match[1]) > 100:
            raise ValueError(f"{wanted}: a recording has 100 % at most")
        return None, first + (last - first) * float(match[1]) / 100
    if match := re.fullmatch(r"s(?:tep)?\s*(\d{1,9})", lower):
        return _step(int(match[1]), line), None
    if match := _SPAN.fullmatch(lower):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(match[2]))
        return None, min(last, max(first, now + (seconds if match[1] == "+" else -seconds)))
    if match := _CLOCK.fullmatch(wanted):
        return None, _time_of_day(wanted, match, first, last, now)
    return None, _date(wanted, first, last)


def _event(seq: int, line: Timeline) -> int:
    if not 1 <= seq <= line.last_seq:
        raise ValueError(f"#{seq}: this recording has events #1 to #{line.last_seq}")
    return seq


def _step(step: int, line: Timeline) -> int:
    for mark in line.steps:
        if mark.step == step:
            return mark.seq
    if not line.steps:
        raise ValueError(f"s{step}: no step of this recording is finished")
    if step == line.steps[-1].step + 1:
        return line.last_seq
    raise ValueError(f"s{step}: this recording has steps {line.steps[0].step} to {line.steps[-1].step}")


def _time_of_day(text: str, match: re.Match[str], first: float, last: float, now: float) -> float:
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{text}: no such time of day")
    exact = match[3] is not None
    found: list[float] = []
    for day in range(int((last - first) // _DAY) + 3):
        at = time.localtime(first + (day - 1) * _DAY)
        moment = time.mktime((at.tm_year, at.tm_mon, at.tm_mday, hour, minute, second, 0, 0, -1))
        # A minute without seconds is meant as a whole: the recording may begin within it.
        if moment <= last and moment + (0 if exact else 59) >= first:
            found.append(max(first, moment))
    if not found:
        raise ValueError(f"{text}: this recording lasts from {stamp(first)} to {stamp(last)}")
    return min(found, key=lambda moment: abs(moment - now))


def _date(text: str, first: float, last: float) -> float:
    try:
        moment = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text or 'nothing'}: write one of  {HINT}") from None
    if not first <= moment <= last:
        raise ValueError(f"{text}: this recording lasts from {stamp(first)} to {stamp(last)}")
    return moment


def stamp(moment: float) -> str:
    """Unix seconds as local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))
