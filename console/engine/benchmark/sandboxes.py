"""The sandboxes of a job, as the run's ledger has them: told as they change, and looked for when Harbor has ended."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from console.errors import RecordingError
from console.journal import events as ev
from console.records.sandbox_ledger import LEDGER, LedgerView
from console.trials.ledger import process_name
from console.trials.orphans import settle_runner

COSTS_EVERY = 60.0
"""Seconds between two reports of sandboxes of which only age and cost have changed."""

log = logging.getLogger(__name__)


class SandboxWatch:
    """Reads the ledger of a run directory as it grows."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / LEDGER
        self._ledger = LedgerView(run_dir, process_name(os.getpid()))
        self._told, self._told_at, self._unreadable = ev.SandboxStats(), 0.0, False

    def news(self) -> ev.SandboxStats | None:
        """What they are now, None when that was told."""
        try:
            self._ledger.refresh()
        except RecordingError as error:
            if not self._unreadable:
                log.warning("the sandbox ledger cannot be read: %s", error)
            self._unreadable = True
            return None
        now, ledger = time.time(), self._ledger
        cost, hours = ledger.cost(now), ledger.hours(now)
        stats = ev.SandboxStats(
            live=ledger.live,
            left=ledger.left,
            creating=ledger.creating,
            orphaned=ledger.orphaned,
            oldest=ledger.oldest,
            hours=round(hours, 4) if hours else None,
            cost=round(cost, 4) if cost is not None else None,
        )
        told = self._told
        same = (stats.live, stats.creating, stats.left, stats.orphaned) == (
            told.live, told.creating, told.left, told.orphaned
        )  # fmt: skip
        if same and (
            time.monotonic() - self._told_at < COSTS_EVERY or (stats.hours, stats.cost) == (told.hours, told.cost)
        ):
            return None
        self._told, self._told_at = stats, time.monotonic()
        return stats

    async def settle(self, owner: str, seconds: float) -> list[str]:
        """Remove what Harbor's process, which has ended, left behind; names of those that are left, or may be."""
        if not owner or not self._path.exists():
            return []
        return (await settle_runner(self._path, owner, "engine", seconds)).left
