"""What can be read of a run's finished steps: figures with units and definitions, and the charts of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from console.journal.events import StepFinished
from console.outcomes.classes import OutcomeClass
from console.tui.glyphs import SIGNS
from console.tui.scale import Kind
from console.tui.text import count, number, short_time

Getter = Callable[[StepFinished], float | None]


@dataclass(frozen=True)
class Figure:
    """One number of a step.

    Attributes:
        id: as in the journal, where it is one of the journal's; name, unit, about: for people.
        get: None when it is not known. Charts take what is not finite for not known.
    """

    id: str
    name: str
    unit: str
    about: str
    get: Getter
    kind: Kind = "number"
    digits: int = 3

    def text(self, row: StepFinished) -> str:
        """The value of a row in about six characters; `--` when unknown."""
        return self.say(self.get(row))

    def say(self, value: float | None) -> str:
        """A value of this figure, short."""
        if value is None or not math.isfinite(value):
            return "--"
        match self.kind:
            case "count" if abs(value) < 1e15:
                return count(value)
            case "seconds" if value < 1e9:
                return short_time(value)
            case _:
                return number(value, self.digits)


def trials(row: StepFinished) -> int:
    """Trials of the step, whatever became of them."""
    return sum(n for n in row.outcomes.values() if n > 0)


def mixed(row: StepFinished) -> float | None:
    """Share of the kept groups whose rewards differ, the ones that teach."""
    return (row.groups_kept - row.groups_zero_variance) / row.groups_kept if row.groups_kept else None


def _unscored(row: StepFinished) -> float | None:
    total = trials(row)
    scored = sum(row.outcomes.get(name, 0) for name in _SCORED_NAMES)
    return (total - scored) / total if total else None


def _edge(sign: int) -> Getter:
    def get(row: StepFinished) -> float | None:
        if row.reward_mean is None or row.reward_std is None:
            return None
        return row.reward_mean + sign * row.reward_std

    return get


def other_seconds(row: StepFinished) -> float | None:
    """Seconds of the step that are neither rollout nor training nor saving; None without a total."""
    if row.seconds_total is None:
        return None
    known = sum(v for v in (row.seconds_rollout, row.seconds_train, row.seconds_save) if v is not None)
    return max(0.0, row.seconds_total - known)


def _rate(row: StepFinished) -> float | None:
    return row.tokens_sampled / row.seconds_rollout if row.seconds_rollout else None


_SCORED_NAMES = ("completed", "agent_timeout", "context_overflow", "output_limit")
_SHARE = "share"
_OVER = "over trained tokens"

FIGURES: dict[str, Figure] = {
    figure.id: figure
    for figure in (
        Figure("reward_mean", "reward mean", "reward", "over scored trials of kept groups", lambda r: r.reward_mean),
        Figure("reward_std", "reward std", "reward", "standard deviation of the same", lambda r: r.reward_std),
        Figure("reward_low", "reward mean - std", "reward", "lower edge of the spread", _edge(-1)),
        Figure("reward_high", "reward mean + std", "reward", "upper edge of the spread", _edge(+1)),
        Figure("mixed", "groups with signal", _SHARE, "kept groups whose rewards differ", mixed, digits=2),
        Figure("groups_kept", "groups kept", "groups", "that trained, zero variance included",
               lambda r: float(r.groups_kept), "count"),
        Figure("groups_dropped", "groups dropped", "groups", "that did not train", lambda r: float(r.groups_dropped),
               "count"),
        Figure("groups_zero_variance", "zero variance", "groups", "kept, all rewards equal: no gradient",
               lambda r: float(r.groups_zero_variance), "count"),
        Figure("trials", "trials", "trials", "of all groups, final tries", lambda r: float(trials(r)), "count"),
        Figure("unscored", "never scored", _SHARE, "trials without a reward, by any cause", _unscored),
        Figure("ppo_loss", "PPO loss", "sum", f"summed {_OVER}; unknown unless the loss is ppo", lambda r: r.ppo_loss),
        Figure("kl_sample_train_v1", "KL v1", "nats/token", f"mean of log q sampler - log p trainer {_OVER}",
               lambda r: r.kl_sample_train_v1, digits=4),
        Figure("kl_sample_train_v2", "KL v2", "nats/token", "half the mean square of the same",
               lambda r: r.kl_sample_train_v2, digits=4),
        Figure("kl_sample_train_k3", "KL k3", "nats/token", "mean of exp(p-q) - 1 - (p-q), never negative",
               lambda r: r.kl_sample_train_k3, digits=4),
        Figure("clip_fraction", "clip fraction", _SHARE, "trained tokens whose ratio left the clip range",
               lambda r: r.clip_fraction),
        Figure("entropy", "entropy", "nats/token", "minus the mean log-prob of sampling", lambda r: r.entropy),
        Figure("grad_norm", "gradient norm", "l2", "before clipping, as the gateway reports it", lambda r: r.grad_norm),
        Figure("learning_rate", "learning rate", "", "of the optimiser step", lambda r: r.learning_rate, digits=2),
        Figure("tokens_sampled", "sampled", "tokens", "by captured calls", lambda r: float(r.tokens_sampled), "count"),
        Figure("tokens_prompt", "prompt", "tokens", "of captured calls", lambda r: float(r.tokens_prompt), "count"),
        Figure("tokens_trained", "trained", "tokens", "action tokens in the batch",
               lambda r: None if r.tokens_trained is None else float(r.tokens_trained), "count"),
        Figure("tokens_per_second", "sampling rate", "tokens/s", "sampled tokens by rollout time", _rate, "count"),
        Figure("seconds_total", "step time", "s", "wall time of the step", lambda r: r.seconds_total, "seconds"),
        Figure("seconds_rollout", "rollout", "s", "until all groups joined", lambda r: r.seconds_rollout, "seconds"),
        Figure("seconds_train", "train", "s", "forward, backward, optimiser", lambda r: r.seconds_train, "seconds"),
        Figure("seconds_save", "save", "s", "weights to the sampler, checkpoints", lambda r: r.seconds_save, "seconds"),
        Figure("seconds_other", "other", "s", "what is left of the step", other_seconds, "seconds"),
        Figure("policy_version", "policy version", "", "optimiser steps behind the weights after this step",
               lambda r: float(r.policy_version)),
    )
}  # fmt: skip
"""By id, in the order of the tables."""


@dataclass(frozen=True)
class Part:
    """A part of a stacked bar: figure or outcome class, its sign in both spellings, role, and name in the legend."""

    id: str
    unicode: str
    ascii: str
    role: str
    name: str

    def sign(self, ascii_only: bool) -> str:
        """The character that fills it."""
        return self.ascii if ascii_only else self.unicode


def _outcome_part(kind: OutcomeClass) -> Part:
    sign = SIGNS.get(kind)
    if kind is OutcomeClass.COMPLETED or sign is None:
        # A calm fill: the letters of what went wrong stand out of it. Full and no reward are not told apart here.
        return Part(kind, "░", ":", "pass", "completed")
    return Part(kind, sign.unicode, sign.ascii, sign.role.removesuffix("+alert"), kind.replace("_", " "))


OTHER_CLASS = "other"
OUTCOME_PARTS: tuple[Part, ...] = (
    *(_outcome_part(kind) for kind in OutcomeClass),
    Part(OTHER_CLASS, SIGNS["unreadable"].unicode, SIGNS["unreadable"].ascii, "zero", "unknown class"),
)
"""Parts of the outcome mix, from the bottom of the bar to its top."""
SECONDS_PARTS: tuple[Part, ...] = (
    Part("seconds_rollout", "░", ":", "accent", "rollout"),
    Part("seconds_train", "▓", "#", "text", "train"),
    Part("seconds_save", "█", "%", "limit", "save"),
    Part("seconds_other", "·", ".", "muted", "other"),
)


@dataclass(frozen=True)
class Chart:
    """One plot.

    Attributes:
        figures: drawn, the first one in front; labels: their names in the legend.
        band: figures of the lower and upper edge of the first figure's spread; std: the figure told after `±`.
        low, high: the scale reaches at least so far; log: a logarithmic axis makes sense.
        form: curves, or stacked bars of outcomes (shares) or of seconds.
    """

    id: str
    title: str
    note: str
    figures: tuple[str, ...]
    labels: tuple[str, ...] = ()
    band: tuple[str, str] | None = None
    std: str | None = None
    low: float | None = None
    high: float | None = None
    log: bool = True
    form: Literal["curve", "outcomes", "seconds"] = "curve"
    words: str = field(default="", repr=False)

    @property
    def main(self) -> Figure:
        """The figure that the title tells."""
        return FIGURES[self.figures[0]]

    @property
    def sources(self) -> frozenset[str]:
        """The journal's figures behind it."""
        return frozenset(self.figures)

    @property
    def text(self) -> str:
        """What it is about, in lower case, for a filter."""
        names = " ".join(FIGURES[f].name for f in self.figures)
        return f"{self.id} {self.title} {self.note} {names} {' '.join(self.figures)} {self.words}".lower()


