"""Whether the model's endpoint still answers: a served job may end without a word, long before its time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable

import httpx

from console.engine.cause import one_line
from console.journal import events as ev
from console.journal.layout import JournalWriteError

EVERY_SECONDS = 15.0
ANSWER_SECONDS = 10.0
LONG_SECONDS = 120.0
"""Without an answer for so long: a note in the journal, once for each outage."""


class EndpointWatch:
    """Asks `{endpoint}/models`, and tells `GatewayHealth`. Says what it sees; the run goes on whatever that is.

    Args:
        endpoint: base URL; key_name: environment variable with the key; emit: appends an event; every: seconds between
            two questions.
    """

    def __init__(
        self, endpoint: str, key_name: str, emit: Callable[[ev.Event], None], every: float = EVERY_SECONDS
    ) -> None:
        self._url, self._emit, self._every = f"{endpoint.rstrip('/')}/models", emit, every
        key = os.environ.get(key_name, "")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._lost: float | None = None
        self._noted = False

    async def run(self) -> None:
        """Watch for ever."""
        logging.getLogger("httpx").setLevel(logging.WARNING)  # it would log the address of each question
        async with httpx.AsyncClient(follow_redirects=False, timeout=ANSWER_SECONDS) as client:
            while True:
                began = time.monotonic()
                with contextlib.suppress(JournalWriteError):  # the board ends the run
                    self.tell(await self.ask(client), time.monotonic())
                await asyncio.sleep(max(0.0, self._every - (time.monotonic() - began)))

    async def ask(self, client: httpx.AsyncClient) -> ev.GatewayHealth:
        """One question. Any answer but a server's failure is a sign of life; the body is not read."""
        began = time.monotonic()
        try:
            async with (
                asyncio.timeout(ANSWER_SECONDS),
                client.stream("GET", self._url, headers=self._headers) as answer,
            ):
                status = answer.status_code
        except TimeoutError:
            return ev.GatewayHealth(reachable=False, detail=f"no answer within {ANSWER_SECONDS:g} s")
        except Exception as error:  # httpx, ssl, a strange URL: the text must not repeat the address
            return ev.GatewayHealth(reachable=False, detail=one_line(f"cannot be reached ({type(error).__name__})"))
        latency = round((time.monotonic() - began) * 1000, 1)
        detail = "" if status < 300 else f"answers {status}"
        if status in (401, 403):
            detail = f"refuses the key ({status})"
        return ev.GatewayHealth(reachable=status < 500, latency_ms=latency, detail=detail)

    def tell(self, health: ev.GatewayHealth, now: float) -> None:
        """Write it, with a note when an outage has become long; `now`: monotonic seconds."""
        self._emit(health)
        if health.reachable:
            if self._noted:
                self._emit(ev.Note(text="the model's endpoint answers again"))
            self._lost, self._noted = None, False
            return
        self._lost = now if self._lost is None else self._lost
        if not self._noted and now - self._lost >= LONG_SECONDS:
            self._noted = True
            self._emit(
                ev.Note(
                    text=f"the model's endpoint has not answered for {LONG_SECONDS / 60:.0f} min ({health.detail}): "
                    "trials will fail; see that the model is still served, and pause meanwhile",
                    level="warning",
                )
            )
