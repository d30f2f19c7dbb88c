"""What keys do in a replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

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

    def do_end(self) -> None:
        """To the end."""
        self._source.jump(to_end=True)
