"""Sandboxes of the ledger that nobody works with any more: looked for, removed, and their entries closed.

For runners that died, for what an earlier engine left on this machine, and for `reap`.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from console.errors import RecordingError
from console.records.sandbox_ledger import OPEN, Entry, Gone, Left, Removed, read_entries
from console.trials import finders
from console.trials.finders import GONE, THERE, Sighting
from console.trials.ledger import LedgerError, append, is_alive, this_boot, this_host

log = logging.getLogger(__name__)


def abandoned(entry: Entry, engine: bool = False) -> bool:
    """Whether the runner of an open entry (or the engine, with `engine`) is surely dead, as seen on its machine."""
    made = entry.made
    if made.host and made.host != this_host():
        return False
    owner = made.engine if engine else made.runner
    return made.boot != this_boot() or not is_alive(owner)


def close(ledger: Path, entry: Entry, seen: Sighting, by: str) -> None:
    """Write what was found out; an entry that was closed too early is announced anew. Raises LedgerError."""
    now = time.time()
    again = () if entry.state in OPEN else (entry.made,)
    if seen.state == GONE:
        append(ledger, *again, (Removed if seen.removed else Gone)(ts=now, name=entry.name, by=by))
        return
    why = seen.why or "it is still there"
    if (entry.state, entry.why) != ("left", why):
        append(ledger, *again, Left(ts=now, name=entry.name, why=why, ids=list(seen.ids)))


async def settle(ledger: Path, entries: Sequence[Entry], by: str, limit: float) -> list[str]:
    """Look for entries, remove what is there, and close them; at most `limit` seconds.

    Returns:
        Names of those that are left, or may be.
    """
    left = {entry.name for entry in entries}
    if any(entry.made.kind == "e2b" for entry in entries):
        await asyncio.to_thread(importlib.import_module, "e2b")  # a second that the loop should not lose
    try:
        async with asyncio.timeout(limit):
            sightings = await finders.look(entries)
            for entry in entries:
                seen = await finders.remove(entry, sightings[entry.name])
                await asyncio.to_thread(close, ledger, entry, seen, by)
                if seen.state == GONE:
                    left.discard(entry.name)
    except TimeoutError:
        for entry in entries:
            if entry.name in left and entry.state != "left":
                lost = Sighting(state=THERE, ids=tuple(entry.ids), why=f"not confirmed within {limit:.0f} s")
                await asyncio.to_thread(close, ledger, entry, lost, by)
    return sorted(left)


class Settled(NamedTuple):
    """`keys`: name of each sandbox that was looked for to the key of its try; `left`: names of those that are left."""

    keys: dict[str, str]
    left: list[str]


async def settle_runner(ledger: Path | None, runner: str, by: str, limit: float) -> Settled:
    """Whatever a dead runner had, those that it could not remove too."""
    return await _settle_open(ledger, lambda entry: entry.made.runner == runner and abandoned(entry), by, limit)


async def settle_local(ledger: Path | None, by: str, limit: float) -> Settled:
    """Sandboxes on this machine whose runners are dead: their processes end with them, and this says so."""
    return await _settle_open(ledger, lambda entry: entry.made.kind == "bwrap" and abandoned(entry), by, limit)


async def _settle_open(ledger: Path | None, chosen: Callable[[Entry], bool], by: str, limit: float) -> Settled:
    if ledger is None:
        return Settled({}, [])
    try:
        entries = [e for e in await asyncio.to_thread(read_entries, ledger) if e.state in OPEN and chosen(e)]
        left = await settle(ledger, entries, by, limit) if entries else []
    except (RecordingError, LedgerError) as error:
        log.error("%s", error)
        return Settled({}, [])
    return Settled({entry.name: entry.made.key for entry in entries}, left)
