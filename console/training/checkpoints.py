"""Checkpoints that an operator asks for, put where the weights are whole: never while a step trains.

Everything here runs on the training thread's loop, beside the cookbook's.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from console.errors import QuarterdeckError
from console.journal import events as ev

if TYPE_CHECKING:
    from console.training.runtime import Runtime


_UNTIL_SAVED = "until there is a checkpoint, a resume rolls out anew what was trained"


class Saved(msgspec.Struct, kw_only=True, frozen=True):
    """A checkpoint. `steps`: steps in it, and where a resume goes on; `seconds`: None when it was there already."""

    name: str
    steps: int
    seconds: float | None = None


class SaveRequests:
    """Carries out requests for a checkpoint, one after the other.

    Attributes:
        lock: held by every full save, and by the cookbook at the moment its training begins. So a save is finished
            before the weights change, and two saves never mix.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.lock = asyncio.Lock()
        self._whole = asyncio.Event()
        self._under_way: set[asyncio.Task[Saved]] = set()
        self._tried = (-1, 0)

    def weights_are(self, whole: bool) -> None:
        """Whether the weights are those of a finished step now. Requests wait until they are."""
        if whole:
            self._whole.set()
        else:
            self._whole.clear()

    async def save(self) -> Saved:
        """Save at once during a rollout, else when the step has ended. A step that is saved is not saved again.

        Raises:
            QuarterdeckError: the gateway or the disk refused it; the run goes on.
        """
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            while True:
                await self._whole.wait()
                async with self.lock:
                    if self._whole.is_set():
                        return await self._save()
        finally:
            self._under_way.discard(task)

    async def beginning(self) -> None:
        """Save what the run begins with. It goes on without: a resume before the first checkpoint costs more then."""
        runtime = self._runtime
        try:
            async with self.lock:
                if self._whole.is_set() and runtime.last_saved != runtime.steps_done:
                    await runtime.checkpoints.save_beginning(runtime.steps_done)
        except Exception as error:  # of the SDK, the cookbook or the disk: none of them ends the run
            said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            text = f"the weights that the run begins with were not saved ({said}); {_UNTIL_SAVED}"
            runtime.emit(ev.Note(text=text, level="warning"))

    async def settle(self) -> None:
        """The loop has left its last step: carry out what was asked for."""
        self.weights_are(whole=True)
        if self._under_way:
            await asyncio.wait(set(self._under_way))

    async def _save(self) -> Saved:
        runtime = self._runtime
        steps = runtime.steps_done
        if runtime.last_saved == steps:
            return Saved(name=runtime.last_saved_name, steps=steps)
        began = time.monotonic()
        try:
            name = await runtime.checkpoints.save_on_request(steps, self._name(steps))
        except Exception as error:  # of the SDK, the cookbook or the disk: none of them ends the run
            said = f"{type(error).__name__}: {error}"
            raise QuarterdeckError(f"the checkpoint was not saved, the run goes on: {said}") from error
        finally:
            if runtime.stage == "rollout":
                runtime.emit(ev.RunPhase(phase="rollout"))
        return Saved(name=name, steps=steps, seconds=time.monotonic() - began)

    def _name(self, steps: int) -> str:
        """Apart from the cookbook's names: it deletes its rolling checkpoints. A failed save may have used its name."""
        tried = self._tried[1] + 1 if self._tried[0] == steps else 1
        self._tried = (steps, tried)
        return f"{steps:06d}-request" + (f"-{tried}" if tried > 1 else "")
