"""The typed events of a run. The journal is made of nothing else, and nothing else is true.

Every event is one JSON object a line: `{"type": "...", "seq": N, "ts": T, ...}`. `seq` is gapless within a run, `ts` is
Unix time in seconds. No message text, no tokens, no secrets. A value that is not known is null. Readers ignore fields
they do not know and keep events of an unknown type as `UnknownEvent`, so additions are harmless; a change of meaning
raises `SCHEMA_VERSION`.

Words: a *step* is a training iteration (from 0), a *group* one task of it (index from 0, shown as g1...), a *trial* one
rollout of the group (index from 0, shown as t1...), a *try* one execution of a trial (from 0; a later one replaces it).
"""

from __future__ import annotations

from typing import Any

import msgspec

SCHEMA_VERSION = 1

Scalars = dict[str, float | int | str | bool | None]


class Event(msgspec.Struct, tag_field="type", kw_only=True, omit_defaults=True):
    """Base of all events. `seq` and `ts` are set by the writer."""

    seq: int = 0
    ts: float = 0.0


# --- run ----------------------------------------


class RunStarted(Event, tag="run.started"):
    """An engine began (or, with `resumed_from`, resumed) the run.

    Attributes:
        run_dir: absolute path; pid: the engine's; socket: where it listens.
        versions: package name to version; config: what differs from the defaults, redacted, dotted keys.
        steps: training steps planned, None while unknown; groups_per_batch, group_size: trials a step = product.
        on_failure: the policy for outcomes that are not scored: stop, hold or retry.
        reward_limit: rewards above it count as bad.
        resumed_from: the step that this engine starts at when it continues an earlier one.
        owned: True when the command that started the run owns it (headless without --detach).
        tunables: what may be changed while the run lasts, by name (`TUNABLES`), with the value at the start.
        thresholds: those of the alarms, by name, as configured.
    """

    schema: int = SCHEMA_VERSION
    run_id: str = ""
    name: str = ""
    run_dir: str = ""
    pid: int = 0
    socket: str | None = None
    model: str = ""
    gateway_url: str | None = None
    versions: dict[str, str] = {}
    config: Scalars = {}
    steps: int | None = None
    groups_per_batch: int = 0
    group_size: int = 0
    on_failure: str = "stop"
    hold_timeout: float | None = None
    resumed_from: int | None = None
    owned: bool = False
    tunables: dict[str, float | None] = {}
    thresholds: dict[str, float] = {}


class RunPhase(Event, tag="run.phase"):
    """What the run does now: starting, connecting, rollout, training, saving, evaluating, stopping."""

    phase: str
    detail: str = ""


class RunPlanned(Event, tag="run.planned"):
    """The number of steps became known (the dataset was loaded)."""

    steps: int
    tasks: int = 0


class RunFinished(Event, tag="run.finished"):
    """The last event of an engine that ended in order.

    Attributes:
        status: completed, stopped or failed.
        exit_code: see the table of exit codes.
        steps: optimiser steps done in the run's lineage.
    """

    status: str
    exit_code: int
    reason: str = ""
    steps: int = 0


# --- step ----------------------------------------


class StepStarted(Event, tag="step.started"):
    """A batch begins. `policy_version` is the number of optimiser steps behind the weights that sample."""

    step: int
    groups: int
    policy_version: int


