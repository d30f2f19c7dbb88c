"""What all trials of a run share, and the two errors with which a trial ends the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from console.capture.base import CaptureGateway
from console.capture.captured import CapturedTrial
from console.errors import QuarterdeckError
from console.journal import events as ev
from console.outcomes.classes import STOP_EXIT_CODES, TrialEvidence, Verdict
from console.training.slots import Dispatch
from console.trials.protocol import StartTrial, TrialProgress, TrialReport

EVIDENCE_TEXT = 300


class TrialLauncher(Protocol):
    """Runs a trial to its report; cancelling the call cancels the trial and waits until its sandbox is gone."""

    async def run(self, spec: StartTrial, on_progress: Callable[[TrialProgress], None]) -> TrialReport: ...


class FailurePolicy(msgspec.Struct, kw_only=True):
    """What a non-scored outcome does. `max_tries` and `hold_timeout` may change while the run lasts.

    Attributes:
        on_failure: stop, hold or retry; max_tries: executions of one trial, whoever grants them; hold_timeout: seconds.
    """

    on_failure: str = "stop"
    max_tries: int = 3
    hold_timeout: float = 600.0


class Totals(msgspec.Struct, kw_only=True):
    """Counters of the run over all its engines, for the token budget and the reports.

    Attributes:
        calls, failed: model calls that were answered, and that were not; prompt_tokens, sampled_tokens: of the former.
        trained_tokens: sampled tokens that batches were given; excluded: answered calls that they were not, by reason.
        sandboxes: that live; sandboxes_left: that could not be removed.
    """

    calls: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    trained_tokens: int = 0
    excluded: dict[str, int] = {}
    sandboxes: int = 0
    sandboxes_left: list[str] = []

    def called(self, calls: int, prompt_tokens: int, sampled_tokens: int) -> None:
        """So many calls were answered."""
        self.calls += calls
        self.prompt_tokens += prompt_tokens
        self.sampled_tokens += sampled_tokens

    def trained(self, captured: CapturedTrial) -> None:
        """A batch gets this trial."""
        self.trained_tokens += sum(len(turn.tokens_T) for segment in captured.segments for turn in segment.turns)
        for reason, count in captured.excluded.items():
            self.excluded[reason] = self.excluded.get(reason, 0) + count


class TrialContext(msgspec.Struct, kw_only=True):
    """What all trials of a run share.

    Attributes:
        trial_config: (task, proxy_url, proxy_api_key, key) -> Harbor trial config as JSON.
        classify: evidence -> verdict; emit: appends an event; dispatch: when trials begin.
    """

    emit: Callable[[ev.Event], None]
    launcher: TrialLauncher
    capture: CaptureGateway
    trial_config: Callable[[Path, str, str, str], dict[str, Any]]
    classify: Callable[[TrialEvidence], Verdict]
    policy: FailurePolicy
    totals: Totals
    dispatch: Dispatch
    clock: Callable[[], float] = time.time


class PolicyStopError(QuarterdeckError):
    """A trial's outcome ends the run by policy. `exit_code` follows its class."""

    def __init__(self, where: str, task: str, verdict: Verdict, exception: str | None) -> None:
        parts = [f"{where} ({task}): {verdict.outcome.value.replace('_', ' ')}"]
        named = exception is not None and verdict.evidence.startswith(exception)  # it is said once
        parts += [x for x in (verdict.cause, None if named else exception) if x]
        super().__init__(" ".join(parts) + (f": {verdict.evidence}" if verdict.evidence else ""))
        self.exit_code = STOP_EXIT_CODES.get(verdict.outcome, 4)
        self.verdict = verdict


class TrialBrokenError(QuarterdeckError):
    """The engine itself failed at a trial, so it has no verdict. `exit_code` follows the error, 7 for any other."""

    def __init__(self, where: str, task: str, error: Exception) -> None:
        super().__init__(f"{where} ({task}): {type(error).__name__}: {error}")
        if isinstance(error, QuarterdeckError):
            self.exit_code = error.exit_code