CHARTS: tuple[Chart, ...] = (
    Chart("reward", "Reward", "mean per step", ("reward_mean",), band=("reward_low", "reward_high"), std="reward_std",
          low=0.0, high=1.0, log=False),
    Chart("loss", "PPO loss", "", ("ppo_loss",)),
    Chart("outcomes", "Outcomes", "share of trials", ("trials",), log=False, form="outcomes",
          words="mix " + " ".join(OutcomeClass)),
    Chart("time", "Step time", "", ("seconds_total", "seconds_rollout", "seconds_train", "seconds_save"), log=False,
          form="seconds", words="split other"),
    Chart("kl", "KL", "nats/token", ("kl_sample_train_v1", "kl_sample_train_v2", "kl_sample_train_k3"),
          ("v1", "v2", "k3"), words="divergence sampler trainer"),
    Chart("clip", "Clip fraction", "", ("clip_fraction",), low=0.0),
    Chart("entropy", "Entropy", "nats/token", ("entropy",), low=0.0),
    Chart("grad", "Gradient norm", "", ("grad_norm",), low=0.0),
    Chart("signal", "Groups with signal", "share of kept", ("mixed",), low=0.0, high=1.0, log=False,
          words="mixed zero variance"),
    Chart("groups", "Groups", "per step", ("groups_kept", "groups_zero_variance", "groups_dropped"),
          ("kept", "zero variance", "dropped"), low=0.0, log=False),
    Chart("unscored", "Never scored", "share of trials", ("unscored",), low=0.0, log=False,
          words="infrastructure failures"),
    Chart("tokens", "Tokens", "per step", ("tokens_sampled", "tokens_trained", "tokens_prompt"),
          ("sampled", "trained", "prompt"), low=0.0),
    Chart("rate", "Sampling rate", "tokens/s", ("tokens_per_second",), low=0.0),
    Chart("lr", "Learning rate", "", ("learning_rate",)),
)  # fmt: skip
"""All plots, the most asked for first."""
CHART: dict[str, Chart] = {chart.id: chart for chart in CHARTS}
