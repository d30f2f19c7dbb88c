"""What the versions of Harbor do differently when they go on with a job. Read in their sources, 0.6 to 0.26."""

from __future__ import annotations

import importlib.metadata
import re

import msgspec

_NUMBERS = re.compile(r"\d+(?:\.\d+)*")

_LOCKED_SINCE = {
    "install_only": (0, 16),
    "user_agent": (0, 22),
    "source_trial": (0, 21),
    "artifacts": (0, 26),
    "override_error_policy": (0, 26),
}
_LOCKED = (
    "timeout_multiplier",
    "agent_timeout_multiplier",
    "verifier_timeout_multiplier",
    "agent_setup_timeout_multiplier",
    "environment_build_timeout_multiplier",
    "agent",
    "environment",
    "verifier",
)
_PLANNED_SINCE = {
    "install_only": (0, 16),
    "extra_instruction_paths": (0, 8),
    "extra_instructions": (0, 22),
    "user_agent": (0, 22),
    "override_error_policy": (0, 26),
}
_PLANNED = (
    "timeout_multiplier",
    "agent_timeout_multiplier",
    "verifier_timeout_multiplier",
    "agent_setup_timeout_multiplier",
    "environment_build_timeout_multiplier",
    "environment",
    "verifier",
    "artifacts",
)

_UNRETRIED: tuple[tuple[tuple[int, int], str], ...] = (
    (
        (0, 0),
        "AgentTimeoutError RewardFileEmptyError RewardFileNotFoundError VerifierOutputParseError VerifierTimeoutError",
    ),
    ((0, 16), "ApiUsageLimitError"),
    ((0, 19), "AgentAuthenticationError AgentSafetyRefusalError ModelNotFoundError"),
    ((0, 25), "UnsupportedModelParametersError"),
)
"""Exceptions that are not tried again by default, added over the releases."""
_UNRETRIED_026 = (
    "APIResponseValidationError AgentAuthenticationError AgentSafetyRefusalError AgentTimeoutError "
    "ApiProviderResourceNotFoundError AuthenticationError BadRequestError BudgetExceededError CancelledError "
    "ContentPolicyViolationError ContextLengthExceededError ContextWindowExceededError DspyImportError "
    "MissingExtraError ModelNotFoundError NonZeroAgentExitCodeError NotFoundError OutputLengthExceededError "
    "OutputTokenExceededError PermissionDeniedError RegradeError RewardFileEmptyError RewardFileNotFoundError "
    "ServiceOperationsUnsupportedError UnprocessableEntityError UnsupportedModelParametersError UnsupportedParamsError "
    "VercelScopeError VerifierOutputParseError VerifierTimeoutError"
)


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """How one version goes on with a job.

    Attributes:
        version: as it was named.
        rebinds: it takes the directory that it is given for the job's; else the one that config.json names, as seen
            from the working directory.
        tolerant: it passes over results that it cannot read; else it stops at the first.
        lock_schema: of the lock that it writes and expects, None when it has none.
        lock_exact: the lock's trials are compared with all they say, paths and names too.
        locked: keys of a trial that its lock holds and compares; planned: keys that every trial takes from its job.
        unretried: exceptions that it does not try again when a job does not name any; the lock holds them too, which is
            why a job whose configuration leaves them out is refused by another release.
    """

    version: str
    rebinds: bool
    tolerant: bool
    lock_schema: int | None
    lock_exact: bool
    locked: tuple[str, ...]
    planned: tuple[str, ...]
    unretried: tuple[str, ...]


def habits_of(version: str) -> Habits:
    """Of the version; one that cannot be read, or is newer than those known, is taken for the newest."""
    at = numbers(version) or (0, 26)
    return Habits(
        version=version,
        rebinds=at >= (0, 25),
        tolerant=at >= (0, 16),
        lock_schema=3 if at >= (0, 21) else 2 if at >= (0, 17) else 1 if at >= (0, 6) else None,
        lock_exact=at < (0, 8),
        unretried=_unretried(at),
        locked=_LOCKED + tuple(name for name, since in _LOCKED_SINCE.items() if at >= since),
        planned=_PLANNED + tuple(name for name, since in _PLANNED_SINCE.items() if at >= since),
    )


def _unretried(at: tuple[int, ...]) -> tuple[str, ...]:
    if at >= (0, 26):
        return tuple(sorted(_UNRETRIED_026.split()))
    return tuple(sorted(name for since, names in _UNRETRIED if at >= since for name in names.split()))


def numbers(version: str) -> tuple[int, ...]:
    """(0, 22, 1) of "0.22.1.dev2"; () when it does not begin with a number."""
    found = _NUMBERS.match(version.strip())
    return tuple(int(part) for part in found[0].split(".")[:3]) if found else ()


def installed_version() -> str:
    """Of the Harbor beside us, "" without one."""
    try:
        return importlib.metadata.version("harbor")
    except importlib.metadata.PackageNotFoundError:
        return ""


def known(version: str) -> bool:
    """Whether its source was read."""
    return (0, 6) <= numbers(version)[:2] <= (0, 26)
