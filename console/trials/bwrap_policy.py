"""What Harbor must know about the exceptions of sandboxes, ours and E2B's; imports no Harbor."""

from __future__ import annotations

from console.trials.sandbox import EnvironmentStartError, SandboxLostError

# The E2B SDK's, of a sandbox that is gone or cannot be reached.
_E2B = (
    *("SandboxException", "SandboxNotFoundException", "SandboxNotRunningException", "SandboxUnreachableException"),
    *("NotFoundException", "TimeoutException", "RateLimitException", "ServiceBusyException"),
)


def error_policy() -> dict[str, dict[str, bool]]:
    """Entries for a trial's `override_error_policy`: Harbor would grade exception names that it does not know."""
    never_scored = {"should_retry": True, "should_grade": False, "has_valid_reward": False}
    return {name: dict(never_scored) for name in (SandboxLostError.__name__, EnvironmentStartError.__name__, *_E2B)}
