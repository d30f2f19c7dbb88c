"""What the installed Harbor says about a job, asked in a process of its own; see `console.trials.job_check`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from console.bench.asking import ask_module
from console.findings import Finding

SECONDS = 120.0
"""A first import on a slow disk takes 20."""


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
    """One agent of the job as Harbor resolves it.

    Attributes:
        name: or import path; model: as the job names it.
        side: who calls the model: the host, a program in the sandbox, none, or unknown for an agent by import path.
        endpoint: base URL that somebody gave, "" for the provider's own; endpoint_from: the variable that has it.
        key_name: variable that the key came from; key: whether there is one; wanted: where it is looked for.
        format: of the API that is spoken, as Harbor calls it; options: names of the agent's own options.
        provider, model_id: what LiteLLM reads in the model's name: whom it asks, and for which model; provider is ""
            where it does not know one.
    """

    name: str = ""
    model: str = ""
    side: str = "unknown"
    endpoint: str = ""
    endpoint_from: str = ""
    key_name: str = ""
    key: bool = False
    wanted: list[str] = []
    format: str = ""
    options: list[str] = []
    provider: str = ""
    model_id: str = ""


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """A task that lies on this machine: its name in filters, and its directory."""

    name: str
    path: str


class HarborView(msgspec.Struct, frozen=True, kw_only=True):
    """Attributes:
    harbor: version; valid: whether it takes the job; findings: what is wrong or doubtful.
    job: the job with every default filled in, empty when it is not valid.
    tasks: of local datasets, as Harbor would filter them; None where some are known to the network only.
    """

    harbor: str = ""
    valid: bool = False
    findings: list[Finding] = []
    job: dict[str, Any] = {}
    agents: list[AgentView] = []
    tasks: list[TaskView] | None = None


def ask_harbor(job: Mapping[str, Any], environment: Mapping[str, str]) -> HarborView:
    """Validate a job, resolve its agents and local tasks, and ask the preflights of agents and environment (1 to 5 s).

    Args:
        job: without secrets; environment: variables that Harbor will have.

    Raises:
        QuarterdeckError: Harbor itself cannot be loaded, or did not answer.
    """
    said = ask_module("console.trials.job_check", json.dumps(job).encode(), SECONDS, environment)
    return msgspec.json.decode(said, type=HarborView)
