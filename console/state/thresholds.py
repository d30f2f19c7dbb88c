"""When an alarm opens: the figures that the rules compare with, all of them options (`console.alarms.*`).

A run records what it was started with (`RunStarted.thresholds`), so that a replay judges as the engine did.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
from msgspec import Meta


class AlarmThresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, shares (0 to 1), factors of the run's own figures, milliseconds, GB (1e9 bytes) and counts.

    Where a figure has two, the first warns and the one with `critical` in its name is for critical alarms.

    Raises:
        ValueError: a figure is negative or not finite; the message names it.
    """

    # --- gateway ---
    gateway_down_seconds: Annotated[
        float, Meta(description="Seconds without an answer of the Tinker gateway before it counts as unreachable.")
    ] = 10.0
    gateway_slow_factor: Annotated[
        float, Meta(description="Latency of the gateway, times its usual one in this run, that warns.")
    ] = 3.0
    gateway_slow_critical_factor: Annotated[
        float, Meta(description="Latency of the gateway, times its usual one in this run, that is critical.")
    ] = 10.0
    gateway_slow_ms: Annotated[float, Meta(description="Latency in milliseconds below which no gateway is slow.")] = (
        500.0
    )
    gateway_full_share: Annotated[float, Meta(description="Used share of the gateway's KV cache that warns.")] = 0.90
    gateway_full_critical_share: Annotated[
        float, Meta(description="Used share of the gateway's KV cache that is critical.")
    ] = 0.95

    gateway_heartbeat_seconds: Annotated[
        float, Meta(description="Seconds since the gateway last acknowledged the session's heartbeat that warn.")
    ] = 30.0
    gateway_wait_seconds: Annotated[
        float, Meta(description="Seconds for which the gateway has the queue paused, or refuses samples, that warn.")
    ] = 60.0
    gateway_operation_seconds: Annotated[
        float, Meta(description="Age of an operation at the gateway that warns; of a sample, twice that.")
    ] = 900.0

    # --- progress ---
    progress_seconds: Annotated[float, Meta(description="Seconds without progress that warn, at least.")] = 600.0
    progress_factor: Annotated[
        float, Meta(description="Time without progress, times the usual length of the phase, that warns.")
    ] = 3.0
    progress_critical_seconds: Annotated[
        float, Meta(description="Seconds without progress that are critical, at least.")
    ] = 1800.0
    progress_critical_factor: Annotated[
        float, Meta(description="Time without progress, times the usual length of the phase, that is critical.")
    ] = 6.0
    step_factor: Annotated[
        float, Meta(description="Time of the running step, times the usual step time, that warns.")
    ] = 2.0
    checkpoint_seconds: Annotated[
        float, Meta(description="Age of the last checkpoint in seconds that warns, at least.")
    ] = 7200.0
    budget_share: Annotated[
        float, Meta(description="Used share of a token or time budget that warns; all of it is critical.")
    ] = 0.8

    # --- trials ---
    trials_needed: Annotated[
        float, Meta(description="Trials that must have ended before shares of outcomes are judged.")
    ] = 20.0
    infra_share: Annotated[
        float, Meta(description="Share of infrastructure failures among the last 50 trials that warns.")
    ] = 0.05
    infra_critical_share: Annotated[
        float, Meta(description="Share of infrastructure failures among the last 50 trials that is critical.")
    ] = 0.20
    infra_in_a_row: Annotated[
        float, Meta(description="Infrastructure failures in a row that are critical, however many trials ended.")
    ] = 3.0
    same_failures: Annotated[
        float, Meta(description="Failures in a row of one task with the same exception that count as its own fault.")
    ] = 3.0
    bad_rewards: Annotated[float, Meta(description="Bad rewards of one task that count as a broken verifier.")] = 3.0
    stall_seconds: Annotated[
        float, Meta(description="Seconds of a trial in sandbox creation, set-up or verification that warn.")
    ] = 600.0
    agent_idle_seconds: Annotated[
        float, Meta(description="Seconds of a running agent without a finished model call that warn.")
    ] = 1200.0
    limit_share: Annotated[
        float, Meta(description="Share of the last 50 trials that ended at one limit (time, context, output); warns.")
    ] = 0.25
    limit_critical_share: Annotated[
        float, Meta(description="Share of the last 50 trials that ended at one limit; critical.")
    ] = 0.50

    # --- capture ---
    bridge_share: Annotated[
        float,
        Meta(description="Share of continuing model calls that extend an earlier one below which it warns."),
    ] = 0.5
    bridge_calls: Annotated[
        float, Meta(description="Continuing model calls, or requests, that must have come before shares are judged.")
    ] = 50.0
    refused_share: Annotated[
        float, Meta(description="Share of the agents' requests that were refused, not counting busy ones, that warns.")
    ] = 0.25

    # --- learning ---
    no_signal_share: Annotated[
        float, Meta(description="Share of groups without a reward spread, two steps running, that warns.")
    ] = 0.50
    kl: Annotated[float, Meta(description="KL between sampler and trainer that warns, with kl_factor.")] = 0.01
    kl_factor: Annotated[
        float, Meta(description="KL, times the mean of the first five steps, that warns, with kl.")
    ] = 3.0
    kl_critical: Annotated[float, Meta(description="KL between sampler and trainer that is critical.")] = 0.1
    kl_critical_factor: Annotated[
        float, Meta(description="KL above kl, times the mean of the first five steps, that is critical.")
    ] = 10.0
    clip_share: Annotated[float, Meta(description="Clipped share of the trained tokens that warns.")] = 0.2
    clip_critical_share: Annotated[float, Meta(description="Clipped share of the trained tokens; critical.")] = 0.5
    entropy_low: Annotated[
        float, Meta(description="Entropy, as a share of the mean of the first five steps, below which it warns.")
    ] = 0.5
    entropy_low_critical: Annotated[
        float, Meta(description="Entropy, as a share of the mean of the first five steps, below which it is critical.")
    ] = 0.2
    entropy_high: Annotated[
        float, Meta(description="Entropy, times the mean of the first five steps, above which it warns.")
    ] = 2.0
    entropy_high_critical: Annotated[
        float, Meta(description="Entropy, times the mean of the first five steps, above which it is critical.")
    ] = 4.0
    grad_factor: Annotated[
        float, Meta(description="Gradient norm, times the median of the 20 steps before, that warns.")
    ] = 10.0
    grad_critical_factor: Annotated[
        float, Meta(description="Gradient norm, times the median of the 20 steps before, that is critical.")
    ] = 1000.0
    reward_drop: Annotated[
        float,
        Meta(description="Drop of the mean reward of three steps below that of the ten before, as a share of it."),
    ] = 0.5

    # --- host ---
    disk_free_gb: Annotated[
        float, Meta(description="Free GB of the run directory's disk below which it warns; a fifth of it is critical.")
    ] = 5.0
    disk_free_share: Annotated[float, Meta(description="Free share of that disk below which it warns.")] = 0.10
    disk_free_critical_share: Annotated[
        float, Meta(description="Free share of that disk below which it is critical.")
    ] = 0.02
    disk_plenty_gb: Annotated[float, Meta(description="Free GB that are enough, whatever share of a disk.")] = 100.0
    memory_share: Annotated[
        float, Meta(description="Share of the memory held by the engine and its children that warns.")
    ] = 0.80
    memory_critical_share: Annotated[
        float, Meta(description="Share of the memory held by the engine and its children that is critical.")
    ] = 0.90
    loop_lag_seconds: Annotated[float, Meta(description="Delay of the engine's main loop that warns.")] = 0.5
    loop_lag_critical_seconds: Annotated[float, Meta(description="Delay of that loop that is critical.")] = 5.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not _usable(getattr(self, name)):
                raise ValueError(f"{name} must be a finite number, 0 or more")

    @classmethod
    def from_state(cls, recorded: dict[str, float]) -> AlarmThresholds:
        """Those of a run, as its journal has them; what is missing, unusable or unknown there gets the default."""
        known = set(cls.__struct_fields__)
        return cls(**{name: float(value) for name, value in recorded.items() if name in known and _usable(value)})


OF_BENCHMARKS = frozenset(
    {
        "trials_needed", "limit_share", "limit_critical_share", "progress_seconds", "progress_critical_seconds",
        "disk_free_gb", "disk_free_share", "disk_free_critical_share", "disk_plenty_gb", "memory_share",
        "memory_critical_share", "loop_lag_seconds", "loop_lag_critical_seconds",
    }
)  # fmt: skip
"""Those that the rules of a benchmark read; the others are about training, its gateway and its capture."""
BENCH_MEANINGS = {
    "bench_infra_window": "Tries that ended last, of which the share of infrastructure failures is taken.",
    "bench_infra_share": "Share of infrastructure failures among them that warns; above 1 never.",
}
"""Thresholds that only a benchmark has; its own options set them."""


def _usable(value: float) -> bool:
    return math.isfinite(value) and value >= 0
