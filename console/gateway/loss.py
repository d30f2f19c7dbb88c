"""Telling a lost gateway from other failures of the training loop."""

from __future__ import annotations

_SAID = (
    *("unknown session", "unknown model", "unknown or expired", "unknown to this gateway"),
    *("was unloaded", "lease expired", "session was finished", "connection refused", "restore from a checkpoint"),
)
"""What gateways say when they have forgotten a session or a model. A missing checkpoint is another matter."""


def is_gateway_loss(error: BaseException) -> bool:
    """Whether the SDK's error means that the gateway is gone, or has forgotten the session or the model."""
    import tinker

    if isinstance(error, tinker.APIConnectionError | tinker.InternalServerError):
        return True
    text = str(error).lower()
    return isinstance(error, tinker.TinkerError) and any(said in text for said in _SAID)
