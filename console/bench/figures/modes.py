"""Accounting modes: by name, which trials count, and as what. Each figure is printed with its mode's rule.

The modes are data. Those by class take an outcome class to a `Treat`; those of other tools ask for the exception's type
alone, as these tools do, so that their figures can be reproduced. Sources: the query `get_agent_scores_v4` of the
Terminal-Bench leaderboard; Harbor's mean and its table of error policies up to 0.25 and as of 0.26; the accounting of
hand-made Terminal-Bench tallies.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from console.bench.rows import Row
from console.errors import UsageError
from console.outcomes.classes import SCORED, OutcomeClass

_C = OutcomeClass


class Treat(StrEnum):
    """What a mode makes of a trial: the verifier's value, out without one; the value, 0 without one; 1 for a value
    above 0, else 0; always 0; left out; left out as one of which nobody can say what it would have been."""

    VALUE = "value"
    VALUE_OR_ZERO = "value or 0"
    PASS = "1 if above 0"
    ZERO = "0"
    OUT = "left out"
    UNDECIDED = "undecided"


class Mode(msgspec.Struct, frozen=True, kw_only=True):
    """One accounting mode.

    Attributes:
        name; rule: one sentence; per: "attempt" or "task", what the value averages over.
        classes: class to what becomes of it; what is not named is left out.
        error: for a trial with an exception, before its class is asked, unless it is undecided; None: no difference.
        timeout_without_reward: for a trial at whose deadline no reward was left, whatever the missing reward is called.
        kept, dropped: for modes by exception: types (of the trial itself for `kept`, of its steps too for `dropped`)
            that alone are taken, or that are left out. A trial without a readable result is left out.
        remark: what else a reader must know of it.
    """

    name: str
    rule: str
    per: str = "attempt"
    classes: dict[OutcomeClass, Treat] = {}
    error: Treat | None = None
    timeout_without_reward: Treat | None = None
    by_exception: Treat | None = None
    kept: frozenset[str] | None = None
    dropped: frozenset[str] = frozenset()
    remark: str = ""


_UNSURE = {_C.AMBIGUOUS: Treat.UNDECIDED, _C.UNREADABLE: Treat.UNDECIDED}
_LEADERBOARD_TYPES = frozenset(
    {"AgentTimeoutError", "VerifierTimeoutError", "PermissionError", "RewardFileNotFoundError"}
)
_INVALID_NAMES = (
    "EnvironmentStartTimeoutError SandboxBuildFailedError AgentSetupTimeoutError HealthcheckError "
    "SandboxLikelyOutOfMemoryError MemoryLimitExceededError SSHAccessError GKEExecStreamClosedError "
    "GKEPodNotFoundError RuntimeRequestError AddTestsDirError DownloadVerifierDirError ApiError ApiRateLimitError "
    "ApiInternalServerError ApiOverloadedError ApiConnectionClosedError ApiResponseStalledError UnknownApiError "
    "NetworkConnectionError ApiConnectionError ApiUsageLimitError RateLimitError InternalServerError "
    "ServiceUnavailableError APIConnectionError APIError Timeout UnsupportedModelParametersError BadRequestError "
    "UnprocessableEntityError UnsupportedParamsError APIResponseValidationError BudgetExceededError "
    "VerifierTimeoutError RewardFileNotFoundError RewardFileEmptyError VerifierOutputParseError "
    "AgentAuthenticationError ModelNotFoundError ApiProviderResourceNotFoundError AuthenticationError "
    "PermissionDeniedError NotFoundError ServiceOperationsUnsupportedError VercelScopeError DspyImportError "
    "MissingExtraError RegradeError CancelledError"
)
_INVALID_SINCE_026 = frozenset(_INVALID_NAMES.split())
"""Types whose reward Harbor 0.26 does not count; any other type's reward it does, unknown ones included."""

