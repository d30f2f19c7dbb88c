"""What can be refused of rented sandboxes before one is rented: the account's limits, leases, images and the key.

E2B's limits are those of its plans as published; which plan an account has is not known here, so that what only the
smaller plan forbids is a warning.
"""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from console.errors import UsageError
from console.findings import NOTE, WARNING, Finding
from console.training.options import RunOptions
from console.training.tasks import find_tasks
from console.training.trial_config import environment_of

HOBBY_LEASE, PRO_LEASE = 3600, 24 * 3600
"""Seconds that E2B lets a sandbox live, whatever is renewed."""
HOBBY_SANDBOXES, PRO_SANDBOXES = 20, 100
"""Sandboxes at once; Pro accounts can buy more."""

_LEASE, _RENEWAL = 3600, 600.0  # Harbor's defaults for E2B
_AGENT_SETUP, _VERIFIER = 360.0, 600.0  # Harbor's defaults, in seconds
_MARGIN = 300.0  # uploads, downloads, a slow service
_KEY = re.compile(r"e2b_[0-9a-fA-F]{8,}")
_PARTS = {"e2b": "e2b", "dockerfile_parse": "dockerfile-parse"}
_FROM = re.compile(r"^\s*FROM\s", re.IGNORECASE | re.MULTILINE)
_COPY_FROM = re.compile(r"^\s*(?:COPY|ADD)\s+(?:--\S+\s+)*--from=", re.IGNORECASE | re.MULTILINE)
_LISTED = 3


class _Task(NamedTuple):
    """A task's name and directory, and its `task.toml`."""

    path: Path
    config: Mapping[str, Any]

    def part(self, name: str) -> Mapping[str, Any]:
        part = self.config.get(name)
        return part if isinstance(part, Mapping) else {}


def sandbox_findings(options: RunOptions, trial: Mapping[str, Any], env: Mapping[str, str]) -> list[Finding]:
    """Findings about E2B sandboxes; none for other environments. Reads the tasks, starts and asks nothing.

    Args:
        trial: the trial file's object.
        env: environment variables of the process that will run Harbor.
    """
    if environment_of(trial) != "e2b":
        return []
    tasks = _tasks(options)
    return [
        *_account(env),
        *_parts(tasks, trial),
        *_lease(tasks, trial),
        *_concurrency(options),
        *_images(tasks, trial),
        *_network(tasks, trial),
    ]


def _tasks(options: RunOptions) -> list[_Task]:
    """Those that can be read; the others are found by whoever reads them for good."""
    found = []
    try:
        paths = find_tasks(options.tasks_dir)
    except (UsageError, OSError):
        return []
    for path in paths:
        try:
            found.append(_Task(path, tomllib.loads((path / "task.toml").read_text(encoding="utf-8"))))
        except (OSError, ValueError):
            continue
    return found


def _account(env: Mapping[str, str]) -> Iterator[Finding]:
    key = env.get("E2B_API_KEY", "").strip()
    if key.startswith("sk_e2b_"):
        yield Finding(
            code="sandbox.e2b_key",
            object="E2B_API_KEY",
            message="is an access token, not an API key",
            remedy="export the team's API key, which begins with e2b_",
        )
    elif key and not _KEY.fullmatch(key):
        yield Finding(
            code="sandbox.e2b_key",
            level=WARNING,
            object="E2B_API_KEY",
            message="does not look like an API key of E2B, which is e2b_ and hexadecimal digits",
            remedy="copy it anew from the dashboard",
        )
    if env.get("E2B_DEBUG", "").strip().lower() == "true":
        yield Finding(
            code="sandbox.e2b_debug",
            object="E2B_DEBUG",
            message="makes the SDK neither create nor remove sandboxes",
            remedy="unset it",
        )


def _parts(tasks: list[_Task], trial: Mapping[str, Any]) -> Iterator[Finding]:
    for module, package in _PARTS.items():
        if importlib.util.find_spec(module) is None:
            yield Finding(
                code="sandbox.e2b_package",
                object="harbor.trial_config",
                message=f"environment.type e2b needs the package {package}, which is not installed",
                remedy=f"pip install {package}",
            )


