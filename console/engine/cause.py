"""Why a run ends. The first cause wins."""

from __future__ import annotations

import re

import msgspec

from console.state.model import GatewayState, HostState, RunState
from console.state.words import span

SANDBOXES_LEFT = 8
GATEWAY_LOST = 5
SLEEP_TELLS_SECONDS = 900.0
"""A gateway that is lost so soon after a sleep is lost because of it: leases and retries take minutes."""

_OPERATION = re.compile(r"Request failed: (?P<said>.*) for self\.request_id=.*", re.DOTALL)
"""How the SDK tells that an operation failed."""
_FULL = "no space left"


class Cause(msgspec.Struct, kw_only=True, frozen=True):
    """`status`: completed, stopped or failed; `exit_code`: see the table of exit codes; `reason`: one sentence."""

    status: str
    exit_code: int
    reason: str = ""


COMPLETED = Cause(status="completed", exit_code=0)
STOPPED = Cause(status="stopped", exit_code=3, reason="stopped by the operator")


class CauseKeeper:
    """Keeps the first cause that is given."""

    def __init__(self) -> None:
        self._cause: Cause | None = None

    @property
    def cause(self) -> Cause | None:
        """The cause so far."""
        return self._cause

    def give(self, cause: Cause) -> None:
        """Name a cause; ignored when there is one already."""
        if self._cause is None:
            self._cause = cause

    def final(self, left: list[str], removing: int = 0) -> Cause:
        """The cause the run ends with. Sandboxes left behind replace the exit codes 0 and 3 only.

        Args:
            left: names of those that could not be removed; removing: how many others are still being removed.
        """
        cause = self._cause or Cause(status="failed", exit_code=7, reason="the engine ended without a cause")
        if (left or removing) and cause.exit_code in (0, 3):
            behind = f"{len(left)} sandboxes left behind: {', '.join(left[:3])}" if left else ""
            going = f"{removing} sandboxes still being removed as the engine ended" if removing else ""
            reason = "; ".join(filter(None, (behind, going)))
            return Cause(status=cause.status, exit_code=SANDBOXES_LEFT, reason=reason)
        return cause


def cause_of(error: BaseException) -> Cause:
    """The cause that an exception of the training loop stands for."""
    from console.errors import GatewayLostError, QuarterdeckError
    from console.gateway.loss import forgotten, forgotten_line, is_gateway_loss
    from console.gateway.refusals import explain

    text = one_line(_said(error))
    if isinstance(error, QuarterdeckError):
        status = "stopped" if error.exit_code == 4 else "failed"
        return Cause(status=status, exit_code=error.exit_code, reason=_with_remedy(one_line(str(error))))
    if (mistake := explain(error)) is not None:
        return Cause(status="failed", exit_code=mistake.exit_code, reason=one_line(str(mistake)))
    if is_gateway_loss(error):
        reason = forgotten_line(text) if forgotten(error) else f"gateway lost: {text}"
        return Cause(status="failed", exit_code=GatewayLostError.exit_code, reason=one_line(reason))
    return Cause(status="failed", exit_code=7, reason=_with_remedy(text))


def _said(error: BaseException) -> str:
    """What an error says, with its class; a refused operation of the gateway in the gateway's words alone."""
    said = str(error)
    if (operation := _OPERATION.fullmatch(said)) is not None:
        said = f"the gateway: {operation['said']}"
    elif said:
        said = f"{type(error).__name__}: {said}"
    return said or type(error).__name__


def _with_remedy(reason: str) -> str:
    """What a disk without room says, with what helps."""
    full = _FULL in reason.lower() and "make room" not in reason
    return f"{reason}; make room, then resume the run" if full else reason


def cause_amid(error: BaseException, state: RunState, now: float) -> Cause:
    """The cause that an exception stands for, in the light of what else was going on in the run."""
    return after_sleep(while_away(cause_of(error), error, state.gateway), state.host, now)


def while_away(cause: Cause, error: BaseException, gateway: GatewayState) -> Cause:
    """The cause, where a trial failed for want of a gateway that is still away: that is what ends the run."""
    from console.training.trial_context import PolicyStopError

    if not isinstance(error, PolicyStopError) or gateway.reachable is not False or error.verdict.cause != "api":
        return cause
    why = f"gateway lost: {gateway.detail or 'it does not answer'}; {cause.reason}"
    return Cause(status="failed", exit_code=GATEWAY_LOST, reason=one_line(why))


def after_sleep(cause: Cause, host: HostState, now: float) -> Cause:
    """The cause with what led to it, where a gateway was lost soon after the machine had slept."""
    if cause.exit_code != GATEWAY_LOST or not host.slept or now - host.slept_at > SLEEP_TELLS_SECONDS:
        return cause
    why = f"the machine slept for {span(host.slept)}, and the gateway heard nothing meanwhile"
    return msgspec.structs.replace(cause, reason=one_line(f"{cause.reason}; {why}"))


def one_line(text: str, limit: int = 400) -> str:
    """The text on one line, bounded."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
