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

from console.journal.event import SCHEMA_VERSION as SCHEMA_VERSION
from console.journal.event import Event as Event
from console.journal.event import Scalars as Scalars
from console.journal.events_acts import BENCH_TUNABLES as BENCH_TUNABLES
from console.journal.events_acts import TUNABLES as TUNABLES
from console.journal.events_acts import AlarmAcked as AlarmAcked
from console.journal.events_acts import AlarmClosed as AlarmClosed
from console.journal.events_acts import AlarmOpened as AlarmOpened
from console.journal.events_acts import AlarmShelved as AlarmShelved
from console.journal.events_acts import CommandAccepted as CommandAccepted
from console.journal.events_acts import CommandFinished as CommandFinished
from console.journal.events_acts import CommandRequested as CommandRequested
from console.journal.events_acts import DispatchPaused as DispatchPaused
from console.journal.events_acts import Note as Note
from console.journal.events_acts import RunTuned as RunTuned
from console.journal.events_acts import StopRequested as StopRequested
from console.journal.events_acts import TaskQuarantined as TaskQuarantined
from console.journal.events_acts import WatchTaken as WatchTaken
from console.journal.events_bench import BenchLimited as BenchLimited
from console.journal.events_bench import BenchPlanned as BenchPlanned
from console.journal.events_plumbing import CaptureStats as CaptureStats
from console.journal.events_plumbing import CheckpointSaved as CheckpointSaved
from console.journal.events_plumbing import ClockJumped as ClockJumped
from console.journal.events_plumbing import GatewayHealth as GatewayHealth
from console.journal.events_plumbing import GatewayProfiled as GatewayProfiled
from console.journal.events_plumbing import GatewayWaiting as GatewayWaiting
from console.journal.events_plumbing import HostStats as HostStats
from console.journal.events_plumbing import SamplingProbed as SamplingProbed
from console.journal.events_plumbing import SandboxStats as SandboxStats

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
        tunables: what may be changed while the run lasts, by name (`TUNABLES`, `BENCH_TUNABLES`), with the value at the
            start.
        thresholds: those of the alarms, by name, as configured.
        kind: training or benchmark.
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
    kind: str = "training"


class RunResumed(Event, tag="run.resumed"):
    """What a resumed run begins with; follows `RunStarted` once it is known.

    Attributes:
        checkpoint: name of the checkpoint, empty for the beginning; step: the first step that is not in it.
        replayed: steps that are trained again from their captured batches, without new rollouts.
        reused: trials of the interrupted step that had ended and are used; redone: those that run again; None while
            the size of the batch is not known.
        why_not: why the replay ends where it does, or why trials are not used, one line; empty for nothing to say.
    """

    checkpoint: str = ""
    step: int = 0
    replayed: list[int] = []
    reused: int = 0
    redone: int | None = None
    why_not: str = ""


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
    """A batch begins.

    Attributes:
        policy_version: optimiser steps behind the weights that sample.
        weights: name of these weights: a digest of what they began as and of every batch trained since. Trials of two
            batches of one name were sampled from one policy. Empty in journals of before it was kept.
        replayed: the batch was rolled out before and is trained again from what was captured; no trial runs.
    """

    step: int
    groups: int
    policy_version: int
    weights: str = ""
    replayed: bool = False


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
        weights: name of the weights after this step; see `StepStarted`.
        replayed: trained again from what was captured, after a resume.
        recovered: written by a later engine from the journal: the weights were saved, and the engine that trained them
            ended before it wrote this row. What only that engine knew is null.
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
    weights: str = ""
    replayed: bool = False
    recovered: bool = False


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

    @property
    def answered(self) -> bool:
        """Whether the agent got a sample."""
        return self.status in ("ok", "stop", "length")


class TrialFinished(Event, tag="trial.finished"):
    """A try ended and was classified.

    Attributes:
        outcome: outcome class; cause: within the class; rule: id of the rule that decided; evidence: the text it saw.
        reward: what is trained on, null unless scored; of benchmarks what the verifier wrote, also for
            agent_failure and bad_reward, null for the other classes.
        retryable: a further try is allowed.
        exception: Harbor's exception type; trial_dir: where Harbor's files are.
        seconds: phase name to seconds; the key `total` is the whole.
        segments: sequences that may be trained; bridged: calls whose prompt extends an earlier one's; unbridged: the
            others by reason, `first` among them; excluded: answered calls that never train, by reason.
        refused: requests that got an error instead of a sample, by kind.
        reused: it ended under an earlier engine and counts again, in the same step of the resumed run; nothing ran.
        cached_tokens: prompt tokens that the endpoint had in its cache; cost_usd: US dollars as the agent reckons
            them, null when it does not; both of benchmarks alone.
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
    reused: bool = False
    cached_tokens: int = 0
    cost_usd: float | None = None


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


# --- the journal itself ----------------------------------------


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
