"""Sandboxes: images, limits, and how many at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psutil
from packaging.version import InvalidVersion, Version

from console.bench.rows import counted
from console.bench.running.preflight.case import BWRAP, Case, number
from console.findings import NOTE, WARNING, Finding
from console.training.preflight_sandboxes import HOBBY_LEASE, HOBBY_SANDBOXES, PRO_LEASE

HF = "hf-sandbox"
HF_AT_ONCE = 3
"""Of eight at a time about 70 % failed, of three few."""
HF_IDLE = 600.0
"""Seconds after which a sandbox in which no command begins is ended, unless `job_timeout` says otherwise."""
_HF_FIXED = Version("0.22.1.dev202609020403")
"""The first Harbor whose commands in these sandboxes run in bash."""
_NEEDS_IMAGE = frozenset({HF, "modal", "runloop", "e2b", "daytona", "novita", "islo", "tensorlake", "beam", "blaxel"})
_DURATION, _PART = re.compile(r"(?:\d+[smhd])*(?:\d+)?"), re.compile(r"(\d+)([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_LISTED = 3
_RESERVE = 0.9


def sandbox_findings(case: Case) -> Iterator[Finding]:
    """Whether the sandboxes fit the agents, the tasks and this machine."""
    yield from _images(case)
    yield from _concurrency(case)
    if case.kind == HF:
        yield from _hf(case)
    if case.kind == "e2b":
        yield from _e2b(case)
    if case.part("environment").get("delete") is False:
        yield Finding(
            code="bench.kept_sandboxes",
            level=WARNING,
            object="environment.delete",
            message="is false: each sandbox stays when its trial has ended"
            + (", and is paid for until it runs out" if case.remote else ""),
            remedy="set it to true unless you want to look into them; `quarterdeck reap` removes what was left",
        )


def _images(case: Case) -> Iterator[Finding]:
    """Sandboxes elsewhere cannot see a Dockerfile that lies here; some build it, hf-sandbox does not."""
    if not case.remote or case.kind not in _NEEDS_IMAGE:
        return
    if case.tasks is None:
        if case.kind == HF:
            yield Finding(
                code="bench.images_unknown",
                level=NOTE,
                object="datasets",
                message="whether each task names a prebuilt docker_image, which hf-sandbox needs, is not known before "
                "they are fetched (those of Terminal-Bench 2.0 and 2.1 do)",
                remedy="begin with one task",
            )
        return
    without = [task.name for task in case.tasks if not task.part("environment").get("docker_image")]
    if without:
        yield Finding(
            code="bench.docker_image",
            level="error" if case.kind == HF else WARNING,
            object="environment.docker_image",
            message=f"is not set in the task.toml of {_some(without, len(case.tasks))}: "
            + ("hf-sandbox builds nothing" if case.kind == HF else f"{case.kind} builds an image of each first"),
            remedy="name a prebuilt image there, leave these tasks out (exclude_task_names), or use docker"
            if case.kind == HF
            else "expect the first trial of each to take longer, or name a prebuilt image",
        )


def _concurrency(case: Case) -> Iterator[Finding]:
    many = case.at_once
    if case.kind == HF and many > HF_AT_ONCE:
        yield Finding(
            code="bench.concurrency",
            level=WARNING,
            object="n_concurrent_trials",
            message=f"is {many}: with 8 hosted sandboxes at a time about 70 % of the trials failed (SandboxError, "
            "InternalServerError, ReadTimeout), with 3 few",
            remedy=f"set it to {HF_AT_ONCE}; it is slower and more reliable",
        )
    if case.kind == "e2b" and many > HOBBY_SANDBOXES:
        yield Finding(
            code="bench.concurrency",
            level=WARNING,
            object="n_concurrent_trials",
            message=f"is {many}, and E2B grants {HOBBY_SANDBOXES} sandboxes at once on the Hobby plan: the rest wait, "
            "and fail when they wait longer than their task's build timeout",
            remedy="lower it, or make sure of the account's limit",
        )
    if case.remote:
        return
    if many > case.cores:
        yield Finding(
            code="bench.concurrency",
            level=WARNING,
            object="n_concurrent_trials",
            message=f"is {many}, and this machine has {case.cores} cores: sandboxes that wait for each other run into "
            "time-outs, which count against the agent",
            remedy=f"set it to {case.cores} or less, or use sandboxes elsewhere (environment.type=hf-sandbox, e2b)",
        )
    asked = sorted((number(task.part("environment").get("memory_mb"), 0.0) for task in case.tasks or []), reverse=True)
    at_once, there = sum(asked[:many]) * 1e6, psutil.virtual_memory().total * _RESERVE
    if at_once > there and case.kind != BWRAP:
        yield Finding(
            code="bench.memory",
            level=WARNING,
            object="n_concurrent_trials",
            message=f"is {many}: the largest tasks ask for {at_once / 1e9:.0f} GB together, and this machine has "
            f"{psutil.virtual_memory().total / 1e9:.0f}",
            remedy="lower it",
        )


def _hf(case: Case) -> Iterator[Finding]:
    try:
        old = Version(case.view.harbor) < _HF_FIXED
    except InvalidVersion:
        old = False
    if old:
        yield Finding(
            code="bench.dash",
            object="harbor",
            message=f"{case.view.harbor} runs commands in dash there, and `set -o pipefail` fails in every trial",
            remedy="install 0.22.1.dev202609020403 or later; 0.26 is fine",
        )
    idle = idle_seconds(case.part("environment").get("kwargs", {}).get("job_timeout"))
    for _, view, part in case.agents:
        if view.side != "sandbox" or idle is None:
            continue
        if case.tasks is None:
            if idle > HF_IDLE:
                continue
            said = "its time-out"
        else:
            limits = [(case.agent_seconds(part, task), task.name) for task in case.tasks]
            endless = any(limit is None for limit, _ in limits)
            longest, name = max(((limit or 0.0, name) for limit, name in limits), default=(0.0, ""))
            if not endless and longest <= idle:
                continue
            said = "any time" if endless else f"{longest:.0f} s ({name})"
        yield Finding(
            code="bench.idle",
            object="environment.kwargs.job_timeout",
            message=f"is {idle:.0f} s{'' if idle != HF_IDLE else ' unless set'}, after which hf-sandbox ends an idle "
            f"sandbox; {view.name} works in one long command, which looks idle, for up to {said}",
            remedy="set it above the agent's limit, e.g. 2h for 3600 s",
        )
    yield Finding(
        code="bench.hf_logs",
        level=NOTE,
        object="environment.type",
        message="hf-sandbox: why a sandbox died is told in its own job's log, not in Harbor's",
        remedy="hf jobs ps -a lists them, hf jobs logs ID shows one; look for `idle for ... ms, shutting down`",
    )


def idle_seconds(value: object) -> float | None:
    """What `job_timeout` comes to in seconds; None when it is off."""
    if value is None:
        return HF_IDLE
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    text = str(value).strip().lower()
    if text in ("", "none", "off"):
        return None
    if _DURATION.fullmatch(text) is None:
        return HF_IDLE
    return float(sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(text)))


def _e2b(case: Case) -> Iterator[Finding]:
    """E2B ends a sandbox after its plan's longest lease, whatever is renewed."""
    for index, _, part in case.agents:
        limits = [(case.agent_seconds(part, task), task.name) for task in case.tasks or []]
        longest = max(((limit, name) for limit, name in limits if limit is not None), default=(0.0, ""))
        if longest[0] > HOBBY_LEASE:
            yield Finding(
                code="bench.lease",
                level=WARNING if longest[0] <= PRO_LEASE else "error",
                object=f"agents.{index}",
                message=f"may take {longest[0]:.0f} s ({longest[1]}), and E2B ends a sandbox after {HOBBY_LEASE} s on "
                f"the Hobby plan, {PRO_LEASE} s on Pro, whatever is renewed",
                remedy="make sure of the account's plan, or lower the multiplier",
            )


def _some(names: list[str], of: int) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{len(names)} of {counted(of, 'task')} ({', '.join(names[:_LISTED])}{more})"
