"""The runs of this user, kept fresh at little cost: what has ended is read once."""

from __future__ import annotations

from pathlib import Path

from console.control.registry import entries
from console.control.runs import RunInfo, info_of

_RANK = {"live": 1, "dead": 2, "damaged": 2, "failed": 3, "stopped": 4, "finished": 5}


class RunList:
    """The registered runs whose directory is there. `read` blocks; call it on a thread."""

    def __init__(self) -> None:
        self._ended: dict[tuple[str, str, int], RunInfo] = {}

    def read(self) -> list[RunInfo]:
        """Judge each run as `quarterdeck runs` does; those that need attention first, then the newest."""
        newest = {entry.run_dir: entry for entry in entries()}
        found = []
        for entry in newest.values():
            key = (entry.run_id, entry.run_dir, entry.pid or 0)
            info = self._ended.get(key)
            if info is None or not Path(entry.run_dir).is_dir():
                info = info_of(entry)
            if info.state not in ("live", "gone"):
                self._ended[key] = info
            if info.state != "gone":
                found.append(info)
        return sorted(found, key=_urgency)


def _urgency(info: RunInfo) -> tuple[int, float]:
    rank = 0 if info.state == "live" and info.alarms else _RANK.get(info.state, 6)
    return rank, -(info.started or 0.0)
