"""All checks of a benchmark run, in the order in which they help."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

import msgspec

from console.bench.running.harbor_view import HarborView, ask_harbor
from console.bench.running.options import BenchOptions
from console.bench.running.preflight.agents import rewired, variable_findings, wiring_findings
from console.bench.running.preflight.case import Case, Task, read_tasks
from console.bench.running.preflight.datasets import dataset_findings
from console.bench.running.preflight.endpoint import endpoint_findings, key_variable
from console.bench.running.preflight.places import place_findings, room_finding
from console.bench.running.preflight.rules import rule_findings
from console.bench.running.preflight.sandboxes import sandbox_findings
from console.bench.running.preflight.twice import twice_findings
from console.errors import QuarterdeckError
from console.findings import Finding, errors

Check = Callable[[Case], Iterator[Finding]]
CHECKS: tuple[Check, ...] = (
    rewired,
    twice_findings,
    variable_findings,
    wiring_findings,
    sandbox_findings,
    dataset_findings,
    rule_findings,
)
"""Those that ask nobody: quick, of the job, the tasks and this machine."""

_WIRING = {"bench.key", "bench.variable", "bench.base_url", "bench.messages", "bench.wiring", "bench.placeholder"}


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """Attributes:
    options: those given, with the endpoint and the key's name as Harbor resolves them; findings: worst not first.
    view: what Harbor said; tasks: those that lie here.
    """

    options: BenchOptions
    findings: list[Finding]
    view: HarborView
    tasks: list[Task] | None = None

    @property
    def trials(self) -> int | None:
        """How many the job has, None where only the network knows its tasks."""
        if self.tasks is None or not self.view.valid:
            return None
        return len(self.tasks) * len(self.view.agents) * int(self.view.job.get("n_attempts", 1))


def examine(options: BenchOptions, environment: Mapping[str, str], *, live: bool = True) -> Examination:
    """Check a run whose options hold no secret (1 to 5 s; some more where the endpoint is slow).

    Args:
        environment: variables that Harbor will have; live: ask the model's endpoint.
    """
    findings = [*place_findings(options)]
    try:
        view = ask_harbor(options.job, environment)
    except QuarterdeckError as problem:
        findings.append(Finding(code="bench.harbor", object="harbor", message=str(problem), remedy="mend it first"))
        return Examination(options=options, findings=findings, view=HarborView())
    options = with_endpoint(options, view)
    if not view.valid:
        findings += view.findings
        return Examination(options=options, findings=findings, view=view)
    case = Case(
        options=options,
        view=view,
        environment=environment,
        tasks=read_tasks(view),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    )
    for check in CHECKS:
        findings += check(case)
    found = Examination(options=options, findings=findings, view=view, tasks=case.tasks)
    findings += room_finding(options, found.trials)
    # A key that is missing, or a URL that is none, has been told: the server's answer would say it again.
    if live and not {finding.code for finding in errors(findings)} & _WIRING:
        findings += endpoint_findings(case)
    return found


def with_endpoint(options: BenchOptions, view: HarborView) -> BenchOptions:
    """The endpoint to watch: the one that the agents share, if they do and nobody named another."""
    case = Case(options=options, view=view, environment={})
    endpoints = {(agent.endpoint, key_variable(agent, part)) for _, agent, part in case.agents if agent.endpoint}
    if options.endpoint or len({url for url, _ in endpoints}) != 1:
        return options
    url, key_name = sorted(endpoints)[-1]
    return msgspec.structs.replace(options, endpoint=url, key_name=key_name or options.key_name)
