"""What keys do in a replay, and in a look back at a live run."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from console.state.sanitize import sanitize

if TYPE_CHECKING:
    from console.tui.desk import Desk
    from console.tui.replay import ReplaySource


class Replaying:
    """Handlers of the replay's actions."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @property
    def _source(self) -> ReplaySource:
        return cast("ReplaySource", self._desk.source)  # the desk lets replay actions through in a replay only

    def do_play(self) -> None:
        """Play or pause."""
        self._source.toggle()

    def do_previous_event(self) -> None:
        """One event back."""
        self._source.step_event(forward=False)

    def do_next_event(self) -> None:
        """One event on."""
        self._source.step_event(forward=True)

    def do_previous_step(self) -> None:
        """To the training step before."""
        self._source.step_training(forward=False)

    def do_next_step(self) -> None:
        """To the next training step."""
        self._source.step_training(forward=True)

    def do_slower(self) -> None:
        """Half the speed."""
        self._source.change_speed(faster=False)

    def do_faster(self) -> None:
        """Double the speed."""
        self._source.change_speed(faster=True)

    def do_start(self) -> None:
        """To the start."""
        self._source.jump(to_end=False)

    async def do_end(self) -> None:
        """To the end; from the end of a look back, back to the live run."""
        source = self._source
        if source.at_end and source.live is not None:
            from console.tui.rewind import come_back

            await come_back(self._desk, source)
        else:
            source.jump(to_end=True)
            self._desk.shell.repaint()

    async def do_goto(self) -> None:
        """To a time, step or event that is typed."""
        from console.tui.goto import HINT

        text = await self._desk.shell.prompt("go to", hint=HINT)
        if text is not None and text.strip():
            self._source.goto(text)
            self._desk.shell.repaint()

    def do_next_alarm(self) -> None:
        """To where the next alarm opens."""
        from console.tui.goto import stamp

        alarm = self._source.next_alarm()
        if alarm is not None:
            text = sanitize(alarm.text or alarm.key, limit=160)
            self._desk.say(f"{stamp(alarm.ts)}: {text}", "infra" if alarm.level == "critical" else "limit")
        elif not self._source.marked:
            self._desk.say("the recording is still being read for alarms: try again in a moment", "limit")
        else:
            self._desk.say("no alarm opens after this")

    def do_scrub(self) -> None:
        """Look for a moment along the timeline."""
        self._desk.show("scrub")

    async def do_rewind(self) -> None:
        """From a live run to its recording up to now, and back."""
        from console.tui.rewind import come_back, look_back  # needs what a live console has no use for

        source = self._desk.source
        if source.mode == "live":
            await look_back(self._desk)
        elif self._source.live is not None:
            await come_back(self._desk, self._source)
        else:
            self._desk.say("this is a recording: there is no live run to come back to", "limit")
