"""Settings of the job that make its figure mean something else than it seems."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from console.bench.rows import counted
from console.bench.running.preflight.agents import thinks
from console.bench.running.preflight.case import Case, number
from console.findings import NOTE, WARNING, Finding

SHORT = 900.0
"""Seconds: the limit of many tasks, too short for a model that thinks at length."""
_MULTIPLIERS = ("timeout_multiplier", "agent_timeout_multiplier")


def rule_findings(case: Case) -> Iterator[Finding]:
    """Retries, time-outs, what is switched off, and how long the model will be there."""
    yield from _retries(case)
    yield from _timeouts(case)
    for key, what in (("install_only", "installs the agents and runs no task"),):
        if case.job.get(key):
            yield Finding(
                code="bench.no_figure",
                level=WARNING,
                object=key,
                message=f"{what}: there will be no figure",
                remedy="set it to false for a benchmark",
            )
    if case.part("verifier").get("disable"):
        yield Finding(
            code="bench.no_figure",
            level=WARNING,
            object="verifier.disable",
            message="is true: no trial is graded, and there will be no figure",
            remedy="set it to false for a benchmark",
        )
    host = _host(case.options.endpoint)
    if host.endswith(".hf.jobs"):
        yield Finding(
            code="bench.hf_jobs",
            level=NOTE,
            object=host,
            message="is a job of limited life, whose --timeout is enforced some time, not at the time (one of 24 h was "
            "ended after 91)",
            remedy="the run asks it for a sign of life and says when it is gone; serve it anew, and mop up with the "
            "new URL",
        )


def _retries(case: Case) -> Iterator[Finding]:
    tries = number(case.part("retry").get("max_retries"), 0.0)
    if tries > 0:
        yield Finding(
            code="bench.retries",
            level=WARNING,
            object="retry.max_retries",
            message=f"is {tries:g}: Harbor deletes the directory of each try that it repeats, and with it what "
            "happened and what it cost",
            remedy="set it to 0 and run failed trials again with bench mop-up, which keeps everything; this run notes "
            "each try's class before it goes",
        )


def _timeouts(case: Case) -> Iterator[Finding]:
    for key in _MULTIPLIERS:
        factor = number(case.job.get(key), 1.0)
        if factor <= 0:
            yield Finding(code="bench.timeout", object=key, message=f"is {factor:g}", remedy="give a number above 0")
        elif factor != 1.0:
            yield Finding(
                code="bench.multiplier",
                level=NOTE,
                object=key,
                message=f"is {factor:g}: the figure is of longer time-outs than the tasks', and leaderboards want 1"
                if factor > 1
                else f"is {factor:g}: the figure is of shorter time-outs than the tasks'",
                remedy="state it beside the figure",
            )
    for index, view, part in case.agents:
        if part.get("override_timeout_sec") is not None and number(part.get("override_timeout_sec"), 1.0) == 0:
            yield Finding(
                code="bench.timeout",
                level=WARNING,
                object=f"agents.{index}.override_timeout_sec",
                message="is 0, which Harbor takes for not set",
                remedy="leave it out, or give seconds above 0",
            )
        limits = [(case.agent_seconds(part, task), task.name) for task in case.tasks or []]
        endless = [name for limit, name in limits if limit is None]
        if endless:
            yield Finding(
                code="bench.endless",
                level=WARNING,
                object=f"agents.{index}",
                message=f"has no time-out in {counted(len(endless), 'task')} ({', '.join(endless[:3])}): one "
                "that hangs holds the run for ever",
                remedy=f"set agents.{index}.max_timeout_sec",
            )
        short = [name for limit, name in limits if limit is not None and limit <= SHORT]
        if short and thinks(view.model):
            yield Finding(
                code="bench.short",
                level=NOTE,
                object="agent_timeout_multiplier",
                message=f"{counted(len(short), 'task')} with {SHORT:.0f} s or less for the agent, and a model that "
                "thinks at length needs more: expect AgentTimeoutError, which counts against it",
                remedy="4 was a fair factor for a 27B model (900 s become 3600); state it beside the figure",
            )


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