class StepFinished(Event, tag="step.finished"):
    """One row of the learning curve; also kept in the side file for the plots.

    Attributes:
        reward_mean, reward_std: over all scored trials of kept groups (population standard deviation).
        outcomes: outcome class to number of trials, final tries only.
        groups_kept: groups that trained (zero-variance ones included); groups_dropped; groups_zero_variance: kept
            groups whose rewards are all equal, so no gradient.
        ppo_loss: summed loss over the trained tokens, null unless the loss is ppo.
        clip_fraction: share of trained tokens whose ratio left the clip range in the direction that clips.
        kl_sample_train_v1: mean over trained tokens of (log q sampler - log p trainer); v2: half the mean square;
            k3: mean of exp(p-q) - 1 - (p-q).
        entropy: minus the mean sampling log-prob, nats per token.
        grad_norm, learning_rate: as the gateway reports them.
        tokens_prompt, tokens_sampled: of captured calls; tokens_trained: action tokens in the batch.
        seconds_*: wall seconds of the step's parts.
        policy_version: optimiser steps behind the weights after this step.
        nonfinite: names of figures that were NaN or infinite and are null here.
    """

    step: int
    reward_mean: float | None = None
    reward_std: float | None = None
    outcomes: dict[str, int] = {}
    groups_kept: int = 0
    groups_dropped: int = 0
    groups_zero_variance: int = 0
    ppo_loss: float | None = None
    clip_fraction: float | None = None
    kl_sample_train_v1: float | None = None
    kl_sample_train_v2: float | None = None
    kl_sample_train_k3: float | None = None
    entropy: float | None = None
    grad_norm: float | None = None
    learning_rate: float | None = None
    tokens_prompt: int = 0
    tokens_sampled: int = 0
    tokens_trained: int | None = None
    seconds_rollout: float | None = None
    seconds_train: float | None = None
    seconds_save: float | None = None
    seconds_total: float | None = None
    policy_version: int = 0
    nonfinite: list[str] = []


# --- groups and trials ----------------------------------------


class GroupStarted(Event, tag="group.started"):
    """A group begins; its `size` trials are queued."""

    step: int
    group: int
    task: str
    size: int


class GroupFinished(Event, tag="group.finished"):
    """A group ended. `kept`: it trains. `reason` says why not. Mean and population std over scored trials."""

    step: int
    group: int
    kept: bool
    reason: str = ""
    reward_mean: float | None = None
    reward_std: float | None = None
    zero_variance: bool = False


class TrialPhase(Event, tag="trial.phase"):
    """A try entered a phase: queued, create, environment, setup, agent, verify, teardown."""

    step: int
    group: int
    trial: int
    phase: str
    try_: int = msgspec.field(default=0, name="try")


class TrialTurn(Event, tag="trial.turn"):
    """One model call of a trial ended: its tokens, its seconds, and how it ended (stop, length, error...)."""

    step: int
    group: int
    trial: int
    turn: int
    try_: int = msgspec.field(default=0, name="try")
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    seconds: float = 0.0
    status: str = "ok"


class TrialFinished(Event, tag="trial.finished"):
    """A try ended and was classified.

    Attributes:
        outcome: outcome class; cause: within the class; rule: id of the rule that decided; evidence: the text it saw.
        reward: what is trained on, null unless scored.
        retryable: a further try is allowed.
        exception: Harbor's exception type; trial_dir: where Harbor's files are.
        seconds: phase name to seconds; the key `total` is the whole.
        segments: sequences that may be trained; bridged: calls whose prompt extends an earlier one's; unbridged: the
            others by reason, `first` among them; excluded: answered calls that never train, by reason.
        refused: requests that got an error instead of a sample, by kind.
    """

    step: int
    group: int
    trial: int
    outcome: str
    try_: int = msgspec.field(default=0, name="try")
    cause: str = ""
    rule: str = ""
    evidence: str = ""
    reward: float | None = None
    retryable: bool = False
    exception: str | None = None
    trial_dir: str | None = None
    turns: int = 0
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    seconds: dict[str, float] = {}
    segments: int = 0
    bridged: int = 0
    unbridged: dict[str, int] = {}
    excluded: dict[str, int] = {}
    refused: dict[str, int] = {}


class TrialHeld(Event, tag="trial.held"):
    """The policy is `hold`: the trial waits for the operator until `deadline` (Unix seconds), then the run stops."""

    step: int
    group: int
    trial: int
    try_: int = msgspec.field(default=0, name="try")
    deadline: float = 0.0


class TrialRetried(Event, tag="trial.retried"):
    """A further try was granted; `try` is its number. `by`: policy, or the operator's name."""

    step: int
    group: int
    trial: int
    try_: int = msgspec.field(default=1, name="try")
    by: str = "policy"


# --- gateway, capture, sandboxes, checkpoints ----------------------------------------


