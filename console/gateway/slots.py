"""Waiting for a model slot: after a crash, the dead engine's session holds one until its lease ends.

The gateway then refuses a new model at once, and would take it minutes later. Creating the training client is tried
again meanwhile, on the SDK's own loop, so that neither its heartbeats nor anybody else wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from tinker.lib.public_interfaces.service_client import ServiceClient

from console.errors import GatewayLostError
from console.gateway.profiles import GatewayProfile
from console.gateway.seam import Seam
from console.state.sanitize import sanitize

REFUSAL = "no free adapter slots"
"""In the refusal of a gateway whose slots are all taken."""

MARGIN = 10.0
"""Seconds for which a slot may be held after the sweep that should free it: the model is unloaded first."""

DEFAULT_LEASE = 300.0
DEFAULT_SWEEP = 30.0

OnWait = Callable[[str, float], None]


def waiting(
    profile: GatewayProfile,
    *,
    slot_wait: float,
    on_wait: OnWait,
    last_alive: float | None = None,
    every: float = 5.0,
    margin: float = MARGIN,
) -> Seam:
    """From now on, training clients of this process wait for a slot of the gateway; `undo` of the result ends that.

    A slot is waited for until the lease of a session that was last alive at `last_alive` must have ended, and for
    `slot_wait` at most. If none is free then, or the wait is 0, creating the client raises `GatewayLostError`.

    Args:
        slot_wait: seconds, of each client's creation.
        on_wait: told once of a wait's reason and expected end (Unix seconds) when it begins, and of an empty reason and
            0 when it ends. Called on the SDK's thread.
        last_alive: when the engine before this one may last have been heard by the gateway, Unix seconds; None for now.
        every: seconds between two tries.
        margin: see `MARGIN`.
    """
    seam = Seam()
    wait = _Wait(profile, slot_wait, on_wait, last_alive, every, margin)
    for name in ("_create_lora_training_client_submit", "_create_training_client_via_load_weights_submit"):
        seam.wrap(ServiceClient, name, wait.around)
    return seam


def is_refusal(problem: BaseException) -> bool:
    """Whether the gateway says that all its slots are taken."""
    return REFUSAL in str(problem).lower()


class _Wait:
    """One wait's rules, for as many clients as are created."""

    def __init__(
        self,
        profile: GatewayProfile,
        slot_wait: float,
        on_wait: OnWait,
        last_alive: float | None,
        every: float,
        margin: float,
    ) -> None:
        self._profile, self._slot_wait, self._on_wait, self._every = profile, slot_wait, on_wait, every
        lease = DEFAULT_LEASE if profile.lease is None else profile.lease
        sweep = DEFAULT_SWEEP if profile.sweep is None else profile.sweep
        # The whole of it even if that moment has passed: its slot may be freed by the next sweep only.
        self._held = lease + sweep + margin
        self._least = sweep + margin
        self._last_alive = last_alive

    def around(self, before: Callable[..., Any]) -> Callable[..., Any]:
        """The submitting method `before`, with the wait."""

        def submit(service: Any, *args: Any, **kwargs: Any) -> Any:
            holder = service.holder  # the first use connects, and blocks: not on the SDK's own loop
            return holder.run_coroutine_threadsafe(self._create(before, service, args, kwargs))

        return submit

    async def _create(self, before: Callable[..., Any], service: Any, args: Any, kwargs: Any) -> Any:
        begun = time.time()
        alive = begun if self._last_alive is None else min(self._last_alive, begun)
        until = min(max(alive + self._held, begun + self._least), begun + self._slot_wait)
        ends = time.monotonic() + until - begun
        told = False
        try:
            while True:
                try:
                    return await before(service, *args, **kwargs)
                except Exception as problem:
                    if not is_refusal(problem):
                        raise
                    left = ends - time.monotonic()
                    if left <= 0:
                        raise GatewayLostError(self._gave_up(problem, time.time() - begun)) from None
                if not told:
                    self._on_wait(self._reason(), until)
                    told = True
                await asyncio.sleep(min(self._every, max(left, 0.05)))
        finally:
            if told:
                self._on_wait("", 0.0)

    def _reason(self) -> str:
        count = self._profile.slots
        taken = {None: "none is free", 1: "the only one is taken"}.get(count, f"all {count} are taken")
        held = ", by the engine before this one until its lease ends" if self._last_alive is not None else ""
        return f"a model slot: {taken}{held}"

    def _gave_up(self, problem: Exception, waited: float) -> str:
        said = sanitize(" ".join(str(problem).split()))[:160]
        return (
            f"no model slot of the gateway became free within {waited:.0f} s ({said}): somebody else trains there; end "
            "that, wait longer (console.slot_wait), or start the gateway with more slots (--n-adapters)"
        )
