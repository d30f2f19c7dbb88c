"""Looking for the sandboxes of the ledger, and removing them: is it there, remove it, make sure.

A finder knows one kind of environment. It only ever touches what an entry of a ledger names. None of them raises for
what a provider says or does not say: what cannot be known is `unknown`, with the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from console.records.sandbox_ledger import Announced, Entry
from console.trials.ledger import is_alive, this_boot, this_host
from console.trials.roots import remove_root, roots_of

THERE, GONE, UNKNOWN = "there", "gone", "unknown"
_DEATH_LIMIT = 5.0


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """What a finder saw.

    Attributes:
        state: there, gone or unknown; ids: the provider's names of it; why: it is unknown, or would not go.
        removed: it is gone because it was removed just now.
    """

    state: str
    ids: tuple[str, ...] = ()
    why: str = ""
    removed: bool = False


class Finder(Protocol):
    """Of one kind of environment."""

    async def look(self, entries: Sequence[Entry]) -> dict[str, Sighting]:
        """Whether they exist, by name. Bounded in time; never raises."""

    async def remove(self, entry: Entry, seen: Sighting) -> Sighting:
        """Remove one that is there, and look again: gone, there when it would not go, or unknown. Never raises."""


def finder_of(kind: str) -> Finder | None:
    """None for a kind that cannot be asked for."""
    if kind == "bwrap":
        return BwrapFinder()
    if kind == "e2b":
        from console.trials.finders_e2b import E2BFinder

        return E2BFinder()
    if kind == "docker":
        from console.trials.finders_docker import DockerFinder

        return DockerFinder()
    return None


async def look(entries: Sequence[Entry]) -> dict[str, Sighting]:
    """Sightings of entries of any kinds, by name; each provider is asked once."""
    kinds: dict[str, list[Entry]] = {}
    for entry in entries:
        kinds.setdefault(entry.made.kind, []).append(entry)
    found: dict[str, Sighting] = {}
    for kind, members in kinds.items():
        finder = finder_of(kind)
        if finder is None:
            why = f"there is no way to look for {kind} sandboxes from here"
            found |= {entry.name: Sighting(state=UNKNOWN, why=why) for entry in members}
        else:
            found |= await finder.look(members)
    return found


async def remove(entry: Entry, seen: Sighting) -> Sighting:
    """Remove one if it was seen there. What it is then."""
    finder = finder_of(entry.made.kind)
    if finder is None or seen.state != THERE:
        return seen
    after = await finder.remove(entry, seen)
    return msgspec.structs.replace(after, removed=after.state == GONE)


def elsewhere(made: Announced) -> Sighting | None:
    """For kinds that live on the machine of their runner: unknown when that is another one."""
    if made.host and made.host != this_host():
        return Sighting(state=UNKNOWN, why=f"it was made on {made.host}: look there")
    return None


class BwrapFinder:
    """Namespaces and roots on this machine."""

    async def look(self, entries: Sequence[Entry]) -> dict[str, Sighting]:
        """See `Finder`. `ids`: the process that holds the namespace, and its root."""
        return await asyncio.to_thread(self._look, entries)

    def _look(self, entries: Sequence[Entry]) -> dict[str, Sighting]:
        running = _holders()
        found = {}
        for entry in entries:
            found[entry.name] = elsewhere(entry.made) or self._sight(entry, running.get(entry.name, []))
        return found

    def _sight(self, entry: Entry, pids: list[int]) -> Sighting:
        made = entry.made
        ids = [*(f"pid {pid}" for pid in pids), *(str(root) for root in _roots(made))]
        starting = entry.state == "creating" and made.boot == this_boot() and is_alive(made.runner)
        return Sighting(state=THERE if ids or starting else GONE, ids=tuple(ids))

    async def remove(self, entry: Entry, seen: Sighting) -> Sighting:
        """See `Finder`. Processes first, then files."""
        if (other := elsewhere(entry.made)) is not None:
            return other
        why = await asyncio.to_thread(self._remove, entry)
        after = (await self.look([entry]))[entry.name]
        return msgspec.structs.replace(after, why=why) if after.state == THERE else after

    def _remove(self, entry: Entry) -> str:
        holders = []
        for pid in _holders().get(entry.name, []):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                holders.append(os.pidfd_open(pid))
        for fd in holders:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            _wait(fd, _DEATH_LIMIT)
            os.close(fd)
        for pause in (0.0, 0.1, 0.5, 1.0):  # the warden of a runner that died just now removes them too
            time.sleep(pause)
            why = ""
            for root in _roots(entry.made):
                try:
                    remove_root(root)
                except OSError as error:
                    why = f"{root} cannot be removed: {error.strerror}"
            if not why:
                break
        return why


def _wait(pidfd: int, seconds: float) -> None:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll(seconds * 1000)


def _roots(made: Announced) -> list[Path]:
    """Its directories; none once its runner is another process of the same id."""
    return roots_of(Path(made.ref), made.runner, made.name) if made.ref and made.runner else []


def _holders() -> dict[str, list[int]]:
    """Sandbox name to the bubblewrap processes that hold it: the name is an argument of theirs."""
    found: dict[str, list[int]] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            arguments = Path(entry.path, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if arguments[0] != b"bwrap" or b"SANDBOX" not in arguments:
            continue
        at = arguments.index(b"SANDBOX") + 1
        if at < len(arguments):
            found.setdefault(os.fsdecode(arguments[at]), []).append(int(entry.name))
    return found
