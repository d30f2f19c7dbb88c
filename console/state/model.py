"""What is known of a run. Plain data: the reducer writes it, viewers only read it.

`RunState` is the open state: bounded by the batch, not by the length of the run. The history of steps is kept beside it
(`History`), because it grows and is stored in a side file of its own.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from console.journal.events import Scalars, StepFinished
from console.state.bench_model import BenchState

EVENTS_KEPT = 200
COMMANDS_KEPT = 32
CHECKPOINTS_KEPT = 8
RECENT_KEPT = 50
EVIDENCE_KEPT = 200
"""Characters of a recent try's evidence."""
READINGS_KEPT = 60
SHELF_KEPT = 32

LinkState = Literal["starting", "live", "stopping", "finished", "stopped", "failed"]


class TrialState(msgspec.Struct, kw_only=True):
    """One trial of the current step. Times are Unix seconds, tokens are totals of the current try.

    `phase` is queued, create, environment, setup, agent, verify, teardown, held, retrying or done; `outcome` is set
    when it is done (or held: then it is the outcome of the try that failed). What was captured, and `reused`, is as
    `TrialFinished` has it; so are the cached tokens and the cost of a benchmark's trial.
    """

    trial: int
    try_: int = 0
    phase: str = "queued"
    phase_since: float = 0.0
    started: float | None = None
    finished: float | None = None
    last_event: float = 0.0
    turns: int = 0
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    outcome: str | None = None
    cause: str = ""
    rule: str = ""
    evidence: str = ""
    reward: float | None = None
    retryable: bool = False
    exception: str | None = None
    trial_dir: str | None = None
    hold_deadline: float | None = None
    seconds: dict[str, float] = {}
    segments: int = 0
    bridged: int = 0
    unbridged: dict[str, int] = {}
    excluded: dict[str, int] = {}
    refused: dict[str, int] = {}
    reused: bool = False
    cached_tokens: int = 0
    cost_usd: float | None = None


class GroupState(msgspec.Struct, kw_only=True):
    """One group of the current step. `kept` is None while it runs; mean and std are over its scored trials."""

    group: int
    task: str
    trials: list[TrialState] = []
    started: float = 0.0
    finished: float | None = None
    kept: bool | None = None
    reason: str = ""
    reward_mean: float | None = None
    reward_std: float | None = None
    zero_variance: bool = False


class GatewayState(msgspec.Struct, kw_only=True):
    """The last probe of the Tinker gateway, and what it is; see `GatewayHealth`, `GatewayProfiled`, `GatewayWaiting`.

    Attributes:
        profile, how, sdk, translated, losses, context_window, max_rank, modules, expiring, slots, lease: as profiled,
            `profile` empty before that.
        waiting, waiting_until: what the run waits for there, empty for nothing, and when that is expected.
        since: when reachability last changed; probed: the last report.
        latencies, queues: of the last reports, oldest first; latencies in milliseconds, without those that had none.
    """

    reachable: bool | None = None
    latency_ms: float | None = None
    queued: int | None = None
    running: int | None = None
    kv_fraction: float | None = None
    detail: str = ""
    since: float = 0.0
    probed: float = 0.0
    latencies: list[float] = []
    queues: list[int | None] = []
    queue: str = ""
    queue_reason: str = ""
    backoff: float | None = None
    heartbeat_age: float | None = None
    lease_left: float | None = None
    pending: dict[str, int] = {}
    oldest: dict[str, float] = {}
    profile: str = ""
    how: str = ""
    sdk: str = ""
    translated: list[str] = []
    losses: list[str] = []
    context_window: int | None = None
    max_rank: int | None = None
    modules: list[str] = []
    expiring: bool | None = None
    slots: int | None = None
    lease: float | None = None
    waiting: str = ""
    waiting_until: float = 0.0


class SandboxState(msgspec.Struct, kw_only=True):
    """The run's sandboxes beyond their number; fields as in `SandboxStats`."""

    creating: int = 0
    orphaned: list[str] = []
    oldest: float | None = None
    hours: float | None = None
    cost: float | None = None


