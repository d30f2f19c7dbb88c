"""From what is wrong now to alarms that open and close: delays, levels, and what is worth telling again."""

from __future__ import annotations

from collections.abc import Mapping

from console.journal import events as ev
from console.state.findings import CRITICAL, Finding


class _Watch:
    """One key: since when its finding holds, since when at this level, since when it is gone, and what was told."""

    __slots__ = ("gone", "level", "level_since", "since", "told")

    def __init__(self, finding: Finding, now: float) -> None:
        self.since = self.level_since = now
        self.level = finding.level
        self.gone: float | None = None
        self.told: Finding | None = None


class AlarmKeeper:
    """Decides which events the findings make. Deterministic: the same findings at the same times give the same events.

    An alarm opens when its finding held for `after` seconds, and closes when it was gone for `clear` seconds. It is
    told again when its level changed (up after `after`, down after `clear` seconds), its material text changed, or its
    figure doubled or halved since it was told.
    """

    def __init__(self) -> None:
        self._watches: dict[str, _Watch] = {}

    def step(self, findings: Mapping[str, Finding], now: float) -> list[ev.Event]:
        """The events due at `now` (Unix seconds); times must not run backwards, or delays start again."""
        events: list[ev.Event] = []
        for key in [key for key in self._watches if key not in findings]:
            watch = self._watches[key]
            watch.gone = now if watch.gone is None else min(watch.gone, now)
            if watch.told is None:
                del self._watches[key]
            elif now - watch.gone >= watch.told.clear:
                del self._watches[key]
                events.append(ev.AlarmClosed(key=key))
        for key, finding in findings.items():
            watch = self._watches.setdefault(key, _Watch(finding, now))
            watch.gone, watch.since, watch.level_since = None, min(watch.since, now), min(watch.level_since, now)
            if watch.level != finding.level:
                watch.level, watch.level_since = finding.level, now
            if _due(watch, finding, now):
                watch.told = finding
                events.append(_opened(finding))
        return events


def _due(watch: _Watch, finding: Finding, now: float) -> bool:
    told = watch.told
    if told is None:
        return now - watch.since >= finding.after
    if finding.level != told.level:
        return now - watch.level_since >= (finding.after if finding.level == CRITICAL else told.clear)
    return finding.material != told.material or _moved(told.figure, finding.figure)


def _moved(told: float | None, now: float | None) -> bool:
    """Whether the figure doubled or halved."""
    if told is None or now is None:
        return told is not now
    return not (told / 2 < now < told * 2) and told != now


def _opened(finding: Finding) -> ev.AlarmOpened:
    return ev.AlarmOpened(
        key=finding.key,
        level=finding.level,
        text=finding.text,
        remedy=finding.remedy,
        consequence=finding.consequence,
        action=finding.action,
    )