class GatewayHealth(Event, tag="gateway.health"):
    """What the prober saw; written when it changes, and at least every 10 s."""

    reachable: bool
    latency_ms: float | None = None
    queued: int | None = None
    running: int | None = None
    kv_fraction: float | None = None
    detail: str = ""


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
    """Sandboxes now: live ones, and names left behind because their removal failed."""

    live: int = 0
    left: list[str] = []


class CheckpointSaved(Event, tag="checkpoint.saved"):
    """The cookbook saved a checkpoint. `kind`: periodic, rolling, final or on request."""

    name: str
    step: int
    path: str = ""
    kind: str = "periodic"


# --- alarms, commands, notes ----------------------------------------


class AlarmOpened(Event, tag="alarm.opened"):
    """Something needs the operator. One open alarm a key; written again when its text or level changes.

    Attributes:
        level: warning or critical; text: what is wrong; consequence: what follows if nobody acts, empty for nothing;
        remedy: what to do; action: the console's action that does it, empty for none.
    """

    key: str
    level: str
    text: str
    remedy: str = ""
    consequence: str = ""
    action: str = ""


class AlarmClosed(Event, tag="alarm.closed"):
    """The condition of alarm `key` is over. A critical one stays on the screen until it is acknowledged."""

    key: str


class AlarmAcked(Event, tag="alarm.acked"):
    """Somebody has seen alarm `key`; until it closes and opens again, it asks for no more attention."""

    key: str
    by: str = ""


class AlarmShelved(Event, tag="alarm.shelved"):
    """Alarm `key` is silent until `until` (Unix seconds), also when it opens again; 0 takes it back from the shelf."""

    key: str
    until: float = 0.0
    by: str = ""


class CommandRequested(Event, tag="command.requested"):
    """Somebody asked for an action; written before anything is done."""

    id: str
    command: str
    args: Scalars = {}
    author: str = ""
    reason: str = ""


class CommandAccepted(Event, tag="command.accepted"):
    """The engine took it on; `effect` says what it will do."""

    id: str
    effect: str = ""


class CommandFinished(Event, tag="command.finished"):
    """`status`: done or refused; `result` says what happened or why not."""

    id: str
    status: str
    result: str = ""


class StopRequested(Event, tag="run.stop_requested"):
    """The run will stop: `when` is after_step or now, empty when the request was taken back."""

    when: str
    by: str = ""


class DispatchPaused(Event, tag="run.dispatch"):
    """With `paused`, no new trial begins and those under way go on; without it, trials begin again."""

    paused: bool
    by: str = ""


TUNABLES: dict[str, str] = {
    "parallel": "trials of one group that run at once",
    "hold_timeout": "seconds a failed trial waits for the operator before the run stops",
    "max_tries": "executions of one trial at most, retries of the policy and of the operator",
    "token_budget": "captured tokens, prompt and sampled, after which the run stops with its step",
    "time_budget": "seconds of this engine's life after which the run stops with its step",
}
"""What may be changed while the run lasts, and what it means. A budget may be None: there is none."""


class RunTuned(Event, tag="run.tuned"):
    """A tunable was changed; `name` is one of `TUNABLES`."""

    name: str
    old: float | None = None
    new: float | None = None
    by: str = ""


class TaskQuarantined(Event, tag="task.quarantined"):
    """With `on`, the task is left out of the batches that begin from now on; without it, it is taken in again."""

    task: str
    on: bool = True
    by: str = ""


class WatchTaken(Event, tag="watch.taken"):
    """The lease to act passed to `by` (a viewer's author); empty when it was given back."""

    by: str = ""
    previous: str = ""


class Note(Event, tag="note"):
    """A line for the events pane: `level` is info, warning or error; `source` is engine, or the author's name."""

    text: str
    level: str = "info"
    source: str = "engine"


class JournalRepaired(Event, tag="journal.repaired"):
    """A writer found a torn tail and cut it off."""

    dropped_bytes: int


class Snapshot(Event, tag="snapshot"):
    """The open state (not the history) after all events before this one. `state` is the reducer's own encoding."""

    state: msgspec.Raw = msgspec.Raw(b"{}")
    steps_done: int = 0


class UnknownEvent(Event, tag="unknown"):
    """An event of a type that this version does not know; `original` is its type."""

    original: str = ""
    body: dict[str, Any] = {}