class ResumeState(msgspec.Struct, kw_only=True):
    """What the running engine began with; fields as in `RunResumed`."""

    checkpoint: str = ""
    step: int = 0
    replayed: list[int] = []
    reused: int = 0
    redone: int | None = None
    why_not: str = ""


class HostState(msgspec.Struct, kw_only=True):
    """The last report on the engine's machine; units as in the event.

    Attributes:
        slept, stepped: seconds of the last such jump of its clocks, and when that was noticed; see `ClockJumped`.
    """

    disk_free: int | None = None
    disk_total: int | None = None
    rss: int | None = None
    memory_total: int | None = None
    loop_lag: float | None = None
    reported: float = 0.0
    slept: float = 0.0
    slept_at: float = 0.0
    stepped: float = 0.0
    stepped_at: float = 0.0


class TrialBrief(msgspec.Struct, kw_only=True, array_like=True):
    """What alarms need of a try that ended: when, how, on which task, in how many seconds, answered model calls, and
    sequences of them that may be trained. Of a benchmark also the rule that decided, the text it saw, sampled tokens,
    and the agent's seconds."""

    ts: float = 0.0
    name: str = ""
    task: str = ""
    outcome: str = ""
    cause: str = ""
    exception: str = ""
    seconds: float | None = None
    calls: int = 0
    segments: int = 0
    rule: str = ""
    evidence: str = ""
    sampled: int = 0
    agent: float | None = None


CAPTURE_TOTALS = (
    "calls", "failed", "prompt_tokens", "sampled_tokens", "trained_tokens", "excluded", "bridged", "unbridged",
    "refusals", "temperature_low", "temperature_high",
)  # fmt: skip
"""What of the captured totals is the run's, over all its engines; see `CaptureState`."""


class CaptureState(msgspec.Struct, kw_only=True):
    """Captured totals of the run, and the rates between the last two reports in tokens a second; see `CaptureStats`.

    Attributes:
        rates: sampled tokens a second between the last reports, oldest first.
        unreported_prompt, unreported_sampled: of the tokens, those of calls that ended after the last report.
        tempered, probed: what the gateway's log-probs are, and how that was found; see `SamplingProbed`.
    """

    calls: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    lost: int = 0
    no_logprobs: int = 0
    inflight: int = 0
    reported: float = 0.0
    sampled_per_second: float | None = None
    prompt_per_second: float | None = None
    trained_per_second: float | None = None
    rates: list[float] = []
    unreported_prompt: int = 0
    unreported_sampled: int = 0
    trained_tokens: int = 0
    bridged: int = 0
    unbridged: dict[str, int] = {}
    refusals: dict[str, int] = {}
    excluded: dict[str, int] = {}
    temperature_low: float | None = None
    temperature_high: float | None = None
    tempered: bool | None = None
    probed: str = ""
    sampling: str = ""

    @property
    def bridge_rate(self) -> float | None:
        """Share of the calls that could extend an earlier one and do; None before there is one."""
        could = self.bridged + sum(count for reason, count in self.unbridged.items() if reason != "first")
        return self.bridged / could if could else None


class AlarmState(msgspec.Struct, kw_only=True):
    """An alarm that is open, or over and not acknowledged yet (only critical ones wait for that).

    Attributes:
        since: when it opened; cleared: when its condition was over, None while it holds.
        acked_by: who has seen it, empty for nobody; shelved_until: silent until then, 0 for not shelved.
        told: when its text or level last changed.
    """

    key: str
    level: str
    text: str
    remedy: str = ""
    consequence: str = ""
    action: str = ""
    since: float = 0.0
    cleared: float | None = None
    acked_by: str = ""
    shelved_until: float = 0.0
    told: float = 0.0

    @property
    def open(self) -> bool:
        """Whether its condition holds."""
        return self.cleared is None

    def asks(self, now: float) -> bool:
        """Whether it wants the operator's eye at `now`: neither acknowledged nor shelved."""
        return not self.acked_by and self.shelved_until <= now


class CommandState(msgspec.Struct, kw_only=True):
    """A command's way: requested, accepted, done or refused."""

    id: str
    command: str
    args: Scalars = {}
    author: str = ""
    reason: str = ""
    status: str = "requested"
    effect: str = ""
    result: str = ""
    requested: float = 0.0
    finished: float | None = None


