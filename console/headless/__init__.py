"""A run without a screen: JSON lines or plain lines on stdout, the log on stderr, the run's exit code.

`attach --headless` only watches: its end leaves the run alone. The command that started a headless run owns it: when it
is interrupted, or nobody reads its output any more, it has the engine stop in order and waits for the end.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TextIO

from console.control.follow import LinkDown, LinkUp
from console.control.messages import read_last_word
from console.control.runs import RunInfo, run_items, socket_items
from console.headless.output import OutputClosed, Reporter
from console.headless.status import status_line
from console.headless.stop import Stopper
from console.journal.events import Event
from console.state.reduce import RunView, apply
from console.state.sanitize import sanitize
from console.state.words import DAMAGED, END_LOST

STATUS_SECONDS = 60.0
EXIT_FAILED = 7
EXIT_UNREADABLE = 10
EXIT_HANG_UP = 129
KEPT_CODES = frozenset({0, 2, 4, 5, 6})
"""Exit codes of a run that a later signal does not replace: their cause came first."""


def follow_headless(
    run: RunInfo | Path, *, plain: bool = False, out: TextIO | None = None, err: TextIO | None = None
) -> int:
    """Report a live or finished run until its end, and return its exit code.

    It is 7 when the engine died without a word, 10 when what the journal says of the end cannot be read.

    A path is a socket behind which an engine of elsewhere is.

    Raises:
        RecordingError: there is no readable journal.
    """
    reporter = Reporter(out or sys.stdout, err or sys.stderr, plain)
    try:
        view, told = asyncio.run(_follow(run, reporter))
        code, status, reason = end_of(view, told, lost=isinstance(run, RunInfo) and run.state == DAMAGED)
        reporter.done(status, code, view.state.steps_done, reason)
    except OutputClosed:
        reporter.silence()
        return EXIT_HANG_UP
    except KeyboardInterrupt:
        return 130
    return code


def run_headless(
    run: RunInfo,
    *,
    plain: bool = False,
    owned: bool = True,
    after_step: int | None = None,
    out: TextIO | None = None,
    err: TextIO | None = None,
) -> int:
    """`follow_headless` for the command that started the run; with `owned` the run ends with it, in order.

    `after_step`: where a resumed run goes on; what an earlier command reported of it is not said again.

    A hang-up, interrupt or terminate sends `stop_now` once, waits for the end, and returns 129, 130 or 143 unless the
    run had ended for a cause of its own. Call it on the main thread.
    """
    if not owned:
        return follow_headless(run, plain=plain, out=out, err=err)
    reporter = Reporter(out or sys.stdout, err or sys.stderr, plain, first_step=after_step or 0)
    with Stopper(run, err or sys.stderr) as stopper:
        reporter.on_closed = lambda: stopper.stop("nobody reads the output any more", EXIT_HANG_UP)
        view, told = asyncio.run(_follow(run, reporter))
        code, status, reason = end_of(view, told)
        if stopper.exit_code is not None and code not in KEPT_CODES:
            code = stopper.exit_code
        reporter.done(status, code, view.state.steps_done, reason)
    if reporter.closed:
        reporter.silence()
    return code


def end_of(view: RunView, told: str = "", *, lost: bool = False) -> tuple[int, str, str]:
    """Exit code, status and reason of a run whose stream is over.

    Args:
        told: the engine's last word beside its journal; lost: whether the journal's end cannot be read.
    """
    state = view.state
    if state.exit_code is None and (end := read_last_word(told)) is not None:
        status, code, reason = end
        return code, "completed" if status == "finished" else sanitize(status, 20), sanitize(reason, 400)
    if state.exit_code is None and lost:
        return EXIT_UNREADABLE, "unknown", END_LOST
    if state.exit_code is None:
        where = f" in step {state.step}" if state.step is not None else ""
        return EXIT_FAILED, "failed", sanitize(told, 400) or f"the engine died{where}"
    status = "completed" if state.status == "finished" else state.status
    return state.exit_code, status, state.reason


async def _follow(run: RunInfo | Path, reporter: Reporter) -> tuple[RunView, str]:
    """The view at the end, and what the engine said that its journal does not."""
    view, told = RunView(), ""
    ticker = asyncio.create_task(_tick(reporter))
    try:
        async for item in socket_items(run) if isinstance(run, Path) else run_items(run):
            if isinstance(item, RunView):
                view = item
                reporter.show(view)
            elif isinstance(item, Event):
                apply(view, item)
                reporter.event(view, item)
            else:
                told = (item.told or told) if isinstance(item, LinkDown) else ""
                _link(reporter, item)
    finally:
        ticker.cancel()
    return view, told


def _link(reporter: Reporter, item: LinkUp | LinkDown) -> None:
    if isinstance(item, LinkUp):
        if item.again:
            reporter.log(f"connected again, {item.missed} events behind")
    elif item.retry_in is not None:
        reporter.log(f"connection lost: {item.reason}")


async def _tick(reporter: Reporter) -> None:
    """A line a minute, so that a job runner sees life."""
    while True:
        await asyncio.sleep(STATUS_SECONDS)
        if reporter.view is not None:
            state = reporter.view.state
            reporter.log(status_line(state, max(state.ts, time.time())))
