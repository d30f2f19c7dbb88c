"""Alarm rules about trials: what waits, what fails again and again, what hangs, what was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from console.outcomes.classes import SCORED
from console.state.findings import CRITICAL, WARNING, Finding, Look, at, clean, level, name_of, span
from console.state.model import TrialBrief

SINGLE_ALARMS = 3
"""So many trials or tasks with the same trouble are told one by one; more of them in one alarm."""

_LIMITS = {
    "agent_timeout": ("the agent's time-out", "raise the agent's time-out in the trial file, or leave long tasks out"),
    "context_overflow": ("the context window", "serve a longer context, or let the agent summarise"),
    "output_limit": ("the output limit", "raise config.max_tokens"),
}


def held(look: Look) -> Iterator[Finding]:
    """Trials that wait for the operator: one alarm a group."""
    for group in look.state.groups.values():
        waiting = [trial for trial in group.trials if trial.phase == "held"]
        if not waiting:
            continue
        first = min(waiting, key=lambda trial: trial.hold_deadline or 0.0)
        why = " ".join(clean(x) for x in (first.outcome or "", first.cause, first.exception or "") if x)
        more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
        retryable = any(trial.retryable for trial in waiting)
        text = f"{name_of(group, first)} {why}{more}: held"
        consequence = f"the run stops at {at(first.hold_deadline)}" if first.hold_deadline else "the run waits"
        yield Finding(
            key=f"held.g{group.group + 1}",
            level=CRITICAL,
            text=text,
            basis=f"{text}; {consequence}",  # the deadline moves with hold_timeout
            consequence=consequence,
            remedy="retry, or cancel the group" if retryable else "cancel the group",
            action="retry" if retryable else "cancel_group",
        )


def infrastructure(look: Look) -> Iterator[Finding]:
    """Trials fail in their infrastructure too often, or one after the other."""
    limits, ended = look.limits, _ended(look)
    failed = [b for b in ended if b.outcome == "infrastructure"]
    part = len(failed) / len(ended) if ended and len(ended) >= limits.trials_needed else 0.0
    row = ended[-max(1, round(limits.infra_in_a_row)) :]
    in_a_row = len(row) >= limits.infra_in_a_row and all(b.outcome == "infrastructure" for b in row)
    # A row of one task, where other tasks run too, is that task's own trouble.
    in_a_row = in_a_row and (len({b.task for b in row}) > 1 or len({b.task for b in ended}) == 1)
    if not in_a_row and (not part or part < limits.infra_share):
        return
    shown = failed if part >= limits.infra_share else row
    commonest, _ = Counter(clean(b.exception or b.cause or "unknown") for b in shown).most_common(1)[0]
    consequence = {"hold": "each waits for the operator", "retry": "each costs a further try"}
    yield Finding(
        key="trials.infrastructure",
        level=level(in_a_row or part >= limits.infra_critical_share),
        text=f"{len(failed)} of the last {len(ended)} trials failed in their infrastructure, mostly {commonest}",
        consequence=consequence.get(look.state.on_failure, "such a failure stops the run"),
        remedy="lower the parallelism, and look at the sandboxes"
        if look.state.paused
        else "pause dispatch, lower the parallelism, and look at the sandboxes",
        action="set" if look.state.paused else "pause",
        figure=len(failed) / len(ended),
    )


def same_failure(look: Look) -> Iterator[Finding]:
    """A task fails with the same exception each time, and others do not: no passing trouble."""
    needed = max(2, round(look.limits.same_failures))
    ended = _ended(look)

    def fails(tries: list[TrialBrief]) -> bool:
        last = tries[-needed:]
        what = last[-1].exception
        if len(last) < needed or not what or any(b.exception != what or b.outcome in SCORED for b in last):
            return False
        others = Counter(b.task for b in ended if b.exception == what and b.task != last[-1].task)
        return all(count < needed for count in others.values())

    yield from _by_task(
        look,
        "task.failing",
        fails,
        lambda tries: f"ended {needed} times in a row with {clean(tries[-1].exception)}: not transient",
        consequence="trying it again will not help; its groups are lost",
    )


def verifier_broken(look: Look) -> Iterator[Finding]:
    """The verifier of a task gives no usable rewards."""
    needed = max(1, round(look.limits.bad_rewards))

    def broken(tries: list[TrialBrief]) -> bool:
        bad = sum(b.outcome == "bad_reward" for b in tries)
        return tries[-1].outcome == "bad_reward" and (bad >= needed or (bad == len(tries) >= 2))

    yield from _by_task(
        look,
        "verifier.broken",
        broken,
        lambda tries: f"{sum(b.outcome == 'bad_reward' for b in tries)} of {len(tries)} trials got no usable reward",
        consequence="its trials cannot be trained",
    )


def _by_task(
    look: Look,
    key: str,
    wrong: Callable[[list[TrialBrief]], bool],
    text: Callable[[list[TrialBrief]], str],
    consequence: str,
) -> Iterator[Finding]:
    """One finding a task, or one for all when there are many."""
    tasks: dict[str, list[TrialBrief]] = {}
    for brief in _ended(look):
        tasks.setdefault(brief.task, []).append(brief)
    found = {task: tries for task, tries in tasks.items() if wrong(tries)}
    if len(found) <= SINGLE_ALARMS:
        for task, tries in found.items():
            yield Finding(
                key=f"{key}.{clean(task)}",
                level=WARNING,
                text=f"task {clean(task)}: {text(tries)}",
                consequence=consequence,
                remedy="quarantine the task, and look at it",
                action="quarantine",
                figure=1.0,
            )
        return
    names = ", ".join(clean(task, 30) for task in list(found)[:SINGLE_ALARMS])
    what = "give no usable rewards" if key == "verifier.broken" else "fail the same way each time"
    yield Finding(
        key=f"{key}.many",
        level=CRITICAL,
        text=f"{len(found)} tasks {what}, first {names}",
        consequence=consequence,
        remedy="pause dispatch, and look at what the tasks share",
        action="pause",
        figure=float(len(found)),
    )


def stalled(look: Look) -> Iterator[Finding]:
    """Trials that stay in a phase of the sandbox for long, and agents that finish no model call."""
    limits = look.limits
    found: list[tuple[str, str, float]] = []
    for group, trial in look.trials:
        if trial.phase in ("create", "environment", "setup", "verify", "teardown"):
            if look.now - trial.phase_since >= limits.stall_seconds:
                found.append((name_of(group, trial), trial.phase, limits.stall_seconds))
        elif trial.phase == "agent" and not look.away and look.now - trial.last_event >= limits.agent_idle_seconds:
            found.append((name_of(group, trial), "agent", limits.agent_idle_seconds))
    if len(found) <= SINGLE_ALARMS:
        for name, phase, limit in found:
            what = "no model call ended" if phase == "agent" else f"in {phase}"
            yield Finding(
                key=f"stalled.{name}",
                level=WARNING,
                text=f"{name}: {what} for more than {span(limit)}",
                consequence="its group, and with it the step, waits for it",
                remedy="cancel the trial if its sandbox is dead",
                action="cancel_trial",
            )
        return
    names = ", ".join(f"{name} ({phase})" for name, phase, _ in found[:SINGLE_ALARMS])
    yield Finding(
        key="stalled.many",
        level=WARNING,
        text=f"{len(found)} trials stall, first {names}",
        consequence="the step waits for them",
        remedy="pause dispatch, and look at the sandboxes and the gateway",
        action="pause",
        figure=float(len(found)),
    )


def at_limits(look: Look) -> Iterator[Finding]:
    """Many trials end at one and the same limit instead of by themselves."""
    limits, ended = look.limits, _ended(look)
    if not ended or len(ended) < limits.trials_needed:
        return
    for outcome, (name, remedy) in _LIMITS.items():
        count = sum(b.outcome == outcome for b in ended)
        if count and count / len(ended) >= limits.limit_share:
            yield Finding(
                key=f"limit.{outcome}",
                level=level(count / len(ended) >= limits.limit_critical_share),
                text=f"{count} of the last {len(ended)} trials ended at {name}",
                consequence="rewards of unfinished work are trained on",
                remedy=remedy,
                figure=count / len(ended),
            )


def _ended(look: Look) -> list[TrialBrief]:
    """The last tries that ended by themselves, without those of tasks that are left out by now."""
    out = look.state.quarantined
    return [b for b in look.state.recent if b.outcome != "cancelled" and b.task not in out]


WHATEVER = (held,)
WHILE_LIVE = (infrastructure, same_failure, verifier_broken, stalled, at_limits)
