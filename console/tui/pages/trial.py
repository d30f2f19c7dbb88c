"""One trial: transcript, verifier output, captured tokens, log, result, and why its outcome was given."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from console.control.messages import ContentKind
from console.state.model import GroupState, RunState, TrialState
from console.tui.asking import Asker
from console.tui.event_log import Entry
from console.tui.feed import Feed, Target
from console.tui.filters import Filter
from console.tui.glyphs import marks
from console.tui.layout import Box
from console.tui.pages.page import Painted
from console.tui.pages.reading_page import ReadingPage
from console.tui.panes import detail, trial_tabs
from console.tui.panes.detail import Subject
from console.tui.panes.trial_tabs import TABS
from console.tui.picture import Scene
from console.tui.reading import LongText
from console.tui.spots import Spot, spots, told
from console.tui.text import Line, fit

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from console.tui.desk import Desk

SIDE_FROM, SIDE = 150, 58
HEAD_ROWS = 4


class TrialPage(ReadingPage):
    """The trial that was selected when it came up. Its content is asked of the source while it is shown."""

    id = "trial"
    title = "Trial"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._asker = Asker(desk, self._answered)
        self._target: Target | None = None
        self._task = ""
        self._state: TrialState | None = None
        self._gone = False
        self._tries = 0
        self._alarm_at = ""
        self._tab = TABS[0][0]
        self._feeds: dict[str, Feed] = {}
        self._why = LongText(follow=False)
        self._changes = 0
        self._happened: tuple[object, list[Entry]] = (None, [])

    # --- which trial ---

    def opened(self) -> None:
        """Take the trial that is selected, unless the one shown is still meant."""
        scene = self.desk.scene()
        if scene.group is None or scene.trial is None:
            return
        here = (scene.group.group, scene.trial.trial)
        if self._target is None or (not self._gone and here != (self._target.group, self._target.trial)):
            self.look_at(scene.state.step or 0, *here)

    def look_at(self, step: int, group: int, trial: int) -> None:
        """Show another trial, also one of an earlier step; what was loaded of the one before is let go."""
        self._target = Target(step, group, trial)
        self._feeds.clear()
        self._why.clear()
        self._why.to_first()
        self._task, self._state, self._gone, self._tries = "", None, False, 0
        self._changes += 1
        self.tick()

    @property
    def _run(self) -> RunState:
        """The state as it is shown."""
        return (self.desk.frozen.view if self.desk.frozen is not None else self.desk.source.view).state

    def _find_in(self, state: RunState) -> tuple[GroupState, TrialState] | None:
        """The target in the state, None when its step is not the current one."""
        target = self._target
        group = None if target is None or state.step != target.step else state.groups.get(target.group)
        if target is None or group is None or target.trial >= len(group.trials):
            return None
        return group, group.trials[target.trial]

    def _settle(self, state: RunState) -> None:
        """Note what the state has of the target, and keep the desk's selection on it."""
        target, found = self._target, self._find_in(state)
        if target is None:
            return
        self._gone = found is None
        if found is None:
            return
        group, self._state = found
        self._task, self._tries = group.task, max(self._tries, self._state.try_)
        selection = self.desk.selection
        selection.group, selection.trial = target.group, target.trial
        selection.pinned, selection.focus = True, "trials"
        shown = self._state.try_ if target.try_ < 0 else target.try_
        for kind, feed in list(self._feeds.items()):
            if feed.target.try_ != shown:  # it is tried again: what is shown is the new try
                del self._feeds[kind]

    @property
    def _subject(self) -> Subject:
        t = self._target or Target(0, 0, 0)
        reads = "" if t.try_ < 0 or self._tab == "why" else f"try {t.try_ + 1} of {self._tries + 1}"
        return Subject(t.step, t.group, t.trial, self._task, self._state, self._gone, reads)

    def do_previous_trial(self) -> None:
        """The trial before, also of another group."""
        self._turn(-1)

    def do_next_trial(self) -> None:
        """The next trial, also of another group."""
        self._turn(1)

    def _turn(self, by: int) -> None:
        scene = self.desk.scene()
        self._alarm_at = ""
        self._go([(g.group, t.trial) for g in scene.groups for t in g.trials], by, "no step is running")

    def do_next_alarm(self) -> None:
        """The next trial that needs the operator; in a replay, where no other does, the next alarm in time."""
        target, desk = self._target, self.desk
        replay = desk.source.mode == "replay"
        found = [one for one in spots(self._run, desk.now()) if one.group is not None or not replay]
        where = None if target is None or self._gone else (target.group, target.trial)
        here = self._among(found, where)
        if replay and here + 1 >= len(found):
            desk.replaying.do_next_alarm()
        elif found:
            at = (here + 1) % len(found)
            self._alarm_at = found[at].key
            desk.say(told(found, at), "limit")
            group, trial = found[at].group, found[at].trial or 0
            if group is not None and where != (group, trial):
                self.look_at(self._run.step or 0, group, trial)
        else:
            desk.say("nothing needs you: no trial is held, no alarm asks")

    def _among(self, found: list[Spot], where: tuple[int, int] | None) -> int:
        """What `!` went to last, or else the trial that is shown; -1 for neither."""
        at = [None if one.group is None else (one.group, one.trial or 0) for one in found]
        gone_to = [i for i, one in enumerate(found) if one.key == self._alarm_at and at[i] in (None, where)]
        return next(iter(gone_to), at.index(where) if where is not None and where in at else -1)

    def _go(self, names: list[tuple[int, int]], by: int, nothing: str) -> None:
        if not names:
            self.desk.say(nothing)
            return
        target = self._target
        here = (target.group, target.trial) if target is not None and not self._gone else None
        at = (names.index(here) + by) % len(names) if here in names else 0
        self.look_at(self._run.step or 0, *names[at])

    def do_previous_try(self) -> None:
        """The try before."""
        self._turn_try(-1)

    def do_next_try(self) -> None:
        """The next try."""
        self._turn_try(1)

    def _turn_try(self, by: int) -> None:
        target, last = self._target, self._tries
        if target is None:
            return
        wanted = (last if target.try_ < 0 else target.try_) + by
        if not 0 <= wanted <= last:
            self.desk.say("this is the first try" if wanted < 0 else "this is the last try")
            return
        self._target = replace(target, try_=-1 if wanted == last else wanted)
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
        # The same numbers mean another trial once the step has changed, and a filter or marks of the run page may turn
        # an order to another group: what is shown here is what is meant.
        desk = self.desk
        self._settle(desk.state)
        if self._gone:
            desk.say("its step is over: nothing can be ordered for this trial; J goes to the running step", "limit")
            return None
        desk.selection.marked.clear()
        desk.selection.filter = Filter()
        for owner in (desk.orders, desk.operating):
            found = getattr(owner, f"do_{name}", None)
            if found is not None:
                return cast("Awaitable[None]", found())
        return None

    # --- asking ---

    @property
    def _feed(self) -> Feed | None:
        """The feed of the tab that is shown; None on the one that needs none."""
        target = self._target
        if self._tab == "why" or target is None:
            return None
        feed = self._feeds.get(self._tab)
        if feed is None:
            if target.try_ < 0 and self._state is not None:
                target = replace(target, try_=self._state.try_)
            feed = self._feeds[self._tab] = Feed(cast(ContentKind, self._tab), target, marks(self.desk.ascii))
        return feed

    def tick(self) -> None:
        """Ask for what is new of the tab that is shown."""
        self._settle(self._run)
        feed = self._feed
        if feed is not None:
            if feed.tried > self._tries:
                self._tries = feed.tried
            self._asker.begin(feed, lambda: self.desk.page is self and self._feeds.get(self._tab) is feed, self._ended)

    def _answered(self) -> None:
        """What was turned to meanwhile does not wait for the next tick."""
        if self.desk.page is self and self.desk.frozen is None:
            self.tick()

    def _ended(self) -> bool:
        return self._gone or (self._state is not None and self._state.phase in ("done", "held"))

    # --- tabs ---

    @property
    def text(self) -> LongText:
        """That of the tab."""
        feed = self._feed
        return self._why if feed is None else feed.text

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

    def _show(self, tab: str) -> None:
        needle = self.text.needle
        self._tab = tab
        if self.text.needle != needle:
            self.text.search(needle)
        self._changes += 1
        self.tick()

    def _pane(self, number: int) -> None:
        self._show(TABS[number][0])

    def do_pane_1(self) -> None:
        """The first tab."""
        self._pane(0)

    def do_pane_2(self) -> None:
        """The second tab."""
        self._pane(1)

    def do_pane_3(self) -> None:
        """The third tab."""
        self._pane(2)

    def do_pane_4(self) -> None:
        """The fourth tab."""
        self._pane(3)

    def do_pane_5(self) -> None:
        """The fifth tab."""
        self._pane(4)

    def do_pane_6(self) -> None:
        """The sixth tab."""
        self._pane(5)

    def do_next_pane(self) -> None:
        """The next tab."""
        self._turn_tab(1)

    def do_previous_pane(self) -> None:
        """The tab before."""
        self._turn_tab(-1)

    def _turn_tab(self, by: int) -> None:
        ids = [tab[0] for tab in TABS]
        self._pane((ids.index(self._tab) + by) % len(ids))

    def sideways(self, by: int) -> None:
        """To a neighbouring tab, unless long lines are cut."""
        if self.text.wrap:
            self._turn_tab(by)
        else:
            super().sideways(by)

    # --- tokens ---

    def moved(self) -> None:
        """A call whose tokens are being read stays."""
        feed = self._feed
        if feed is not None and feed.kind == "tokens":
            feed.stay()

    def do_last(self) -> None:
        """To the end; of a text that grows, on with it; of tokens, to the newest call."""
        feed = self._feed
        if feed is not None and feed.kind == "tokens":
            feed.turn_newest()
        self.text.to_last()
        if feed is None or not feed.grows:
            self.text.stand()

    def do_follow(self) -> None:
        """Follow the end, or stand still; of tokens, follow the newest call."""
        feed = self._feed
        if feed is not None and feed.kind == "tokens":
            feed.turn_newest()
            self.desk.say("the newest call is followed")
        elif feed is not None and feed.grows:
            self.text.toggle_follow()

    def do_previous_call(self) -> None:
        """Tokens of the call before."""
        self._turn_call(-1)

    def do_next_call(self) -> None:
        """Tokens of the next call."""
        self._turn_call(1)

    def _turn_call(self, by: int) -> None:
        feed = self._feed
        if feed is None or feed.kind != "tokens":
            self._show("tokens")
        elif feed.turn_call(by):
            self.tick()
        else:
            self.desk.say("there is no such call" if feed.call >= 0 else "no call was captured yet")

    def do_token_table(self) -> None:
        """Tokens as a table, or as text."""
        feed = self._feed
        if feed is None or feed.kind != "tokens":
            self._show("tokens")
        else:
            feed.turn_table()

    # --- painting ---

    def fingerprint(self) -> tuple[object, ...]:
        """Tab, answers, place in the text."""
        return self._tab, self._changes, self._asker.answers, self.text.version

    def paint(self, scene: Scene, region: Box) -> Painted:
        """Head and tabs, the text beneath; on wide screens what is known of the trial beside it."""
        self._settle(scene.state)
        aside = SIDE if region.width >= SIDE_FROM and self._tab != "why" else 0
        cells, rows = region.width - aside, region.height - HEAD_ROWS
        feed = self._feed
        if feed is None:
            self._why.replace(detail.why(scene, self._subject, self._entries(), cells))
            lines: list[Line] = [fit(one, cells) for one in self._why.window(cells, rows)]
        else:
            lines = trial_tabs.body(feed, cells, rows, self._earlier(), running=not self._ended())
        head = trial_tabs.title(scene, self._subject, self.position(feed is not None and feed.grows), region.width)
        heading = [
            head,
            *detail.head(scene, self._subject, region.width),
            trial_tabs.tab_row(self._tab, region.width, scene.key),
        ]
        boxes = {
            "trial_head": Box(region.x, region.y, region.width, HEAD_ROWS),
            "trial_body": Box(region.x, region.y + HEAD_ROWS, cells, rows),
        }
        painted = {"trial_head": heading, "trial_body": lines}
        if aside:
            boxes["trial_side"] = Box(region.x + cells, region.y + HEAD_ROWS, aside, rows)
            painted["trial_side"] = trial_tabs.side(scene, self._subject, self._entries(), aside, rows)
        self.shown = (head, *lines)
        return Painted(boxes, painted)

    def _earlier(self) -> str:
        target = self._target
        if target is None or target.try_ < 0:
            return ""
        return f"this is try {target.try_ + 1} of {self._tries + 1}: ) goes on to the next"

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
