"""Alarm rules about learning: each judges the last finished steps against fixed bounds and the run's own start."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from console.state.findings import CRITICAL, WARNING, Finding, Look, clean, column, level, share

SIGNAL_STEPS = 2
NO_SIGNAL_STEPS = 3
IN_A_ROW = 2
"""Steps in a row that a drift must last before it warns; one step is enough for what is critical."""
DROP_NOW, DROP_BEFORE = 3, 10


def no_signal(look: Look) -> Iterator[Finding]:
    """Groups whose rewards are all equal give no gradient. When that is so because tasks are solved, all is well."""
    rows, limit = look.rows[-NO_SIGNAL_STEPS:], look.limits.no_signal_share
    without = [row.groups_zero_variance / row.groups_kept if row.groups_kept else 0.0 for row in rows]
    last, solved = without[-SIGNAL_STEPS:], look.solved
    none = len(without) == NO_SIGNAL_STEPS and min(without) == 1.0
    if len(last) < SIGNAL_STEPS or not min(last) or min(last) < limit or (solved and not none):
        return
    text = f"{share(limit)} or more of the groups have no reward spread"
    remedy = "tasks may be too easy, too hard, or their verifiers broken"
    if none:
        text = f"no group had a reward spread in {NO_SIGNAL_STEPS} steps"
    if solved:
        text, remedy = f"{text}: the tasks are solved", "stop, or take harder tasks"
    yield Finding(
        key="learning.no_signal",
        level=level(none and not solved),
        text=text,
        consequence="nothing is learnt" if none else "no gradient from these groups",
        remedy=remedy,
        action="stop_after_step" if none else "",
        clear=look.settle,
    )


def nonfinite(look: Look) -> Iterator[Finding]:
    """A figure of the last step is NaN or infinite."""
    if look.rows and look.rows[-1].nonfinite:
        row = look.rows[-1]
        names = ", ".join(clean(name) for name in row.nonfinite[:6])
        yield Finding(
            key="learning.nonfinite",
            level=CRITICAL,
            text=f"step {row.step}: not finite: {names}",
            consequence="the weights may be broken, and the next checkpoint with them",
            remedy="stop now, and resume from an earlier checkpoint",
            action="stop_now",
            basis=names,
        )


def kl(look: Look) -> Iterator[Finding]:
    """The sampler's policy and the trainer's move apart."""
    limits, values = look.limits, column(look.rows[-IN_A_ROW:], "kl_sample_train_v1")
    if not values:
        return
    first, last = look.first("kl_sample_train_v1"), values[-1]
    usual = None if first is None else max(first, 0.0)
    bad = last > limits.kl_critical or (
        usual is not None and last > limits.kl and last > limits.kl_critical_factor * usual
    )
    warns = len(values) == IN_A_ROW and usual is not None and min(values) > max(limits.kl, limits.kl_factor * usual)
    if bad or warns:
        before = "" if usual is None else f", {usual:.2g} in the first steps"
        yield Finding(
            key="learning.kl",
            level=level(bad),
            text=f"step {look.rows[-1].step}: KL between sampler and trainer {last:.2g}{before}",
            consequence="the update fits another policy than the one that sampled",
            remedy="check renderer and sampling temperature; a lower learning rate helps against drift",
            action="stop_after_step" if bad else "",
            clear=look.settle,
            figure=last,
        )


def clipped(look: Look) -> Iterator[Finding]:
    """Many tokens leave the clip range."""
    limits, values = look.limits, column(look.rows[-IN_A_ROW:], "clip_fraction")
    if not values:
        return
    last = values[-1]
    bad = last > limits.clip_critical_share
    if bad or (len(values) == IN_A_ROW and min(values) > limits.clip_share):
        yield Finding(
            key="learning.clip",
            level=level(bad),
            text=f"step {look.rows[-1].step}: {share(last)} of the trained tokens are clipped",
            consequence="they give no gradient",
            remedy="lower the learning rate or the number of substeps, and check the KL",
            clear=look.settle,
            figure=last,
        )


def entropy(look: Look) -> Iterator[Finding]:
    """The policy's entropy collapses or explodes. That it falls while rewards rise is what learning looks like."""
    limits, first = look.limits, look.first("entropy")
    values = column(look.rows[-IN_A_ROW:], "entropy")
    if not first or first < 0 or not values:
        return
    last, ratios = values[-1], [value / first for value in values]
    for side, bad, warns in (
        ("low", ratios[-1] < limits.entropy_low_critical, max(ratios) < limits.entropy_low),
        ("high", ratios[-1] > limits.entropy_high_critical, min(ratios) > limits.entropy_high),
    ):
        if side == "low" and (look.rising or look.solved):
            continue
        if bad or (warns and len(ratios) == IN_A_ROW):
            yield Finding(
                key=f"learning.entropy_{side}",
                level=level(bad),
                text=f"step {look.rows[-1].step}: entropy {last:.2g}, {share(ratios[-1])} of that of the first steps",
                consequence="the policy tries nothing new" if side == "low" else "the policy falls apart",
                remedy="lower the learning rate; resume from an earlier checkpoint if rewards fall",
                action="stop_after_step" if bad else "",
                clear=look.settle,
                figure=ratios[-1],
            )


def gradient(look: Look) -> Iterator[Finding]:
    """One gradient is far larger than those before it."""
    values = column(look.rows[-21:], "grad_norm")
    if len(values) < 6 or look.rows[-1].grad_norm != values[-1]:
        return
    last, usual = values[-1], statistics.median(values[:-1])
    if usual > 0 and last > look.limits.grad_factor * usual:
        yield Finding(
            key="learning.gradient",
            level=level(last > look.limits.grad_critical_factor * usual),
            text=f"step {look.rows[-1].step}: gradient norm {last:.2g}, usually {usual:.2g}",
            consequence="one step can undo many",
            remedy="look at the rewards and lengths of this batch; a lower learning rate bounds the damage",
            clear=look.settle,
            figure=last / usual,
        )


def reward_drop(look: Look) -> Iterator[Finding]:
    """The reward falls far below its moving mean, and further than it varies from step to step."""
    values = column(look.rows[-(DROP_NOW + DROP_BEFORE) :], "reward_mean")
    if len(values) < DROP_NOW + DROP_BEFORE:
        return
    before, now = values[:-DROP_NOW], statistics.fmean(values[-DROP_NOW:])
    mean = statistics.fmean(before)
    drop = mean - now
    if drop > 0 and drop >= look.limits.reward_drop * abs(mean) and drop > 2.0 * statistics.pstdev(before):
        yield Finding(
            key="learning.reward_drop",
            level=WARNING,
            text=f"step {look.rows[-1].step}: reward {now:.3g} over {DROP_NOW} steps, {mean:.3g} over the "
            f"{DROP_BEFORE} before",
            consequence="the policy may have collapsed",
            remedy="look at transcripts, entropy and KL; resume from an earlier checkpoint if it stays",
            clear=look.settle,
            figure=abs(now),
        )


WHILE_LIVE = (no_signal, nonfinite, kl, clipped, entropy, gradient, reward_drop)
