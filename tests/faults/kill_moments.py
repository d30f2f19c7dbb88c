"""Kills an engine from inside, at a moment that nobody outside can hit; `kill_site` brings it there.

`QUARTERDECK_KILL` is a JSON object: `point` (see `points`, and the names below), `skip` (steps that this engine begins
and rolls out before moments count: -1 from its start, 0 from the first step that is not trained again), `count` (which
occurrence), `delay` (seconds after it), `mark` (a file that says that it happened).

Points of the engine: `before:TAG`, `after:TAG` of an event, TAG with what `points` adds to it; `call:sent`, `fb:sent`,
`optim:sent`, `optim:done`, `save:sent`, `row:before`, `row:after`. Points of the embedded gateway, which dies with its
engine or just after it: `gateway:optim`, `gateway:torn` (each file of a checkpoint that is written).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any


class Trigger:
    """Counts the moments, and kills at one of them."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._point, self._skip, self._left = spec["point"], spec.get("skip", 0), spec.get("count", 1)
        self._delay, self._mark = spec.get("delay", 0.0), spec["mark"]
        self._victims: Callable[[], list[int]] = lambda: [os.getpid()]
        self._lock = threading.Lock()

    def also(self, victims: Callable[[], list[int]]) -> None:
        """Who dies, the last one is this process."""
        self._victims = victims

    def begun(self) -> None:
        """A step begins that is not trained again."""
        self._skip -= 1

    def seen(self, point: str) -> None:
        """A moment has come."""
        with self._lock:
            if point != self._point or self._skip >= 0:
                return
            self._left -= 1
            if self._left:
                return
        if self._delay:
            threading.Thread(target=self._kill, daemon=True).start()
        else:
            self._kill()

    def _kill(self) -> None:
        time.sleep(self._delay)
        with open(self._mark, "w") as file:
            file.write(f"{self._point} {time.time()}\n")
        for pid in self._victims():
            os.kill(pid, signal.SIGKILL)


def points(event: Any) -> Iterator[str]:
    """Names of an event: its tag, and what tells one from another."""
    tag = type(event).__struct_config__.tag
    yield tag
    phase = getattr(event, "phase", "")
    if phase:
        yield f"{tag}:{phase}"
    if getattr(event, "reused", False):
        yield f"{tag}:reused"
    if getattr(event, "replayed", False) is True:
        yield f"{tag}:replayed"
    if getattr(event, "kind", "") and tag == "checkpoint.saved":
        yield f"{tag}:{event.kind}"


def engine(trigger: Trigger) -> None:
    """Watch the events, and the SDK once the training thread begins."""
    from console.engine.board import Board

    emit, start = Board.emit, threading.Thread.start
    replaying = [False]

    def watched(self: Any, event: Any) -> None:
        names = list(points(event))
        if names[0] == "step.started":
            replaying[0] = event.replayed
            if not event.replayed:
                trigger.begun()
        names += [f"{name}+replay" for name in names] if replaying[0] else []
        for name in names:
            trigger.seen(f"before:{name}")
        emit(self, event)
        for name in names:
            trigger.seen(f"after:{name}")

    def started(self: threading.Thread) -> None:
        if self.name == "cookbook":
            sdk(trigger)
        start(self)

    Board.emit = watched  # type: ignore[method-assign]
    threading.Thread.start = started  # type: ignore[method-assign]


class Future:
    """Passes a result on, and tells."""

    def __init__(self, inner: Any, told: Callable[[], None]) -> None:
        self._inner, self._told = inner, told

    async def result_async(self, *args: Any, **kwargs: Any) -> Any:
        result = await self._inner.result_async(*args, **kwargs)
        self._told()
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def sdk(trigger: Trigger) -> None:
    """Watch what the training thread asks the gateway for."""
    import tinker
    from tinker_cookbook import checkpoint_utils

    def sent(cls: type, method: str, name: str) -> None:
        original = getattr(cls, method)

        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            future = await original(*args, **kwargs)
            trigger.seen(f"{name}:sent")
            return Future(future, lambda: trigger.seen(f"{name}:done"))

        setattr(cls, method, wrapper)

    sent(tinker.TrainingClient, "forward_backward_async", "fb")
    sent(tinker.TrainingClient, "optim_step_async", "optim")
    sent(tinker.TrainingClient, "save_state_async", "save")
    sample = tinker.SamplingClient.sample

    def sampled(*args: Any, **kwargs: Any) -> Any:
        sent = sample(*args, **kwargs)
        trigger.seen("call:sent")
        return sent

    tinker.SamplingClient.sample = sampled  # type: ignore[method-assign]
    save, record = checkpoint_utils.save_checkpoint_async, checkpoint_utils.CheckpointRecord.from_dict
    saving = [0]

    async def saved(*args: Any, **kwargs: Any) -> Any:
        saving[0] += 1
        try:
            result = await save(*args, **kwargs)
        finally:
            saving[0] -= 1
        trigger.seen("row:after")
        return result

    def recorded(*args: Any, **kwargs: Any) -> Any:
        if saving[0]:
            trigger.seen("row:before")
        return record(*args, **kwargs)

    checkpoint_utils.save_checkpoint_async = saved
    checkpoint_utils.CheckpointRecord.from_dict = recorded  # type: ignore[method-assign]


def gateway(trigger: Trigger) -> None:
    """Watch what the embedded gateway does for its engine, which is its parent."""
    from console.gateway.embedded import checkpoints, trainer

    trigger.begun()
    trigger.also(lambda: [os.getppid(), os.getpid()])
    sync, step = checkpoints._sync, trainer.TrainableModel.optim_step

    def synced(path: Any) -> None:
        trigger.seen("gateway:torn")
        sync(path)

    def stepped(*args: Any, **kwargs: Any) -> Any:
        result = step(*args, **kwargs)
        trigger.seen("gateway:optim")
        return result

    checkpoints._sync = synced
    trainer.TrainableModel.optim_step = stepped  # type: ignore[method-assign]


def main() -> None:
    """Act in the process that the point is of, in no other one."""
    spec = json.loads(os.environ["QUARTERDECK_KILL"])
    of_gateway = spec["point"].startswith("gateway:")
    if "console.engine" in sys.orig_argv and not of_gateway:
        trigger = Trigger(spec)
        if spec["point"] == "started":
            trigger.begun()
            trigger.seen("started")
        engine(trigger)
    elif "console.gateway.embedded" in sys.orig_argv and of_gateway:
        gateway(Trigger(spec))
