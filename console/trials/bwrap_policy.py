"""What Harbor must know about the sandbox's own exceptions; imports no Harbor."""

from __future__ import annotations

from console.trials.sandbox import EnvironmentStartError, SandboxLostError


def error_policy() -> dict[str, dict[str, bool]]:
    """Entries for a trial's `override_error_policy`: Harbor would grade exception names that it does not know."""
    never_scored = {"should_retry": True, "should_grade": False, "has_valid_reward": False}
    return {error.__name__: dict(never_scored) for error in (SandboxLostError, EnvironmentStartError)}
