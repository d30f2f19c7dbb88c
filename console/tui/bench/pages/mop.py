"""What a mop-up would run, and why; started from here after a question, by the command that is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.state.sanitize import sanitize
from console.tui.bench.aside import Later
from console.tui.bench.mopping import MopUp, mop_up_lines, mop_ups, the_one
from console.tui.bench.pages.framed import FramedPage
from console.tui.bench.pages.listing import bench
from console.tui.layout import Box
from console.tui.pages.page import Painted
from console.tui.picture import Scene
from console.tui.reading import LongText
from console.tui.text import Line, Span, line

if TYPE_CHECKING:
    from console.tui.bench.desk import BenchDesk


class MopPage(FramedPage):
    """Made anew for other marks, and when something else was read."""

    id = "mop"
    title = "Mop-up"

    def __init__(self, desk: BenchDesk) -> None:
        super().__init__(desk)
        self._text = LongText(follow=False)
        self._plans: Later[list[MopUp]] | None = None
        self._of: tuple[object, ...] = ()
        self._made: tuple[object, ...] = ()

    @property
    def text(self) -> LongText:
        """The plan."""
        return self._text

    def opened(self) -> None:
        """Have it made, now."""
        self.tick()

    def tick(self) -> None:
        """Have it made: lineage files are looked for beside the jobs."""
        desk = bench(self)
        side = desk.side
        if side is None:
            return
        wanted = (desk.readings, desk.on_second, frozenset(desk.marks))
        if wanted == self._of and self._plans is not None:
            return
        self._of = wanted
        marks, asked = frozenset(desk.marks), desk.reader.wanted
        self._plans = later = Later(lambda: mop_ups(side, marks, asked.rules, asked.cache))

        async def come() -> None:
            await later.come()
            desk.changed()
            desk.shell.repaint()

        desk.shell.spawn(come())

    def fingerprint(self) -> tuple[object, ...]:
        """Where one reads."""
        return (self._text.version, self._made)

    def paint(self, scene: Scene, region: Box) -> Painted:
        """Jobs and the plan."""
        desk = bench(self)
        self._sync(region.width)
        done = "prints" if desk.print_only else "runs"
        return self.framed(scene, region, f"Mop-up  {desk.keymap.label('open')} {done} the command")

    def _sync(self, cells: int) -> None:
        later = self._plans
        found = later.value if later is not None else None
        trouble = later.trouble if later is not None else ""
        wanted = (self._of, found is not None, cells, trouble)
        if wanted == self._made:
            return
        self._made = wanted
        lines: list[Line] = []
        if found is None:
            lines.append(
                line(Span(f" {sanitize(trouble, limit=300) or 'reading ...'}", "limit" if trouble else "muted"))
            )
        for at, plan in enumerate(found or ()):
            lines += [(), *mop_up_lines(plan, cells)] if at else mop_up_lines(plan, cells)
        self._text.replace(lines)

    async def do_open(self) -> None:
        """Ask, close the screen, and run the command, or print it."""
        desk, later = bench(self), self._plans
        if later is None or later.value is None:
            desk.say(later.trouble if later is not None and later.trouble else "the plan is not there yet", "limit")
            return
        await self._begin(the_one(later.value))

    do_mop_up = do_open

    async def _begin(self, plan: MopUp) -> None:
        desk = bench(self)
        if not desk.print_only:
            count = len(plan.plan.choice.chosen) if plan.plan is not None else 0
            text = (
                f"This screen closes, and in this terminal runs:\n\n{sanitize(plan.command, limit=1500)}\n\n"
                f"It shows its plan of {count:,} attempt{'' if count == 1 else 's'} and asks once more before anything "
                "runs. The job's own directory is not touched."
            )
            if not await desk.shell.confirm("Mop up", text, "go there"):
                desk.say("mop-up: not begun")
                return
        desk.leave_for(plan.arguments)

    def yank_text(self) -> str:
        """The commands."""
        later = self._plans
        return "\n".join(plan.command for plan in later.value) if later is not None and later.value else ""
