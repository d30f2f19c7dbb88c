"""What the installed Harbor says about a job, asked in a process of its own; see `console.trials.job_check`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from console.errors import QuarterdeckError
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
    root = str(Path(__file__).resolve().parents[3])
    path = environment.get("PYTHONPATH")
    variables = {
        **environment,
        "PYTHONPATH": f"{root}{os.pathsep}{path}" if path else root,
        "HARBOR_TELEMETRY": "0",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    command = [sys.executable, "-P", "-m", "console.trials.job_check"]
    try:
        done = subprocess.run(
            command, input=json.dumps(job).encode(), capture_output=True, env=variables, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise QuarterdeckError(f"Harbor did not say within {SECONDS:.0f} s whether it takes the job") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise QuarterdeckError(f"Harbor cannot be asked about the job: {said[-1][:300]}")
    return msgspec.json.decode(done.stdout, type=HarborView)
