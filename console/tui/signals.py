"""Signals and lost terminals. Each has an end of its own, also while the terminal takes nothing or is gone.

A console that writes to a terminal which does not read waits in the middle of a paint, and its event loop with it. So
what must happen then happens in a signal's handler or on a thread, never in a callback alone.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import termios
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

    from console.tui.app import ConsoleApp

HUNG_UP, TERMINATED = 129, 143
GRACE_SECONDS = 3.0
"""For leaving in order after SIGTERM; then without the terminal's consent."""
_LEAVE = b"\x1b[0m\x1b[?2026l\x1b[?2004l\x1b[?1006l\x1b[?1000l\x1b[?7h\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"


class Signals:
    """SIGTERM, SIGTSTP, SIGCONT and a terminal that vanishes, for one app. SIGHUP ends it at once, by default."""

    def __init__(self, app: ConsoleApp) -> None:
        self._app = app
        self._suspended = False
        self._before = _attributes()

    def install(self) -> None:
        """From now on, in place of Textual's own handlers. On the app's loop and main thread."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        signal.signal(signal.SIGTERM, self._terminate)
        loop.add_signal_handler(signal.SIGTSTP, self._stop)
        loop.add_signal_handler(signal.SIGCONT, self._go_on)
        threading.Thread(target=_watch_terminal, name="hang-up", daemon=True).start()

    # --- SIGTERM ---

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self._loop.call_soon_threadsafe(lambda: self._app.exit(return_code=TERMINATED))
        overdue = threading.Timer(GRACE_SECONDS, self._give_up)
        overdue.daemon = True
        overdue.start()

    def _give_up(self) -> None:
        """The terminal does not read: let go of what it was not given, restore it as far as that goes, and end."""
        try:
            termios.tcflush(0, termios.TCOFLUSH)
            if self._before is not None:
                termios.tcsetattr(0, termios.TCSANOW, self._before)
            if select.select([], [2], [], 0)[1]:
                os.write(2, _LEAVE)
        except (OSError, termios.error):
            pass
        os._exit(TERMINATED)

    # --- suspended and continued ---

    def _stop(self) -> None:
        """SIGTSTP: give the terminal back, then stop."""
        if not self._suspended:
            self._suspended = True
            self._app._begin_batch()  # nothing may be painted in between: nobody would take it
            self._app.lend_terminal()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _go_on(self) -> None:
        """SIGCONT: the terminal may have been anything meanwhile. Take it anew, and paint everything.

        Textual's handler would take it a second time without giving it back, after SIGSTOP: two threads then read its
        keys, and at the end it is left as the console had it.
        """
        if self._suspended:
            self._app._end_batch()
        else:
            self._app.lend_terminal()
        self._suspended = False
        self._app.take_terminal()


def _attributes() -> list[int | list[bytes | int]] | None:
    try:
        return termios.tcgetattr(0)
    except termios.error:
        return None


def _watch_terminal() -> None:
    """Where a hang-up is ignored (nohup), a vanished terminal would be read in a tight loop for ever, or waited for."""
    poll = select.poll()
    poll.register(0, 0)  # a hang-up is reported in any case
    while not any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll()):
        pass
    os._exit(HUNG_UP)
