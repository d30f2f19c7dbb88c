"""E2B's sandboxes, through its SDK: listed by the metadata that Harbor gives them, killed, and listed again."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from console.records.sandbox_ledger import Entry
from console.trials.finders import GONE, THERE, UNKNOWN, Sighting

_PAGE = 100
_PAGES = 50
"""At most 5,000 sandboxes of the account are looked through."""
_REQUEST_LIMIT = 10.0
_LOOK_LIMIT = 60.0
_TRIES = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Seconds before each try of a kill, and of a list that the service did not answer."""
_MESSAGE_LIMIT = 200


def e2b_address() -> str:
    """The API that the SDK asks, without credentials."""
    url = os.environ.get("E2B_API_URL") or f"https://api.{os.environ.get('E2B_DOMAIN') or 'e2b.app'}"
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def e2b_account() -> str:
    """A short digest of the key in use, to notice another account; empty without a key."""
    key = os.environ.get("E2B_API_KEY", "")
    return hashlib.sha256(key.encode()).hexdigest()[:8] if key else ""


class E2BFinder:
    """See `console.trials.finders.Finder`."""

    async def look(self, entries: Sequence[Entry]) -> dict[str, Sighting]:
        """List the account's sandboxes and match `session_id`; one entry is asked for by its metadata."""
        found: dict[str, Sighting] = {}
        asked = []
        for entry in entries:
            refusal = _refusal(entry)
            if refusal:
                found[entry.name] = Sighting(state=UNKNOWN, why=refusal)
            else:
                asked.append(entry)
        if not asked:
            return found
        try:
            async with asyncio.timeout(_LOOK_LIMIT):
                listed, whole = await _listed(asked[0].name if len(asked) == 1 else None)
        except Exception as error:
            why = _explain(error)
            return found | {entry.name: Sighting(state=UNKNOWN, why=why) for entry in asked}
        for entry in asked:
            found[entry.name] = _sight(entry, listed.get(entry.name, []), whole)
        return found

    async def remove(self, entry: Entry, seen: Sighting) -> Sighting:
        """Kill every sandbox of the name until none is listed."""
        from e2b import AsyncSandbox

        absent: set[str] = set()
        for pause in _TRIES:
            await asyncio.sleep(pause)
            why = ""
            for one in seen.ids:
                try:
                    if not await AsyncSandbox.kill(one, request_timeout=_REQUEST_LIMIT):
                        absent.add(one)  # the service has no such sandbox; its list may lag behind
                except Exception as error:
                    why = _explain(error)
            seen = (await self.look([entry]))[entry.name]
            if seen.state == THERE and set(seen.ids) <= absent:
                return Sighting(state=GONE)
            if seen.state == GONE:
                return seen
            if why:
                seen = Sighting(state=seen.state, ids=seen.ids, why=why)
        return seen


def _refusal(entry: Entry) -> str:
    """Why the service cannot be asked for it, empty when it can."""
    if not os.environ.get("E2B_API_KEY"):
        return "E2B_API_KEY is not set: export it"
    made = entry.made
    if made.where and made.where != e2b_address():
        return f"it was made at {made.where}, not at {e2b_address()}: set E2B_API_URL or E2B_DOMAIN"
    return ""


def _sight(entry: Entry, ids: list[str], whole: bool) -> Sighting:
    if ids:
        return Sighting(state=THERE, ids=tuple(ids))
    if not whole:
        return Sighting(state=UNKNOWN, why=f"the account has more than {_PAGE * _PAGES} sandboxes")
    made = entry.made
    expired = made.lease is not None and time.time() > entry.seen + made.lease
    if made.account and made.account != e2b_account() and not expired:
        return Sighting(state=UNKNOWN, why="E2B_API_KEY is not the key that it was made with, and does not list it")
    return Sighting(state=GONE)


async def _listed(name: str | None) -> tuple[dict[str, list[str]], bool]:
    """Session id to sandbox ids, and whether that is all of them. Raises what the SDK raises."""
    from e2b import AsyncSandbox, SandboxQuery

    query = SandboxQuery(metadata={"session_id": name}) if name is not None else None
    pages = AsyncSandbox.list(query=query, limit=_PAGE, request_timeout=_REQUEST_LIMIT)
    found: dict[str, list[str]] = {}
    for _ in range(_PAGES):
        for sandbox in await _page(pages):
            session = (sandbox.metadata or {}).get("session_id")
            if isinstance(session, str):
                found.setdefault(session, []).append(sandbox.sandbox_id)
        if not pages.has_next:
            return found, True
    return found, False


async def _page(pages: Any) -> list[Any]:
    """The next page; a service that does not answer is asked again."""
    for pause in _TRIES[1:]:
        try:
            return list(await pages.next_items())
        except Exception as error:
            if type(error).__name__ == "AuthenticationException":
                raise
            await asyncio.sleep(pause)
    return list(await pages.next_items())


def _explain(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"{e2b_address()} does not answer"
    if type(error).__name__ == "AuthenticationException":
        return f"{e2b_address()} refuses E2B_API_KEY"
    return f"{e2b_address()}: {' '.join(f'{type(error).__name__}: {error}'.split())[:_MESSAGE_LIMIT]}"
