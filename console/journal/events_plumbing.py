"""Events of what a run stands on: gateway, capture, sandboxes, host, checkpoints. See `events`."""

from __future__ import annotations

from console.journal.event import Event


class GatewayProfiled(Event, tag="gateway.profiled"):
    """What kind of Tinker gateway serves the run, found by asking it.

    Attributes:
        profile: miles, hosted, skyrl or embedded; how: what told so, one line.
        sdk: the generation of the SDK whose requests it takes, `0.26` or `current`; translated: what is changed in
            requests or answers for that, one phrase each.
        losses: that it can train, empty for not known; context_window: tokens; max_rank: of a LoRA adapter; modules:
            what its adapters must train, of attn, mlp, unembed, empty for any.
        expiring: whether checkpoints can be given a time to live; slots: models in training at a time; lease: seconds
            without a heartbeat after which it ends a session. None for not known.
    """

    profile: str
    how: str = ""
    sdk: str = "current"
    translated: list[str] = []
    losses: list[str] = []
    context_window: int | None = None
    max_rank: int | None = None
    modules: list[str] = []
    expiring: bool | None = None
    slots: int | None = None
    lease: float | None = None


class GatewayWaiting(Event, tag="gateway.waiting"):
    """The run waits for the gateway: `reason` says for what, empty ends the wait.

    `until`: when that is expected, Unix seconds, 0 for not known.
    """

    reason: str = ""
    until: float = 0.0


class GatewayHealth(Event, tag="gateway.health"):
    """What the prober saw; written when it changes, and at least every 10 s.

    Attributes:
        queue: active, paused_capacity or paused_rate_limit, as the gateway says to those who wait for a result, empty
            while nobody waits; queue_reason: its own words.
        backoff: seconds for which the SDK still holds samples back after a 429; None for not at all.
        heartbeat_age: seconds since the SDK's session was last acknowledged; lease_left: seconds until the gateway
            ends it, if nothing is heard of it.
        pending: operations under way by kind (sample, forward_backward, optim_step, save_weights...); oldest: the age
            of the oldest one by kind, seconds.
    """

    reachable: bool
    latency_ms: float | None = None
    queued: int | None = None
    running: int | None = None
    kv_fraction: float | None = None
    detail: str = ""
    queue: str = ""
    queue_reason: str = ""
    backoff: float | None = None
    heartbeat_age: float | None = None
    lease_left: float | None = None
    pending: dict[str, int] = {}
    oldest: dict[str, float] = {}


class CaptureStats(Event, tag="capture.stats"):
    """Totals of the run so far, at most once a second while they change.

    Attributes:
        calls: model calls answered; failed: answered with an error; prompt_tokens, sampled_tokens: captured.
        lost: captured calls that cannot be trained because a record is missing; no_logprobs: samples without log-probs.
        inflight: model calls under way; trained_tokens: sampled tokens that batches were given to train on.
        bridged: calls whose prompt extends that of an earlier one; unbridged: the others by reason, `first` among them.
        refusals: requests that got an error instead of a sample, by kind; excluded: answered calls that are not
            trained, by reason.
        temperature_low, temperature_high: of all calls, as they were sampled; None before the first.
    """

    calls: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    lost: int = 0
    no_logprobs: int = 0
    inflight: int = 0
    trained_tokens: int = 0
    bridged: int = 0
    unbridged: dict[str, int] = {}
    refusals: dict[str, int] = {}
    excluded: dict[str, int] = {}
    temperature_low: float | None = None
    temperature_high: float | None = None


class SamplingProbed(Event, tag="sampling.probed"):
    """What the log-probs that the gateway returns are.

    Attributes:
        tempered: they are those of the distribution at the sampling temperature (true), those of temperature 1
            (false), or it could not be told (null); detail: how that was found.
        mode: `agent` when agents choose how to sample, `force` when the run does.
    """

    tempered: bool | None = None
    detail: str = ""
    mode: str = "agent"


class HostStats(Event, tag="host.stats"):
    """The machine under the engine, at least once a minute and whenever a figure moved by a tenth.

    Attributes:
        disk_free, disk_total: of the file system of the run directory, bytes.
        rss: resident memory of the engine and its children, bytes; memory_total: of the machine, bytes.
        loop_lag: the longest delay of the engine's main loop since the last report, seconds.
    """

    disk_free: int | None = None
    disk_total: int | None = None
    rss: int | None = None
    memory_total: int | None = None
    loop_lag: float | None = None


class SandboxStats(Event, tag="sandbox.stats"):
    """Sandboxes now, as the run's ledger has them.

    Attributes:
        live: that exist for a trial; creating: of these, whose creation was announced and not confirmed.
        left: names of those whose removal failed; orphaned: of those that an engine before this one left behind.
        oldest: when the oldest that lives, is left or orphaned was created, Unix seconds, None for none.
        hours: sandbox hours of the run so far; cost: an estimate in USD of what they cost, None where prices are not
            known.
    """

    live: int = 0
    left: list[str] = []
    creating: int = 0
    orphaned: list[str] = []
    oldest: float | None = None
    hours: float | None = None
    cost: float | None = None


class ClockJumped(Event, tag="host.clock"):
    """The machine's clocks disagreed: it slept (`slept` seconds), or its time of day was set by `stepped` seconds."""

    slept: float = 0.0
    stepped: float = 0.0


class CheckpointSaved(Event, tag="checkpoint.saved"):
    """The cookbook saved a checkpoint. `kind`: start, periodic, rolling, stop, final or request.

    `weights`: name of what was saved, as in `StepStarted`.
    """

    name: str
    step: int
    path: str = ""
    kind: str = "periodic"
    weights: str = ""