_ALL = (
    Mode(
        name="infra-excluded",
        rule="infrastructure, configuration, cancelled trials and unbelievable rewards are left out; everything else "
        "counts with the verifier's value, the agent's own failures and timeouts without one as 0",
        classes={
            **dict.fromkeys(SCORED, Treat.VALUE),
            _C.AGENT_FAILURE: Treat.VALUE_OR_ZERO,
            **_UNSURE,
        },
        timeout_without_reward=Treat.ZERO,
    ),
    Mode(
        name="infra-excluded-strict",
        rule="the same trials, but timeouts, limits and the agent's own failures count as 0 whatever the verifier said",
        classes={
            _C.COMPLETED: Treat.VALUE,
            **dict.fromkeys((_C.AGENT_TIMEOUT, _C.CONTEXT_OVERFLOW, _C.OUTPUT_LIMIT, _C.AGENT_FAILURE), Treat.ZERO),
            **_UNSURE,
        },
        timeout_without_reward=Treat.ZERO,
    ),
    Mode(
        name="clean-only",
        rule="only trials that ended by themselves and were graded; timeouts and failures of any kind are left out",
        classes={_C.COMPLETED: Treat.VALUE, **_UNSURE},
        remark="leaving timeouts out flatters an agent that is slow",
    ),
    Mode(
        name="error-aware",
        rule="1 for a trial without any exception and with a reward above 0, else 0, infrastructure failures included; "
        "cancelled and unreadable trials are left out",
        classes={
            **dict.fromkeys(_C, Treat.PASS),
            _C.CANCELLED: Treat.UNDECIDED,
            **_UNSURE,
        },
        error=Treat.ZERO,
        remark="a failure of the infrastructure counts against the agent",
    ),
    Mode(
        name="leaderboard",
        rule="Terminal-Bench's leaderboard (query v4): trials without exception or with AgentTimeoutError, "
        "VerifierTimeoutError, PermissionError or RewardFileNotFoundError count with the verifier's value, 0 without "
        "one; the mean of the tasks' means",
        per="task",
        by_exception=Treat.VALUE_OR_ZERO,
        kept=_LEADERBOARD_TYPES,
        remark="the leaderboard lists only runs that have every task of the dataset and score above 1 %",
    ),
    Mode(
        name="raw-old",
        rule="the mean that Harbor up to 0.25 prints: every trial with a result counts, 0 without a reward",
        by_exception=Treat.VALUE_OR_ZERO,
        remark="infrastructure failures count as 0; not comparable with the mean of Harbor 0.26",
    ),
    Mode(
        name="raw-new",
        rule="the mean that Harbor 0.26 prints: trials with a reward count, unless their exception's type "
        "makes them invalid",
        by_exception=Treat.VALUE,
        dropped=_INVALID_SINCE_026,
        remark="a wrong key or an unknown exception with a reward counts as the agent's; not comparable with the mean "
        "of Harbor up to 0.25",
    ),
    Mode(
        name="training",
        rule="what training takes: completed, agent_timeout, context_overflow and output_limit, with a reward "
        "that can be believed",
        classes={**dict.fromkeys(SCORED, Treat.VALUE), **_UNSURE},
    ),
)
MODES: dict[str, Mode] = {mode.name: mode for mode in _ALL}
DEFAULT = "infra-excluded"


def mode(name: str) -> Mode:
    """The mode of that name. Raises `UsageError` for another."""
    if name not in MODES:
        raise UsageError(f"unknown mode {name!r}: use one of {', '.join(MODES)}")
    return MODES[name]


def treat(mode: Mode, row: Row) -> Treat:
    """What the mode makes of a trial."""
    if mode.by_exception is not None:
        if row.outcome is _C.UNREADABLE:
            return Treat.UNDECIDED
        kept = mode.kept is None or not row.error or row.error in mode.kept
        return mode.by_exception if row.recorded and kept and not mode.dropped.intersection(row.errors) else Treat.OUT
    found = mode.classes.get(row.outcome, Treat.OUT)
    if mode.error is not None and row.errors and (found is not Treat.UNDECIDED or row.outcome is _C.AMBIGUOUS):
        return mode.error  # an exception decides it, whatever the cause was
    if mode.timeout_without_reward is not None and _C.BAD_REWARD is row.outcome and _unrewarded_timeout(row):
        return mode.timeout_without_reward
    return found


def decide(mode: Mode, row: Row) -> tuple[float | None, str]:
    """The trial's score and "", or None and the class and cause under which it is left out."""
    match treat(mode, row):
        case Treat.VALUE if row.reward is not None:
            return row.reward, ""
        case Treat.VALUE_OR_ZERO:
            return row.reward or 0.0, ""
        case Treat.PASS:
            return float((row.reward or 0.0) > 0), ""
        case Treat.ZERO:
            return 0.0, ""
    return None, row.kind


def told_by_class(outcome: OutcomeClass) -> str:
    """What the modes that go by class make of trials of a class, in one line that names each of them."""
    named: dict[Treat, list[str]] = {}
    for mode in _ALL:
        if mode.by_exception is None:
            named.setdefault(mode.classes.get(outcome, Treat.OUT) if mode.error is None else mode.error, []).append(
                mode.name
            )
    return "; ".join(f"{_TOLD[treat]} by {', '.join(names)}" for treat, names in named.items())


_TOLD = {
    Treat.VALUE: "counted with that reward, left out without one,",
    Treat.VALUE_OR_ZERO: "counted with that reward, as 0 without one,",
    Treat.PASS: "counted as 1 above 0, else as 0,",
    Treat.ZERO: "counted as 0",
    Treat.OUT: "left out",
    Treat.UNDECIDED: "left out as undecided",
}


class Count(msgspec.Struct):
    """A mode's sums over attempts. `scores`: task to the scores of its attempts; `excluded`: class/cause to attempts
    that are left out; `undecided`: those of them that might have been anything, (class/cause, task) to their number."""

    scores: dict[str, list[float]] = {}
    excluded: dict[str, int] = {}
    undecided: dict[tuple[str, str], int] = {}


def count(mode: Mode, rows: Iterable[Row]) -> Count:
    """What the mode counts of the chosen tries."""
    found = Count()
    for row in rows:
        score, why = decide(mode, row)
        if score is not None:
            found.scores.setdefault(row.task, []).append(score)
            continue
        found.excluded[why] = found.excluded.get(why, 0) + 1
        if treat(mode, row) is Treat.UNDECIDED:
            key = why, row.task
            found.undecided[key] = found.undecided.get(key, 0) + 1
    return found


def _unrewarded_timeout(row: Row) -> bool:
    return row.timed_out and (row.cause == "missing" or row.reward is None)