def _lease(tasks: list[_Task], trial: Mapping[str, Any]) -> Iterator[Finding]:
    lease = _number(_kwargs(trial).get("sandbox_timeout_sec", _kwargs(trial).get("sandbox_timeout_secs")), _LEASE)
    renewal = _number(_kwargs(trial).get("renew_interval_sec", _kwargs(trial).get("renew_interval")), _RENEWAL)
    where = "environment.kwargs.sandbox_timeout_sec"
    if lease > HOBBY_LEASE:
        plan = "no plan" if lease > PRO_LEASE else "the Hobby plan"
        yield Finding(
            code="sandbox.lease",
            level=WARNING if lease <= PRO_LEASE else "error",
            object=where,
            message=f"is {_duration(lease)}, which {plan} of E2B grants: the create would be refused"
            if plan == "no plan"
            else f"is {_duration(lease)}; on {plan} E2B refuses more than {_duration(HOBBY_LEASE)}",
            remedy=f"set it to {HOBBY_LEASE} or less, it is renewed anyway",
        )
    needed, why = _needed(tasks, trial)
    if needed is None:
        yield Finding(
            code="sandbox.no_limit",
            level=WARNING,
            object="agent.override_timeout_sec",
            message=f"is not set, and {why} sets no limit of its own: E2B ends a sandbox after "
            f"{_duration(HOBBY_LEASE)} (Hobby) or {_duration(PRO_LEASE)} (Pro)",
            remedy="set it",
        )
        return
    if renewal <= 0 and needed > lease:
        yield Finding(
            code="sandbox.lease",
            object=where,
            message=f"is {_duration(lease)} and is not renewed, while a trial may take {_duration(needed)} ({why})",
            remedy="let environment.kwargs.renew_interval_sec be above 0, or raise it",
        )
    if needed > HOBBY_LEASE:
        yield Finding(
            code="sandbox.plan_lease",
            level=WARNING if needed <= PRO_LEASE else "error",
            object="agent.override_timeout_sec",
            message=f"a trial may take {_duration(needed)} ({why}), and E2B ends a sandbox after "
            f"{_duration(HOBBY_LEASE)} on the Hobby plan, {_duration(PRO_LEASE)} on Pro, whatever is renewed",
            remedy="lower the agent's limit, or make sure of the account's plan"
            if needed <= PRO_LEASE
            else "lower the agent's limit",
        )


def _needed(tasks: list[_Task], trial: Mapping[str, Any]) -> tuple[float | None, str]:
    """Seconds that the longest trial may take, None for no limit, and what they are made of or whose they are."""
    agent, verifier = _part(trial, "agent"), _part(trial, "verifier")
    longest, made_of = 0.0, ""
    for task in tasks or [_Task(Path("the task"), {})]:
        limit = _limit(agent, task.part("agent").get("timeout_sec"), _multiplier(trial, "agent"))
        if limit is None:
            return None, task.path.name
        judged = _limit(verifier, _number(task.part("verifier").get("timeout_sec"), _VERIFIER), 1.0)
        judged = (judged or _VERIFIER) * _multiplier(trial, "verifier")
        setup = _number(agent.get("override_setup_timeout_sec"), _AGENT_SETUP) * _multiplier(trial, "agent_setup")
        total = setup + limit + judged + _MARGIN
        if total > longest:
            parts = {"setup": setup, "agent": limit, "verifier": judged, "margin": _MARGIN}
            longest, made_of = total, " + ".join(f"{_duration(value)} {name}" for name, value in parts.items())
    return longest, made_of


def _limit(config: Mapping[str, Any], of_task: Any, multiplier: float) -> float | None:
    """As Harbor finds it: the override, which 0 is not, or the task's, at most the maximum, times the multiplier."""
    base = _number(config.get("override_timeout_sec"), 0.0) or _number(of_task, 0.0)
    most = _number(config.get("max_timeout_sec"), 0.0)
    if not base and not most:
        return None
    return (min(base or most, most or base)) * multiplier


