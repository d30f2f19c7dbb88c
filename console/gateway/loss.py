"""Telling a lost gateway from other failures of the training loop."""

from __future__ import annotations

_SAID = ("unknown session", "unknown model", "lease expired", "unknown or expired", "connection refused")


def is_gateway_loss(error: BaseException) -> bool:
    """Whether the SDK's error means that the gateway is gone, or has forgotten the session or the model."""
    import tinker

    if isinstance(error, tinker.APIConnectionError | tinker.InternalServerError | tinker.NotFoundError):
        return True
    text = str(error).lower()
    return isinstance(error, tinker.TinkerError) and any(said in text for said in _SAID)
