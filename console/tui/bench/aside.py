"""Work that takes its time, on a thread that nobody waits for: what it came to, and that it is under way."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from console.errors import QuarterdeckError


async def aside[T](work: Callable[[], T]) -> T:
    """What `work` returns or raises. Its thread does not keep the process when everything else has ended."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(put: Callable[[], None]) -> None:
        def give() -> None:
            if not answer.done():
                put()

        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(give)

    def run() -> None:
        try:
            found = work()
        except BaseException as error:
            raised = error
            settle(lambda: answer.set_exception(raised))
        else:
            settle(lambda: answer.set_result(found))

    threading.Thread(target=run, daemon=True, name="bench-look").start()
    return await answer


class Later[T]:
    """A value that is made when it is asked for first.

    Attributes:
        value: None before; trouble: why there is none, in one line; under_way: it is being made.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.value: T | None = None
        self.trouble = ""
        self.under_way = False

    @property
    def idle(self) -> bool:
        """Whether nobody has asked for it yet."""
        return self.value is None and not self.trouble and not self.under_way

    async def come(self) -> None:
        """Make it; a second call while it is made, or after that, does nothing."""
        if not self.idle:
            return
        self.under_way = True
        try:
            self.value = await aside(self._make)
        except (QuarterdeckError, OSError) as error:
            self.trouble = str(error)
        finally:
            self.under_way = False