def _concurrency(options: RunOptions) -> Iterator[Finding]:
    groups = options.value("config.dataset_builder.groups_per_batch")
    size = options.value("config.dataset_builder.group_size")
    most = groups * min(size, options.harbor.max_parallel_trials_per_group)
    if most > HOBBY_SANDBOXES:
        above = f"{PRO_SANDBOXES} at once on Pro unless more were bought" if most > PRO_SANDBOXES else "more on Pro"
        yield Finding(
            code="sandbox.concurrency",
            level=WARNING,
            object="harbor.max_parallel_trials_per_group",
            message=f"{most} sandboxes may run at once ({groups} groups), and E2B grants {HOBBY_SANDBOXES} on the "
            f"Hobby plan, {above}: the rest waits, and fails when it waits longer than its task's build timeout",
            remedy="lower it, or make sure of the account's limit",
        )


def _images(tasks: list[_Task], trial: Mapping[str, Any]) -> Iterator[Finding]:
    """Images that E2B cannot build, and how many there are to build."""
    if _kwargs(trial).get("prebuilt_template_id") is not None:
        return
    images, refused = set(), {}
    for task in tasks:
        environment, dockerfile = task.part("environment"), task.path / "environment/Dockerfile"
        image = environment.get("docker_image")
        try:
            text = "" if image else dockerfile.read_text(encoding="utf-8", errors="replace")
        except OSError:
            refused[task.path.name] = "has neither docker_image nor environment/Dockerfile"
            continue
        if len(_FROM.findall(text)) > 1 or _COPY_FROM.search(text):
            refused[task.path.name] = "has a Dockerfile of several stages, which E2B does not build"
        cpus = environment.get("cpus")
        if isinstance(cpus, float) and not cpus.is_integer():
            refused[task.path.name] = f"asks for {cpus:g} cpus, and E2B rents whole ones"
        images.add((image or text, cpus, environment.get("memory_mb")))
    for name, why in list(refused.items())[:_LISTED]:
        more = f" ({len(refused) - _LISTED} more tasks have such faults)" if len(refused) > _LISTED else ""
        yield Finding(
            code="sandbox.image",
            object=name,
            message=f"{why}{more}",
            remedy="change the task, leave it out, or use another environment",
        )
    if len(images) > 1:
        yield Finding(
            code="sandbox.templates",
            level=NOTE,
            object="config.dataset_builder.tasks_dir",
            message=f"has {len(images)} images, each of which E2B builds as a template when it is used first",
            remedy="the first step takes longer; a build counts against its task's build timeout",
        )


def _network(tasks: list[_Task], trial: Mapping[str, Any]) -> Iterator[Finding]:
    """Harbor lets agents reach their model's host by itself, but not this one when it has a config of its own."""
    agent = _part(trial, "agent")
    if agent.get("name") != "mini-swe-agent" or not _part(agent, "kwargs").get("config"):
        return
    if agent.get("extra_allowed_hosts") or _part(trial, "environment").get("extra_allowed_hosts"):
        return
    closed = [
        task.path.name
        for task in tasks
        if {task.part("environment").get("network_mode"), task.part("agent").get("network_mode")}
        & {"no-network", "allowlist"}
        or task.part("environment").get("allow_internet") is False
    ]
    if closed:
        yield Finding(
            code="sandbox.network",
            level=WARNING,
            object="agent.extra_allowed_hosts",
            message=f"is empty, and {len(closed)} tasks restrict the network ({', '.join(closed[:_LISTED])}): their "
            "agents cannot reach the capture gateway",
            remedy="list the advertised host there",
        )


def _part(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = config.get(name)
    return part if isinstance(part, Mapping) else {}


def _kwargs(trial: Mapping[str, Any]) -> Mapping[str, Any]:
    return _part(_part(trial, "environment"), "kwargs")


def _multiplier(trial: Mapping[str, Any], phase: str) -> float:
    return _number(trial.get(f"{phase}_timeout_multiplier"), _number(trial.get("timeout_multiplier"), 1.0))


def _number(value: Any, otherwise: float) -> float:
    """`otherwise` for what is missing or no number: Harbor's own check names that."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else otherwise


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:g} s"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours and rest else f"{hours} h" if hours else f"{rest} min"
