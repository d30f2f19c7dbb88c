"""A stage for trials and groups: the real ones, with a launcher and a capture gateway that do as they are told."""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from console.capture.captured import CapturedTrial, Segment, Turn
from console.journal import events as ev
from console.outcomes.classes import CallEvidence
from console.outcomes.rules import classify
from console.state.reduce import RunView, apply
from console.training.dataset import HarborGroup
from console.training.groups import GroupRun
from console.training.slots import Dispatch
from console.training.trial_context import FailurePolicy, Totals, TrialContext
from console.trials.protocol import TrialProgress, TrialReport

GOOD: dict[str, Any] = {"rewards": {"reward": 1.0}}
LOST: dict[str, Any] = {"exception_type": "RunnerLostError", "exception_message": "gone", "exception_phase": "agent"}
BUG: dict[str, Any] = {"exception_type": "ZeroDivisionError", "exception_message": "bug", "exception_phase": "agent"}


class Route:
    """A route that remembers whether it was sealed."""

    url, api_key = "http://127.0.0.1:1", "token"

    def __init__(self, key: str, calls: int) -> None:
        self.key, self.started, self.sealed, self._calls = key, False, False, calls

    def start(self) -> None:
        self.started = True

    def stop(self) -> None:
        pass

    async def seal(self) -> CapturedTrial:
        await asyncio.sleep(0)
        self.sealed = True
        turn = Turn(
            node="n0x00000000", prompt_new=array("i", [1]), tokens_T=array("i", [hash(self.key) % 97]),
            logprobs_T=array("f", [-1.0]),
        )  # fmt: skip
        return CapturedTrial(
            segments=[Segment(turns=[turn]) for _ in range(self._calls)],
            evidence=CallEvidence(calls=self._calls, sampled_tokens=self._calls),
            prompt_tokens=self._calls,
        )


class Stage:
    """Launcher, capture gateway and journal of a group under test.

    Attributes:
        script: key to what the try reports; keys that are missing report success. `gate`: keys wait for it.
    """

    def __init__(self) -> None:
        self.events: list[ev.Event] = []
        self.view = RunView()
        self.routes: list[Route] = []
        self.script: dict[str, Any] = {}
        self.gate = asyncio.Event()
        self.opening = asyncio.Event()
        self.opening.set()
        self.running: set[str] = set()
        self.most = 0
        self.inflight = 0
        self.emit(ev.StepStarted(step=0, groups=1, policy_version=0))

    def emit(self, event: ev.Event) -> None:
        event.seq, event.ts = len(self.events) + 1, float(len(self.events) + 1)
        self.events.append(event)
        apply(self.view, event)

    async def open_route(self, key: str, sampler: Any, on_call: Any, *, policy_version: int | None) -> Route:
        await self.opening.wait()
        if isinstance(self.script.get(key), OSError):
            raise self.script[key]
        self.routes.append(Route(key, 0 if self.script.get(key) == "silent" else 1))
        return self.routes[-1]

    async def run(self, spec: Any, on_progress: Callable[[TrialProgress], None]) -> TrialReport:
        self.running.add(spec.key)
        self.most = max(self.most, len(self.running))
        try:
            on_progress(TrialProgress(key=spec.key, phase="environment"))
            on_progress(TrialProgress(key=spec.key, phase="agent"))
            await self.gate.wait()
            told = self.script.get(spec.key, GOOD)
            if isinstance(told, Exception):
                raise told
            return TrialReport(key=spec.key, **(GOOD if told == "silent" else told))
        finally:
            # As the real one: it ends when the sandbox is gone, however often it is cancelled.
            for _ in range(3):
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            self.running.discard(spec.key)

    def group(self, size: int = 3, parallel: int = 3, **policy: Any) -> GroupRun:
        context = self.context(FailurePolicy(**policy), Dispatch(parallel))
        return GroupRun(context, HarborGroup(Path("task"), 0, 0, size), None)

    def context(self, policy: FailurePolicy, dispatch: Dispatch) -> TrialContext:
        self.policy, self.dispatch = policy, dispatch
        return TrialContext(
            emit=self.emit, launcher=self, capture=self, trial_config=lambda *a: {}, classify=classify,
            policy=policy, totals=Totals(), dispatch=dispatch,
        )  # fmt: skip

    def finished(self) -> Counter[tuple[int, int]]:
        """How many ends each (trial, try) has."""
        return Counter((e.trial, e.try_) for e in self.events if isinstance(e, ev.TrialFinished))

    def outcomes(self) -> dict[int, str]:
        """Trial to the outcome of its last try, as the journal tells it."""
        return {e.trial: e.outcome for e in self.events if isinstance(e, ev.TrialFinished)}

    def check(self, group: GroupRun) -> None:
        """What holds of every group that has ended."""
        assert set(self.finished().values()) == {1}
        assert set(self.outcomes()) == set(range(len(group.trials)))
        assert all(route.sealed for route in self.routes)
        assert self.running == set()
        assert [type(e) for e in self.events].count(ev.GroupFinished) == 1
        assert isinstance(self.events[-1], ev.GroupFinished)
        assert [t.phase for t in self.view.state.groups[0].trials] == ["done"] * len(group.trials)
        told = Counter(trial.result.verdict.outcome.value for trial in group.trials if trial.result is not None)
        assert told == Counter(self.outcomes().values())
