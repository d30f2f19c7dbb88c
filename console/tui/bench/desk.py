"""The desk on job directories: what was read of them, what is marked, and what takes its time."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from console.bench.figures import modes
from console.errors import MissingExtraError, QuarterdeckError
from console.records.harbor.files import clean
from console.records.tables import csv_lines
from console.tui.bench.aside import Later, aside
from console.tui.bench.pages import PAGES
from console.tui.bench.reading import Reader, Seen, Side, Stopped, Survey
from console.tui.commandline import Typed
from console.tui.desk import Desk

if TYPE_CHECKING:
    from console.bench.figures.tally import Tally
    from console.tui.actions import Action
    from console.tui.bench.versus import Pairs
    from console.tui.pages.page import Page

_HOME_ONLY = ("page_", "next_alarm", "watch", "rewind", "freeze", "detach")
"""Beginnings of the ids of actions that only a run has."""
_TYPED = ("filter", "theme", "export")
HOME, COMPARED = "triage", "versus"
COLUMNS = (
    "job", "trial_dir", "task", "agent", "model", "attempt", "try", "class", "cause", "reward", "exception",
    "evidence_file", "evidence_line", "evidence_text", "confidence", "rule", "marked",
)  # fmt: skip


class BenchDesk(Desk):
    """Reads once it is begun, and again when it is asked to; what is marked stays marked.

    Attributes:
        survey: what was read last, None before; trouble: why the last reading failed, empty when it did not.
        readings: how often something was read: it changes with `survey`.
        marks: directories of marked trials; on_second: triage, tally and mop-up are about the run compared with.
        command: what is to be run after the screen has closed, arguments of `quarterdeck bench`; empty for nothing.
        print_only: the command is to be printed instead.
    """

    pages = PAGES
    runless = (*PAGES,)
    bench = True

    def __init__(self, *args: Any, reader: Reader, print_only: bool = False, **options: Any) -> None:
        self.reader = reader
        self.survey: Survey | None = None
        self.trouble = ""
        self.readings = 0
        self.marks: set[str] = set()
        self.on_second = False
        self.command: tuple[str, ...] = ()
        self.print_only = print_only
        self.formats: Mapping[str, Callable[[Desk], bytes]] = {".csv": _csv, ".json": _json}
        self._reading = self._begun = False
        self._count = -1
        self._tallies: dict[bool, Later[Tally]] = {}
        self._pairs: dict[str, Later[Pairs]] = {}
        self._by_path: dict[str, Seen] = {}
        super().__init__(*args, **options)
        self.typing.pages = ()
        for name in [*self.typing.typed]:
            if name not in _TYPED:
                del self.typing.typed[name]
        self.typing.typed["goto"] = Typed("goto 12, goto fix-git", self._goto)

    # --- where one is ---

    def home(self) -> str:
        """The comparison, when there is something to compare with."""
        return COMPARED if self.reader.wanted.against else HOME

    def is_here(self, action: Action, page: Page | None = None) -> bool:
        """Nothing here is about a run."""
        return not action.id.startswith(_HOME_ONLY) and super().is_here(action, page)

    def back(self) -> None:
        """To the page before; from the comparison, when it is the first one, to the triage of the first side."""
        if len(self._pages) == 1 and self.page.id == COMPARED:
            self.show(HOME)
            return
        super().back()

    # --- reading ---

    @property
    def reading(self) -> bool:
        """Whether directories are being read."""
        return self._reading

    @property
    def progress(self) -> int:
        """Trials read so far."""
        return self.reader.count

    def tick(self) -> None:
        """Begin to read once there is a loop; show how far it is."""
        if not self._begun:
            self._begun = True
            self.begin_reading()
        if self._reading and self._count != self.reader.count:
            self._count = self.reader.count
            self.changed()
        super().tick()

    def begin_reading(self) -> None:
        """Read everything, unless that is under way."""
        if not self._reading:
            self._reading = True
            self.changed()
            self.shell.spawn(self._read())

    async def _read(self) -> None:
        try:
            survey = await aside(self.reader.read)
        except Stopped:
            return
        except (QuarterdeckError, OSError) as error:
            self.trouble = str(error)
        else:
            self.trouble = ""
            self.take(survey)
        self._reading = False
        self.changed()
        self.shell.repaint()

    def take(self, survey: Survey) -> None:
        """Show this from now on; marks of trials that are gone are gone."""
        self.survey = survey
        self.readings += 1
        self._by_path = {seen.path: seen for seen in survey.trials}
        self.marks &= self._by_path.keys()
        self._tallies, self._pairs = {}, {}

    @property
    def side(self) -> Side | None:
        """The run that triage, tally and mop-up are about, None before anything was read."""
        survey = self.survey
        return None if survey is None else survey.against if self.on_second and survey.against else survey.side

    def turn_side(self, second: bool) -> None:
        """Be about the other run, if there is one."""
        if self.survey is None or self.survey.against is None:
            self.say("there is one run only; --against DIR names another one")
            return
        self.on_second = second
        self.changed()

    def changed(self) -> None:
        """There is something else to paint."""
        self.source.version += 1

    def seen(self, path: str) -> Seen | None:
        """The trial in a directory."""
        return self._by_path.get(path)

    # --- what takes its time ---

    def tally(self) -> Later[Tally] | None:
        """The figures of the run, begun when they are asked for first; None before anything was read."""
        if self.side is None:
            return None
        found = self._tallies.get(self.on_second)
        if found is None:
            merged = self.side.merged

            def make() -> Tally:
                _require_statistics()
                from console.bench.figures.tally import tally_merged

                return tally_merged(merged, list(modes.MODES.values()))

            found = self._tallies[self.on_second] = Later(make)
        self._come(found)
        return found

    def pairs(self, mode: str) -> Later[Pairs] | None:
        """The comparison by a mode, begun when it is asked for first; None before anything was read."""
        survey = self.survey
        if survey is None:
            return None
        found = self._pairs.get(mode)
        if found is None:

            def make() -> Pairs:
                _require_statistics()
                from console.tui.bench.versus import pairs

                return pairs(survey, mode)

            found = self._pairs[mode] = Later(make)
        self._come(found)
        return found

    def _come(self, later: Later[Any]) -> None:
        if later.idle:
            self.shell.spawn(self._came(later))

    async def _came(self, later: Later[Any]) -> None:
        await later.come()
        self.changed()
        self.shell.repaint()

    # --- marks ---

    def toggle(self, trials: tuple[Seen, ...] | list[Seen]) -> bool:
        """Mark them; unmark them when all of them are marked. Whether they are marked now."""
        paths = {seen.path for seen in trials}
        on = not paths <= self.marks
        self.marks = self.marks | paths if on else self.marks - paths
        self.changed()
        return on

    def marked(self) -> list[Seen]:
        """The marked trials, in the order in which they were read."""
        return [] if self.survey is None else [seen for seen in self.survey.trials if seen.path in self.marks]

    def do_clear_marks(self) -> None:
        """Nothing is marked any more."""
        self.say(f"{len(self.marks):,} marks cleared" if self.marks else "nothing is marked")
        self.marks = set()
        self.changed()

    # --- keys of every page ---

    def _handler(self, action_id: str, page: Page) -> Any:
        own = getattr(page, f"do_{action_id}", None) or getattr(self, f"do_{action_id}", None)
        return own or super()._handler(action_id, page)

    def do_read_again(self) -> None:
        """Read everything again."""
        self.say("reading again ..." if not self._reading else "it is being read already")
        self.begin_reading()

    def do_tally(self) -> None:
        """The figures."""
        self.show("tally")

    def do_versus(self) -> None:
        """The comparison."""
        self.show("versus")

    def do_mop_up(self) -> None:
        """The plan of a mop-up."""
        self.show("mop")

    def _goto(self, text: str) -> None:
        goto = getattr(self.page, "goto", None)
        if goto is None:
            self.say("goto does nothing on this page", "limit")
        else:
            goto(text)
            self.shell.repaint()

    def leave_for(self, arguments: tuple[str, ...]) -> None:
        """Close the screen, and have this command run or printed."""
        self.command = arguments
        self.shell.leave()


def _require_statistics() -> None:
    """Raises MissingExtraError where scipy is not installed."""
    if importlib.util.find_spec("scipy") is None:
        raise MissingExtraError("statistics need the extra `bench`: install quarterdeck[bench]")


# --- the marked trials, or those in the list, as a file ---


def _exported(desk: Desk) -> list[dict[str, Any]]:
    assert isinstance(desk, BenchDesk)
    listed = getattr(desk.page, "listed", None)
    trials = desk.marked() or (listed() if listed is not None else list(desk.side.trials) if desk.side else [])
    return [_record(seen, seen.path in desk.marks) for seen in trials]


def _record(seen: Seen, marked: bool) -> dict[str, Any]:
    row, evidence = seen.row, seen.evidence
    values = (
        row.job, row.path, seen.whole, row.group.agent, row.group.model, row.attempt, row.try_, row.outcome.value,
        row.cause, row.reward, row.error or None, evidence.file, evidence.line, evidence.text, seen.confidence,
        seen.rule, marked,
    )  # fmt: skip
    return {name: _plain(value) for name, value in zip(COLUMNS, values, strict=True)}


def _plain(value: Any) -> Any:
    """A text that can be encoded: bytes of a path that are no UTF-8 are written out."""
    return clean(value) if isinstance(value, str) else value


def _csv(desk: Desk) -> bytes:
    rows = ([record[name] for name in COLUMNS] for record in _exported(desk))
    return "".join(csv_lines(COLUMNS, rows)).encode()


def _json(desk: Desk) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in _exported(desk)).encode()
