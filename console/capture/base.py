"""What the recipe needs of a capture gateway. An implementation can be replaced whole.

A *route* is one trial's address: a URL and a fresh token. It is opened before the trial starts and sealed when it ends;
sealing returns what was captured as sequences for training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from console.capture.captured import CapturedTrial
from console.capture.figures import CaptureFigures


class CallReport(msgspec.Struct, kw_only=True, frozen=True):
    """One ended model call, for progress and totals.

    `status`: stop, length, or the kind of failure: backend, overflow, client, request, budget, no_logprobs, capture.
    """

    status: str
    ok: bool
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    seconds: float = 0.0


class Route(Protocol):
    """One trial's address on the capture gateway."""

    @property
    def url(self) -> str:
        """What goes into `{proxy_url}`."""

    @property
    def api_key(self) -> str:
        """What goes into `{proxy_api_key}`; a secret."""

    def start(self) -> None:
        """The trial's agent runs: calls are taken from now on; those that come before are told to wait."""

    def stop(self) -> None:
        """Take no more calls and cancel those under way: the agent's time is over, whatever runs in its sandbox."""

    async def seal(self) -> CapturedTrial:
        """Close the route; calls under way are cancelled and not captured. Idempotent, and never half done."""


class CaptureGateway(Protocol):
    """Opens routes. Lives on the engine's main loop."""

    @property
    def inflight(self) -> int:
        """Model calls under way."""

    @property
    def figures(self) -> CaptureFigures:
        """Totals since the start."""

    def begin_step(self, step: int) -> None:
        """Calls from now on belong to this step."""

    async def start(self) -> None:
        """Listen. Raises `UsageError` when that is not possible."""

    async def sync(self) -> None:
        """Force what was captured so far to the disk, before a batch trains on it. Raises `CaptureError`."""

    async def open_route(
        self, key: str, sampler: Any, on_call: Callable[[CallReport], None], *, policy_version: int | None = None
    ) -> Route:
        """A route for one try.

        Args:
            key: the engine's name of the try; sampler: the policy's `tinker.SamplingClient`.
            on_call: called on the main loop when a call ends.
            policy_version: of the weights behind the sampler, None when it is not known.
        """

    async def close(self) -> None:
        """Seal what is open and release the listener."""
