"""What commands act on: the parts of the engine that they need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from console.engine.steering import Steering
from console.journal import events as ev
from console.state.reduce import RunView

if TYPE_CHECKING:
    from console.training.checkpoints import Saved


class Told(Protocol):
    """An engine of any kind, as seen by those commands that only say something about its run."""

    @property
    def ending(self) -> bool:
        """Whether the run is ending already."""

    @property
    def view(self) -> RunView:
        """The view of the journal so far."""

    def now(self) -> float:
        """The run's time, Unix seconds."""

    def emit(self, event: ev.Event) -> None:
        """Append an event."""


class Operable(Told, Protocol):
    """The engine of a training run, as seen by the commands."""

    @property
    def steering(self) -> Steering:
        """What an operator changes while the run lasts."""

    def stop_now(self, by: str, *, why: str = "", soon: bool = False) -> None:
        """End the run; its trials are cancelled.

        `why`: as the operator said; `soon`: within seconds, whatever becomes of the sandboxes.
        """

    def checkpoint_plan(self) -> tuple[bool, str]:
        """Whether a checkpoint can be saved, and when it would be, or why not."""

    async def save_checkpoint(self) -> Saved:
        """Save one, when the weights allow it. Raises `QuarterdeckError` when it was not saved."""
