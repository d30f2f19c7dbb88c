"""A desk without a screen: pages are painted as text, prompts answered from a list, content of trials made up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from console.control.messages import Ask, Content, Token, Turn
from console.errors import ControlError
from console.journal import events as ev
from console.records.run_dir import RunRecord
from console.tui.desk import Desk
from console.tui.frame import as_text
from console.tui.layout import Box
from console.tui.replay import ReplaySource
from console.tui.source import Source


class BenchShell:
    """Remembers what the desk asks of the app. `answers`: what the operator types at the next prompts."""

    def __init__(self) -> None:
        self.answers: list[str | None] = []
        self.confirmed: list[str] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def confirm(
        self, title: str, text: str, yes: str, typed: str = "", over: Callable[[], bool] | None = None
    ) -> bool:
        self.confirmed.append(title)
        return True

    async def prompt(
        self,
        label: str,
        initial: str = "",
        changed: Callable[[str], None] | None = None,
        hint: str = "",
        complete: Callable[[str], Sequence[str]] | None = None,
        replace: bool = False,
    ) -> str | None:
        answer = self.answers.pop(0)
        for end in range(1, len(answer or "") + 1):
            if changed is not None:
                changed((answer or "")[:end])
        return answer

    def spawn(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            await work

        task = asyncio.get_running_loop().create_task(run())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def settle(self) -> None:
        """Wait for everything that was begun."""
        while self.tasks:
            await asyncio.gather(*self.tasks)
            await asyncio.sleep(0)  # done callbacks

    def repaint(self) -> None:
        pass

    def leave(self) -> None:
        pass

    def ring(self, text: str) -> None:
        pass


class AskedSource(ReplaySource):
    """A recording whose trials say what `contents` gives; remembers what was asked, and how many at once."""

    def __init__(self, record: RunRecord, contents: Callable[[Ask], Content], live: bool = False) -> None:
        super().__init__(record, at_end=False)
        self.playing = False
        if live:
            self.mode = "live"  # type: ignore[assignment]
            self.acts = True
        self.contents = contents
        self.asked: list[Ask] = []
        self.under_way = self.most = 0
        self.broken = ""
        self.slow: asyncio.Event | None = None

    async def ask(self, ask: Ask) -> Content:
        self.asked.append(ask)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            if self.slow is not None:
                await self.slow.wait()
            await asyncio.sleep(0)
            if self.broken:
                raise ControlError(self.broken)
            return self.contents(ask)
        finally:
            self.under_way -= 1


class Clock:
    """Monotonic seconds that a test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def desk_on(source: Source, ascii_only: bool = False) -> tuple[Desk, BenchShell, Clock]:
    """A desk on a source, with the run page on top."""
    shell, clock = BenchShell(), Clock()
    return Desk(source, shell, ascii_only=ascii_only, clock=clock), shell, clock  # type: ignore[arg-type]


def play_to_hold(source: ReplaySource, recording: Path, extra: int = 60) -> None:
    """Forward to some events after the recording's held trial: g3/t5 of step 12."""
    seq = next(e.seq for e in RunRecord(recording).journal.events() if isinstance(e, ev.TrialHeld))
    source.play_to(seq + extra)


def page_text(desk: Desk, width: int, height: int) -> list[str]:
    """What the page on top shows on a screen of that size, without the frame's own rows (header and keys)."""
    region = Box(0, 0, width, height - 2)
    return as_text(desk.page.paint(desk.scene(), region), width, height - 2).split("\n")


async def keys(desk: Desk, shell: BenchShell, *pressed: str) -> None:
    """Press keys one after the other, each with all that follows from it."""
    for key in pressed:
        await desk.press(key)
        desk.tick()
        await shell.settle()


def story(turns: int = 3, total: Callable[[], int] | None = None) -> Callable[[Ask], Content]:
    """Made-up content of a trial: so many calls, of which `total()` are there (all by default)."""

    def answer(ask: Ask) -> Content:
        calls = total() if total is not None else turns
        over = calls >= turns
        content = Content(id=ask.id, kind=ask.kind, calls=calls, try_=max(0, ask.try_))
        match ask.kind:
            case "transcript":
                items = [turn for call in range(calls) for turn in _turns(call)]
                content.turns = items[ask.cursor : ask.cursor + ask.limit]
                content.cursor = ask.cursor + len(content.turns)
                content.more, content.over = content.cursor < len(items), over
            case "tokens":
                call = ask.cursor // 1000 - 1 if ask.cursor else (calls - 1 if ask.call < 0 else ask.call)
                tokens = _tokens(call)[ask.cursor % 1000 :]
                content.call, content.over, content.tokens = call, True, tokens
                content.cursor = (call + 1) * 1000 + len(_tokens(call))
            case "verifier":
                content.lines, content.note = _from(["== test-stdout.txt ==", "1 passed in 0.03s"], ask, content)
            case "log":
                content.lines, content.note = _from(["Collecting artifacts", "done"], ask, content)
            case "result":
                content.lines, content.note = _from(
                    ["{", '  "task_name": "make-archive",', '  "n": 1', "}"], ask, content
                )
        return content

    return answer


def _from(lines: list[str], ask: Ask, content: Content) -> tuple[list[str], str]:
    content.cursor, content.over = len(lines), True
    return lines[ask.cursor :], ""


def _turns(call: int) -> list[Turn]:
    asked = "Make an archive of /data." if call == 0 else f"exit 0\n\x1b[32mfile-{call}.tar\x1b[0m\t{call} MB"
    return [
        Turn(call=call, role="user" if call == 0 else "tool", text=asked),
        Turn(
            call=call, role="assistant", text=f"I look at part {call}.\n```bash\ntar cf part-{call}.tar /data\n```",
            ts=1.0, prompt_tokens=120 * (call + 1), sampled_tokens=31, seconds=0.8, stop_reason="stop",
        ),
    ]  # fmt: skip


def _tokens(call: int) -> list[Token]:
    pieces = [("I", -0.02), (" look", -1.2), (" at", -0.4), ("\n", -3.1), ("\x1b[2J", -6.5), (f"part-{call}", -0.01)]
    return [Token(id=100 + i, text=text, logprob=p) for i, (text, p) in enumerate(pieces)]
