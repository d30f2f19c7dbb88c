"""What goes on at the gateway in words, for the console, the log and `ctl`. Everything that it said is sanitised."""

from __future__ import annotations

from typing import NamedTuple

from console.state.model import GatewayState, RunState
from console.state.sanitize import sanitize
from console.state.thresholds import AlarmThresholds

QUEUES = {"paused_capacity": "it has no capacity", "paused_rate_limit": "a rate limit is reached"}
_OPERATIONS = {
    "sample": "sample", "forward": "forward pass", "forward_backward": "training pass", "optim_step": "optimiser step",
    "create_model": "creation of a model", "load_weights": "load of weights", "save_weights": "save of weights",
    "save_weights_for_sampler": "save of weights for sampling", "connect": "attempt to connect",
}  # fmt: skip
_KINDS_SHOWN = 6
_HEARTBEAT_LIMIT = AlarmThresholds().gateway_heartbeat_seconds


class Trouble(NamedTuple):
    """Something that holds the run up at the gateway, in a word or two and in a clause."""

    short: str
    text: str


def operation(kind: str) -> str:
    """A kind of operation in words."""
    return _OPERATIONS.get(kind, sanitize(kind, 40).replace("_", " "))


def minutes(seconds: float) -> str:
    """A time to come or gone as 4:10 or 1:02:09."""
    whole = max(0, int(seconds))
    head = f"{whole // 3600}:{whole % 3600 // 60:02d}" if whole >= 3600 else f"{whole // 60}"
    return f"{head}:{whole % 60:02d}"


def troubles(state: RunState, now: float) -> list[Trouble]:
    """What holds the run up, the worst first; nothing of a gateway that is away: that is worse, and told as such."""
    g = state.gateway
    found = []
    if g.waiting:
        found.append(_waiting(g, now))
    if g.reachable is False:
        return found
    if g.queue in QUEUES:
        reason = f": {sanitize(g.queue_reason, 120)}" if g.queue_reason else ""
        found.append(Trouble("queue paused", f"queue paused, {QUEUES[g.queue]}{reason}"))
    if g.backoff is not None:
        found.append(Trouble("held back", f"samples held back after HTTP 429, for {g.backoff:.0f} s at least"))
    limit = state.thresholds.get("gateway_heartbeat_seconds", _HEARTBEAT_LIMIT)
    if g.heartbeat_age is not None and g.heartbeat_age >= limit:
        left = "" if g.lease_left is None else f", lease ends in {minutes(g.lease_left)}"
        age = minutes(g.heartbeat_age)
        found.append(Trouble(f"heartbeat {age}", f"no heartbeat acknowledged for {age}{left}"))
    return found


def _waiting(g: GatewayState, now: float) -> Trouble:
    what = sanitize(g.waiting, 200)
    left = g.waiting_until - now
    if left <= 0:
        return Trouble("waits", f"waits for {what}")
    ends = f"free in {minutes(left)}" if "slot" in what else f"expected in {minutes(left)}"
    return Trouble(f"waits {minutes(left)}", f"waits for {what.partition(':')[0]}: {ends}")


def operations(g: GatewayState) -> str:
    """What is under way there, with the age of the oldest: `sample 12 (3:10), optim step 1 (0:04)`."""
    kinds = sorted(g.pending, key=lambda kind: -g.oldest.get(kind, 0.0))
    parts = [
        f"{sanitize(kind, 30).replace('_', ' ')} {g.pending[kind]} ({minutes(g.oldest.get(kind, 0.0))})"
        for kind in kinds[:_KINDS_SHOWN]
    ]
    return ", ".join(parts)


def session(g: GatewayState) -> str:
    """How the SDK's session stands: `heartbeat 0:04 ago, lease 4:56 left`; empty when that is not known."""
    if g.heartbeat_age is None:
        return ""
    left = "" if g.lease_left is None else f", lease {minutes(g.lease_left)} left"
    return f"heartbeat {minutes(g.heartbeat_age)} ago{left}"


def profile(g: GatewayState) -> str:
    """What kind of gateway it is: `miles, SDK 0.26, window 65,529, rank 16, 1 slot`; empty before that is known."""
    if not g.profile:
        return ""
    said = [sanitize(g.profile, 40), f"SDK {sanitize(g.sdk, 20)}"]
    if g.context_window is not None:
        said.append(f"window {g.context_window:,}")
    if g.max_rank is not None:
        said.append(f"rank {g.max_rank}")
    if g.modules:
        said.append("+".join(sanitize(name, 20) for name in g.modules[:4]))
    if g.slots is not None:
        said.append(f"{g.slots} slot{'' if g.slots == 1 else 's'}")
    if g.lease is not None:
        said.append(f"lease {minutes(g.lease)}")
    if g.expiring is False:
        said.append("checkpoints do not expire")
    return ", ".join(said)
