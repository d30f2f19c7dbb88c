"""Telling a lost gateway from other failures, of the training loop and of model calls."""

from __future__ import annotations

from collections.abc import Iterator

_FORGOT = (
    *("unknown session", "unknown model", "unknown or expired", "unknown to this gateway"),
    *("was unloaded", "lease expired", "session was finished", "restore from a checkpoint"),
)
"""What gateways say when they have forgotten a session or a model. A missing checkpoint is another matter."""
_DEPTH = 8


def is_gateway_loss(error: BaseException) -> bool:
    """Whether an error of the SDK means that the gateway is gone, or has forgotten the session or the model."""
    import tinker

    for problem in _of_sdk(error):
        if isinstance(problem, tinker.APIConnectionError | tinker.InternalServerError):
            return True
        if isinstance(problem, tinker.TinkerError) and "connection refused" in str(problem).lower():
            return True
    return forgotten(error)


def forgotten(error: BaseException) -> bool:
    """Whether an error of the SDK means that the gateway answers, and knows nothing of this run any more."""
    from tinker import TinkerError
    from tinker.lib.retryable_exception import RetryableException

    for problem in _of_sdk(error):
        # The promise of an operation is unknown there. Samples are asked for again, training is not.
        if isinstance(problem, RetryableException):
            return True
        if isinstance(problem, TinkerError) and any(said in str(problem).lower() for said in _FORGOT):
            return True
    return False


def _of_sdk(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes, as far as they are the SDK's; a promise that fails is a ValueError over one of them."""
    problem: BaseException | None = error
    for _ in range(_DEPTH):
        if problem is None:
            return
        if type(problem).__module__.partition(".")[0] == "tinker":
            yield problem
        problem = problem.__cause__


def forgotten_line(text: str) -> str:
    """A sentence about a gateway that has forgotten the run. `text`: what it said."""
    return (
        "gateway lost: it knows this run's session or model no more, as after a restart of it or the end of a lease; "
        f"the same command again resumes the run ({text})"
    )
