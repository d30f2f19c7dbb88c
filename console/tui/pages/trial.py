"""One trial: transcript, verifier output, captured tokens, log, result, and why its outcome was given."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, cast

from console.control.messages import Ask, Content, ContentKind
from console.errors import ControlError, RecordingError
from console.records.content import TrialContent
from console.records.manifest import read_manifest
from console.state.lines import trial_name
from console.state.model import GroupState, TrialState
from console.state.sanitize import sanitize
from console.tui.event_log import Entry
from console.tui.feed import Feed, Target, weight
from console.tui.glyphs import marks
from console.tui.layout import Box
from console.tui.pages.page import Painted
from console.tui.pages.reading_page import ReadingPage
from console.tui.panes import detail, tokens
from console.tui.panes.detail import Subject
from console.tui.picture import Scene, held_trials
from console.tui.reading import LongText, wrap_line
from console.tui.text import Line, Span, cell, fit, line, spread

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from console.tui.desk import Desk

TABS = (
    ("transcript", "t", "Transcript"),
    ("verifier", "v", "Verifier"),
    ("tokens", "c", "Captured tokens"),
    ("log", "l", "Log"),
    ("result", "e", "Result"),
    ("why", "b", "Why"),
)
_SHORT = {"Captured tokens": "Tokens"}
SIDE_FROM, SIDE = 150, 58
ANSWER_SECONDS = 20.0
THREAD_FROM = 16_000
"""Characters of an answer from which it is laid out on a thread: sanitising much text takes longer than a key may."""
_NOTHING = {
    "transcript": "no turn yet",
    "verifier": "the verifier has written nothing yet",
    "tokens": "no call was captured yet",
    "log": "the log is empty so far",
    "result": "there is no result yet",
}


class TrialPage(ReadingPage):
    """The trial that was selected when it came up. Its content is asked of the source while it is shown."""

    id = "trial"
    title = "Trial"
    panes = ("trial_head", "trial_body", "trial_side")

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._target: Target | None = None
        self._task = ""
        self._state: TrialState | None = None
        self._gone = False
        self._tries = 0
        self._tab = "transcript"
        self._feeds: dict[str, Feed] = {}
        self._why = LongText(follow=False)
        self._asking = False
        self._changes = 0
        self._happened: tuple[object, list[Entry]] = (None, [])
        self._disk: TrialContent | None = None

    # --- which trial ---

    def opened(self) -> None:
        """Take the trial that is selected, unless the one shown is still meant."""
        chosen = self.desk.scene()
        if chosen.group is None or chosen.trial is None:
            return
        here = (chosen.group.group, chosen.trial.trial)
        if self._target is None or (not self._gone and here != (self._target.group, self._target.trial)):
            self.look_at(self.desk.state.step or 0, *here)

    def look_at(self, step: int, group: int, trial: int, try_: int = -1) -> None:
        """Show another trial, also one of an earlier step; what was loaded of the one before is let go."""
        self._target = Target(step, group, trial, try_)
        self._feeds.clear()
        self._why.clear()
        self._why.to_first()
        self._task, self._state, self._gone, self._tries = "", None, False, 0
        self._changes += 1
        self.tick()

    def _found(self) -> tuple[GroupState, TrialState] | None:
        """The target in the state, None when its step is not the current one."""
        state, target = self.desk.state, self._target
        if target is None or state.step != target.step:
            return None
        group = state.groups.get(target.group)
        if group is None or target.trial >= len(group.trials):
            return None
        return group, group.trials[target.trial]

    def _settle(self) -> None:
        """Note what the state has of the target, and keep the desk's selection on it."""
        target, found = self._target, self._found()
        if target is None:
            return
        if found is None:
            self._gone = True
            return
        group, trial = found
        self._task, self._state, self._gone = group.task, trial, False
        selection = self.desk.selection
        selection.group, selection.trial = target.group, target.trial
        selection.pinned, selection.focus = True, "trials"
        try_ = trial.try_ if target.try_ < 0 else target.try_
        for kind, feed in list(self._feeds.items()):
            if feed.target.try_ != try_:  # it is tried again: what is shown is the new try
                del self._feeds[kind]

    @property
    def _subject(self) -> Subject:
        t = self._target or Target(0, 0, 0)
        return Subject(t.step, t.group, t.trial, self._task, self._state, self._gone)

    def do_previous_trial(self) -> None:
        """The trial before, also of another group."""
        self._turn(-1)

    def do_next_trial(self) -> None:
        """The next trial, also of another group."""
        self._turn(1)

    def _turn(self, by: int) -> None:
        scene = self.desk.scene()
        names = [(g.group, t.trial) for g in scene.groups for t in g.trials]
        if not names:
            self.desk.say("no step is running")
            return
        target = self._target
        here = (target.group, target.trial) if target is not None and not self._gone else None
        at = (names.index(here) + by) % len(names) if here in names else 0
        self.look_at(self.desk.state.step or 0, *names[at])

    def do_next_alarm(self) -> None:
        """The next trial that waits for the operator."""
        waiting = [(g.group, t.trial) for g, t in held_trials(self.desk.state)]
        if not waiting:
            self.desk.say("no trial waits for you")
            return
        here = (self._target.group, self._target.trial) if self._target is not None and not self._gone else None
        at = (waiting.index(here) + 1) % len(waiting) if here in waiting else 0
        self.look_at(self.desk.state.step or 0, *waiting[at])

    def do_previous_try(self) -> None:
        """The try before."""
        self._turn_try(-1)

    def do_next_try(self) -> None:
        """The next try."""
        self._turn_try(1)

    def _turn_try(self, by: int) -> None:
        target = self._target
        if target is None:
            return
        if self._state is not None:
            self._tries = self._state.try_
        wanted = (self._tries if target.try_ < 0 else target.try_) + by
        if not 0 <= wanted <= self._tries:
            self.desk.say(f"there is no try {wanted + 1}" if wanted >= 0 else "this is the first try")
            return
        self._target = Target(target.step, target.group, target.trial, -1 if wanted == self._tries else wanted)
        self._feeds.clear()
        self._changes += 1
        self.tick()

    # --- orders work on the trial that is shown ---

    def do_cancel_trial(self) -> Awaitable[None] | None:
        """Cancel it."""
        return self._order("cancel_trial")

    def do_cancel_group(self) -> Awaitable[None] | None:
        """Cancel its group."""
        return self._order("cancel_group")

    def do_retry(self) -> Awaitable[None] | None:
        """Try it again."""
        return self._order("retry")

    def do_quarantine(self) -> Awaitable[None] | None:
        """Leave its task out."""
        return self._order("quarantine")

    def _order(self, name: str) -> Awaitable[None] | None:
        self._settle()
        if self._gone:
            self.desk.say(
                "its step is over: nothing can be ordered for this trial; J goes to the running step", "limit"
            )
            return None
        # The same numbers mean another trial once the step has changed, so the selection is set right here.
        return cast("Awaitable[None]", getattr(self.desk.orders, f"do_{name}")())

    # --- asking ---

    @property
    def _feed(self) -> Feed | None:
        """The feed of the tab that is shown; None on the one that needs none."""
        if self._tab == "why" or self._target is None:
            return None
        feed = self._feeds.get(self._tab)
        if feed is None:
            target = self._target
            if target.try_ < 0 and self._state is not None:
                target = Target(target.step, target.group, target.trial, self._state.try_)
            feed = Feed(cast(ContentKind, self._tab), target, marks(self.desk.ascii))
            self._feeds[self._tab] = feed
        return feed

    def tick(self) -> None:
        """Ask for what is new of the tab that is shown; one question at a time."""
        self._settle()
        feed = self._feed
        if feed is not None and not self._asking and feed.due(self.desk.clock()):
            self._asking = True
            self.desk.shell.spawn(self._fetch(feed))

    async def _fetch(self, feed: Feed) -> None:
        """Ask until there is nothing more at once, or something else is looked at."""
        try:
            while True:
                ask = feed.ask()
                try:
                    content = await asyncio.wait_for(self._answer(ask), ANSWER_SECONDS)
                except (ControlError, TimeoutError) as error:
                    why = sanitize(str(error), limit=200) or f"no answer in {ANSWER_SECONDS:.0f} s"
                    feed.failed(why, self.desk.clock())
                    return
                if weight(content) > THREAD_FROM:
                    lines = await asyncio.to_thread(feed.lines_of, content)
                else:
                    lines = feed.lines_of(content)
                ended = self._gone or (self._state is not None and self._state.phase in ("done", "held"))
                before = feed.asked
                feed.take(ask, content, lines, self.desk.clock(), ended)
                self._tries = max(self._tries, content.try_)
                self._changes += 1
                shown = self.desk.page is self and self._feeds.get(self._tab) is feed
                if not shown or not (feed.more or feed.asked == before):
                    return
        finally:
            self._asking = False
            self._changes += 1

    async def _answer(self, ask: Ask) -> Content:
        """From the source; from the disk when the engine is gone and its files are here."""
        try:
            return await self.desk.source.ask(ask)
        except ControlError:
            run_dir, run_id = self.desk.state.run_dir, self.desk.state.run_id
            if not (run_dir and self.desk.no_engine):
                raise
            found = await asyncio.to_thread(self._content_on_disk, run_dir, run_id)
            if found is None:
                raise
            return await asyncio.to_thread(found.answer, ask)

    def _content_on_disk(self, run_dir: str, run_id: str) -> TrialContent | None:
        if self._disk is None:
            try:
                same = read_manifest(Path(run_dir)).run_id == run_id
            except (RecordingError, OSError):
                return None
            self._disk = TrialContent(run_dir) if same else None
        return self._disk

    # --- tabs ---

    def do_transcript(self) -> None:
        """The transcript."""
        self._show("transcript")

    def do_verifier(self) -> None:
        """The verifier's output."""
        self._show("verifier")

    def do_tokens(self) -> None:
        """The captured tokens."""
        self._show("tokens")

    def do_log(self) -> None:
        """The log."""
        self._show("log")

    def do_result(self) -> None:
        """The result."""
        self._show("result")

    def do_why(self) -> None:
        """Why the outcome was given."""
        self._show("why")

    @property
    def text(self) -> LongText:
        """That of the tab."""
        feed = self._feed
        return self._why if feed is None else feed.text

    def moved(self) -> None:
        """A call whose tokens are being read stays."""
        feed = self._feed
        if feed is not None and feed.kind == "tokens":
            feed.stay()

    def do_last(self) -> None:
        """To the end, and on with it."""
        self._newest()
        if self._feed is not None and self._feed.grows:
            self.text.to_last()
        else:
            self.text.to_last()
            self.text.stand()

    def do_follow(self) -> None:
        """Follow the end, or stand still; of tokens, follow the newest call."""
        if self._tab == "tokens":
            self._newest()
        elif self._feed is not None and self._feed.grows:
            self.text.toggle_follow()

    def _newest(self) -> None:
        feed = self._feed
        if feed is not None and feed.kind == "tokens":
            feed.turn_newest()

    def _show(self, tab: str) -> None:
        needle = self.text.needle
        self._tab = tab
        if self.text.needle != needle:
            self.text.search(needle)
        self._changes += 1
        self.tick()

    def _turn_tab(self, by: int) -> None:
        ids = [tab for tab, _, _ in TABS]
        self._show(ids[(ids.index(self._tab) + by) % len(ids)])

    def do_next_pane(self) -> None:
        """The next tab."""
        self._turn_tab(1)

    def do_previous_pane(self) -> None:
        """The tab before."""
        self._turn_tab(-1)

    def do_left(self) -> None:
        """The tab before; with long lines cut, to the left."""
        self._sideways(-1)

    def do_right(self) -> None:
        """The next tab; with long lines cut, to the right."""
        self._sideways(1)

    def _sideways(self, by: int) -> None:
        if self.text.wrap:
            self._turn_tab(by)
        else:
            self.text.shift(by)

    def do_pane_1(self) -> None:
        """The first tab."""
        self._show(TABS[0][0])

    def do_pane_2(self) -> None:
        """The second tab."""
        self._show(TABS[1][0])

    def do_pane_3(self) -> None:
        """The third tab."""
        self._show(TABS[2][0])

    def do_pane_4(self) -> None:
        """The fourth tab."""
        self._show(TABS[3][0])

    def do_pane_5(self) -> None:
        """The fifth tab."""
        self._show(TABS[4][0])

    def do_pane_6(self) -> None:
        """The sixth tab."""
        self._show(TABS[5][0])

    def do_previous_call(self) -> None:
        """Tokens of the call before."""
        self._turn_call(-1)

    def do_next_call(self) -> None:
        """Tokens of the next call."""
        self._turn_call(1)

    def _turn_call(self, by: int) -> None:
        if self._tab != "tokens":
            self._show("tokens")
            return
        feed = self._feed
        if feed is not None and not feed.turn_call(by):
            self.desk.say("there is no such call" if feed.call >= 0 else "no call was captured yet")
        self.tick()

    def do_token_table(self) -> None:
        """Tokens as a table, or as text."""
        feed = self._feed
        if feed is None or feed.kind != "tokens":
            self._show("tokens")
            return
        feed.turn_table()

    # --- painting ---

    def fingerprint(self) -> tuple[object, ...]:
        """Tab, answers, place in the text."""
        return self._tab, self._changes, self.text.version

    def paint(self, scene: Scene, region: Box) -> Painted:
        """Head and tabs, the text beneath; on wide screens what is known of the trial beside it."""
        self._settle()
        side = SIDE if region.width >= SIDE_FROM and self._tab != "why" else 0
        cells, rows = region.width - side, region.height
        body = self._body(scene, cells, rows - 4)
        heading = [
            self._title(scene, region.width),
            *detail.head(scene, self._subject, region.width),
            self._tabs(cells),
        ]
        boxes = {
            "trial_head": Box(region.x, region.y, region.width, 4),
            "trial_body": Box(region.x, region.y + 4, cells, rows - 4),
        }
        lines = {"trial_head": heading, "trial_body": body}
        if side:
            boxes["trial_side"] = Box(region.x + cells, region.y + 4, side, rows - 4)
            lines["trial_side"] = self._side(scene, side, rows - 4)
        self.shown = (heading[0], *body)
        return Painted(boxes, lines)

    def _title(self, scene: Scene, cells: int) -> Line:
        subject = self._subject
        name = trial_name(subject.group, subject.trial)
        left = line(Span(" Run > ", "muted"), Span(f"{name} ", "title"))
        right = self.position()
        if self._tab != "why" and self._feed is not None and not self._feed.grows:
            right = ", ".join(part for part in right.split(", ") if "stands still" not in part)
        task = cell(self._task, max(1, min(60, cells - 40 - len(right)))).rstrip()
        tail = line(Span(f" {right} " if right else "", "muted"), Span(f"step {subject.step} ", "muted"))
        return spread((*left, *line(f"{task} " if task else "")), tail, cells, scene.marks.rule, "rule")

    def _tabs(self, cells: int) -> Line:
        spans: list[Span] = []
        for tab, key, name in TABS:
            shown = name if cells >= 100 else _SHORT.get(name, name)
            here = tab == self._tab
            spans += [Span(f" {key} ", "key"), Span(f" {shown} " if here else shown, "title+reverse" if here else "")]
            if cells >= 100:
                spans.append(Span("  "))
        return fit(spans, cells)

    def _body(self, scene: Scene, cells: int, rows: int) -> list[Line]:
        feed = self._feed
        if feed is None:
            self._why.replace(detail.why(scene, self._subject, self._entries()))
            return [fit(one, cells) for one in self._why.window(cells, rows)]
        top: list[Line] = []
        if feed.kind == "tokens" and feed.call >= 0:
            top.append(spread((Span(" "), *tokens.summary(feed.tokens, feed.call, feed.calls, feed.more)),
                              (*tokens.legend(), Span(" ")), cells))  # fmt: skip
            top += [tokens.table_head()] if feed.table else []
        bottom = [fit(one, cells) for one in self._notes(feed)]
        window = feed.text.window(cells, max(1, rows - len(top) - len(bottom)))
        filler: list[Line] = [()] * (rows - len(top) - len(bottom) - len(window))
        return [*top, *window, *filler, *bottom]

    def _notes(self, feed: Feed) -> list[Line]:
        """What is to be said about the text, in one row at most two."""
        out: list[Line] = []
        if feed.text.first:
            out.append(line(Span(f" {feed.text.first:,} earlier lines were let go", "limit")))
        if feed.error:
            out.append(line(Span(f" not answered: {feed.error}; it is asked again", "infra")))
        elif feed.note:
            out.append(line(Span(f" {sanitize(feed.note, limit=300)}", "muted")))
        elif not feed.text.total:
            out.append(line(Span(f" {_NOTHING[feed.kind] if feed.asked else 'being asked for ...'}", "muted")))
        if self._target is not None and self._target.try_ >= 0:
            out.append(line(Span(f" try {self._target.try_ + 1} of {self._tries + 1}: ) goes on", "limit")))
        return out

    def _side(self, scene: Scene, cells: int, rows: int) -> list[Line]:
        known = detail.why(scene, self._subject, self._entries())
        bar = Span(f"{scene.marks.bar} ", "rule")
        wrapped = [row for one in known for row in wrap_line(one, cells - 2)]
        wrapped += [()] * (rows - len(wrapped))
        return [fit((bar, *row), cells) for row in wrapped[:rows]]

    def _entries(self) -> list[Entry]:
        """What the log has about the trial."""
        t, log = self._target, self.desk.log
        if t is None:
            return []
        key = (t.step, t.group, t.trial, log.total, log.jumps)
        if self._happened[0] != key:
            about = (t.step, t.group, t.trial)
            self._happened = (key, [e for e in log.entries if (e.step, e.group, e.trial) == about])
        return self._happened[1]


def show_trial(desk: Desk, step: int, group: int, trial: int) -> None:
    """Bring the page up with this trial, also one of an earlier step."""
    desk.selection.group, desk.selection.trial, desk.selection.pinned = group, trial, True
    page = desk.show("trial")
    if isinstance(page, TrialPage):
        page.look_at(step, group, trial)