class EventLine(msgspec.Struct, kw_only=True):
    """A line of the events pane: what a person wants to know, in one sentence. `level`: info, warning, error."""

    ts: float
    text: str
    level: str = "info"
    outcome: str | None = None


class CheckpointState(msgspec.Struct, kw_only=True):
    """A saved checkpoint."""

    name: str
    step: int
    path: str = ""
    ts: float = 0.0
    weights: str = ""


class RunState(msgspec.Struct, kw_only=True):
    """The open state of a run after the event `seq`.

    Attributes:
        shelf: alarm key to the Unix time until which it is silent; thresholds: of the alarms, as configured.
        recent: the last tries that ended, oldest first; progress: when the run last moved (a log line is no progress).
        started: when the run's first engine began; engine_started: when the one that runs now did.
        paused, paused_by: no new trials begin, and who asked for it; dispatch_since: when that last changed.
        tunables: by name, as they are now; tunables_at_start: as this engine began with them.
        quarantined: tasks left out of new batches.
        watch: who holds the lease to act, empty for nobody.
        resumed: what this engine resumed with, None for a new run or before it is known.
        weights: name of the weights of the step under way; replaying: it is trained again from what was captured.
        kind: training or benchmark; bench: of a benchmark, what only such a run has.
    """

    seq: int = 0
    ts: float = 0.0
    run_id: str = ""
    name: str = ""
    run_dir: str = ""
    pid: int = 0
    socket: str | None = None
    model: str = ""
    gateway_url: str | None = None
    versions: dict[str, str] = {}
    config: Scalars = {}
    started: float = 0.0
    engine_started: float = 0.0
    engines: int = 0
    on_failure: str = "stop"
    hold_timeout: float | None = None
    owned: bool = False
    status: LinkState = "starting"
    exit_code: int | None = None
    reason: str = ""
    phase: str = "starting"
    phase_detail: str = ""
    phase_since: float = 0.0
    stop_requested: str = ""
    steps_planned: int | None = None
    groups_per_batch: int = 0
    group_size: int = 0
    step: int | None = None
    step_started: float | None = None
    steps_done: int = 0
    policy_version: int = 0
    groups: dict[int, GroupState] = {}
    gateway: GatewayState = msgspec.field(default_factory=GatewayState)
    capture: CaptureState = msgspec.field(default_factory=CaptureState)
    sandboxes_live: int = 0
    sandboxes_left: list[str] = []
    sandboxes: SandboxState = msgspec.field(default_factory=SandboxState)
    resumed: ResumeState | None = None
    weights: str = ""
    replaying: bool = False
    checkpoints: list[CheckpointState] = []
    alarms: dict[str, AlarmState] = {}
    shelf: dict[str, float] = {}
    thresholds: dict[str, float] = {}
    host: HostState = msgspec.field(default_factory=HostState)
    recent: list[TrialBrief] = []
    progress: float = 0.0
    paused: bool = False
    paused_by: str = ""
    dispatch_since: float = 0.0
    tunables: dict[str, float | None] = {}
    tunables_at_start: dict[str, float | None] = {}
    quarantined: list[str] = []
    watch: str = ""
    commands: dict[str, CommandState] = {}
    lines: list[EventLine] = []
    repaired_bytes: int = 0
    unknown_events: int = 0
    kind: str = "training"
    bench: BenchState = msgspec.field(default_factory=BenchState)


class History(msgspec.Struct, kw_only=True):
    """The finished steps of the run, in order of step; a resumed run overwrites the steps it does again."""

    rows: list[StepFinished] = []

    def add(self, row: StepFinished) -> None:
        """Append a row; rows of the same or later steps were undone by a resume and go."""
        while self.rows and self.rows[-1].step >= row.step:
            self.rows.pop()
        self.rows.append(row)


def encode_state(state: RunState) -> bytes:
    """The open state as JSON, for a snapshot."""
    return _encoder.encode(state)


def decode_state(data: bytes) -> RunState:
    """The inverse of `encode_state`. Raises `ValueError` when the data is of another shape."""
    return _decoder.decode(data)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(RunState)
