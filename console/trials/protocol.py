"""What the engine and a runner process say to each other: one JSON object a line over a socket pair.

The engine sends `StartTrial`, `CancelTrial` and `Shutdown`; the runner answers with `RunnerReady`, `TrialProgress`,
`TrialReport`, `RunnerSpent` and `RunnerLog`. Secrets (the route's token) travel only here, never on a command line.
"""

from __future__ import annotations

from typing import Any

import msgspec


class StartTrial(msgspec.Struct, tag="start", frozen=True, kw_only=True):
    """Run one trial.

    Attributes:
        key: the engine's name for this try, unique in the run, e.g. `s12.g3.t5.y0`.
        config: a Harbor `TrialConfig` as JSON, complete, placeholders substituted.
    """

    key: str
    config: dict[str, Any]


class CancelTrial(msgspec.Struct, tag="cancel", frozen=True, kw_only=True):
    """Cancel a trial; its report follows once its sandbox is gone. Unknown keys are ignored."""

    key: str


class Shutdown(msgspec.Struct, tag="shutdown", frozen=True, kw_only=True):
    """Cancel whatever runs, remove the sandboxes, exit."""


class RunnerReady(msgspec.Struct, tag="ready", frozen=True, kw_only=True):
    """The runner has imported Harbor and takes trials.

    Attributes:
        pid: its process id.
        versions: package name to installed version (harbor, e2b, ...).
    """

    pid: int
    versions: dict[str, str]


class RunnerSpent(msgspec.Struct, tag="spent", frozen=True, kw_only=True):
    """The runner cannot run trials any more. `lacks`: memory, threads or file descriptors."""

    lacks: str


class TrialProgress(msgspec.Struct, tag="progress", frozen=True, kw_only=True):
    """A trial entered a phase: create, environment, setup, agent, verify, teardown (from Harbor's hooks)."""

    key: str
    phase: str


class TrialReport(msgspec.Struct, tag="report", frozen=True, kw_only=True):
    """How a try ended. Sent exactly once for each `StartTrial`, after its sandbox is gone.

    Attributes:
        key: as in `StartTrial`.
        trial_name: Harbor's name; `trial_dir`: where Harbor wrote its files, None when it never got so far.
        exception_type: bare class name as Harbor records it, None for a clean end. `CancelledError` when cancelled;
            `RunnerLostError` when the runner process died, `RunnerShortageError` when it had nothing left to run the
            trial with, whatever the trial itself named; `TrialCreateError` when Harbor refused the configuration;
            the verifier's when it failed after an agent's timeout, which Harbor would record alone.
        exception_message: bounded to 2,000 characters, its beginning and its end.
        exception_phase: the phase in which it happened, where known.
        rewards: the verifier's rewards as it wrote them, None without a verifier result. Values are numbers;
            non-finite ones arrive as the strings "nan", "inf", "-inf".
        verifier_output: the last 8,000 characters of the verifier's stdout and stderr, "" when there is none.
        seconds: phase name to seconds spent (create, environment, setup, agent, verify, teardown, total).
        agent: what the agent itself reports: `turns`, `input_tokens`, `output_tokens`, and anything in its metadata.
        agent_timeout: the agent time limit that applied, in seconds, None for none.
        sandbox_left: names of sandboxes whose removal failed; empty when all is clean.
    """

    key: str
    trial_name: str | None = None
    trial_dir: str | None = None
    exception_type: str | None = None
    exception_message: str = ""
    exception_phase: str | None = None
    rewards: dict[str, float | str | bool | None] | None = None
    verifier_output: str = ""
    seconds: dict[str, float] = {}
    agent: dict[str, Any] = {}
    agent_timeout: float | None = None
    sandbox_left: list[str] = []


class RunnerLog(msgspec.Struct, tag="log", frozen=True, kw_only=True):
    """A warning or error of the runner itself, for the engine's log."""

    level: str
    text: str


type ToRunner = StartTrial | CancelTrial | Shutdown
type FromRunner = RunnerReady | RunnerSpent | TrialProgress | TrialReport | RunnerLog
