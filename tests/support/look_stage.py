"""Two benchmark jobs with one of each kind of trouble, and the screens of `bench look` on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from harbor_jobs import HarborJob
from textual.pilot import Pilot

from console.bench.rules.user import UserRules
from console.resources import themes_dir
from console.tui.app import ConsoleApp
from console.tui.bench.desk import BenchDesk
from console.tui.bench.main import BenchSource
from console.tui.bench.reading import Reader, Wanted
from console.tui.themes import Themes

KEY = "sk-abcdefghijklmnopqrstuv"
WORK = {
    "agent/trajectory.json": '{"schema_version": "ATIF-v1.5", "steps": [{"source": "agent", "tool_calls": '
    '[{"tool_call_id": "1"}]}]}'
}
PASSED = {**WORK, "verifier/test-stdout.txt": "== 3 passed in 0.1s ==\n"}
NO_TOOLS = {
    **WORK,
    "verifier/test-stdout.txt": "begin\ncurl: (28) timed out\n/tests/test.sh: line 5: uvx: command not found\nend\n",
}
TIMEOUT = ("AgentTimeoutError", "Agent execution timed out after 3600.0 seconds")
DEAD = ("SandboxError", "the sandbox was not found")
REFUSED = ("NonZeroAgentExitCodeError", f"agent exited 1: Incorrect API key provided: {KEY}")


def first_job(path: Path, **job: Any) -> HarborJob:
    """20 trials of 20 tasks: 8 passed, 4 failed, 2 timed out, 3 sandboxes died, 2 verifiers had no tools, 1 bad key."""
    made = HarborJob(path, **job)
    for at in range(20):
        task = f"org/task-{at:02}"
        if at < 12:
            made.trial(task, float(at < 8), files=PASSED)
        elif at < 14:
            made.trial(task, float(at == 12), error=TIMEOUT, seconds={"agent": 3600}, tokens=(10, 0, 90), files=WORK)
        elif at < 17:
            made.trial(task, error=DEAD, files=WORK, seconds={"agent": 60.0 + 50 * at})
        elif at < 19:
            made.trial(task, 0.0, files=NO_TOOLS)
        else:
            made.trial(task, 0.0, error=REFUSED, files={**WORK, "agent/out.txt": f"Error: 401 Unauthorized {KEY}\n"})
    made.write()
    return made


def second_job(path: Path, **job: Any) -> HarborJob:
    """The same tasks, by another agent with more time: 0 to 2 failed, 3 to 15 passed, the others' sandboxes died."""
    made = HarborJob(path, agent="mini-swe-agent", model="openai/other", agent_timeout_multiplier=4.0, **job)
    for at in range(20):
        if at < 16:
            made.trial(f"org/task-{at:02}", float(at >= 3), files=PASSED)
        else:
            made.trial(f"org/task-{at:02}", error=DEAD, files=WORK)
    made.write()
    return made


def reader_of(paths: Sequence[Path], against: Sequence[Path] = (), rules: UserRules | None = None) -> Reader:
    """Reads without a cache."""
    return Reader(Wanted(tuple(paths), tuple(against), rules, cache=False))


def app_on(reader: Reader, *, ascii_only: bool = False, theme: str = "dark", print_only: bool = False) -> ConsoleApp:
    """The console on what a reader reads."""
    desk = partial(BenchDesk, reader=reader, print_only=print_only)
    return ConsoleApp(BenchSource(reader), Themes(themes_dir()), theme, ascii_only, desk=desk)


def desk_of(app: ConsoleApp) -> BenchDesk:
    """The app's desk."""
    assert isinstance(app.desk, BenchDesk)
    return app.desk


@asynccontextmanager
async def opened(app: ConsoleApp, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Pilot[None]]:
    """The app with everything read and counted."""
    async with app.run_test(size=size) as pilot:
        await until(lambda: desk_of(app).survey is not None)
        await settle(app, pilot)
        yield pilot


async def until(true: Callable[[], object]) -> None:
    """Wait for it."""
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def settle(app: ConsoleApp, pilot: Pilot[None]) -> None:
    """Wait for all that is under way, and have it painted."""
    desk = desk_of(app)
    for _ in range(3):
        desk.tick()
        await pilot.pause()
        await until(lambda: not desk.reading and not any(later.under_way for later in _under_way(desk)))
        await pilot.pause()
    app.repaint()
    await pilot.pause()


def _under_way(desk: BenchDesk) -> list[Any]:
    page = desk.page
    some = [
        *desk._tallies.values(),
        *desk._pairs.values(),
        getattr(page, "_close", None),
        getattr(page, "_plans", None),
    ]
    return [later for later in some if later is not None]


async def press(app: ConsoleApp, pilot: Pilot[None], *keys: str) -> None:
    """Press keys, each with all that follows from it."""
    for key in keys:
        await pilot.press(key)
        if not app._exit and app._main._prompt is None:  # what is typed into a line changes nothing else
            await settle(app, pilot)
