"""The options of the run that is meant: the same preflight as before a run."""

from __future__ import annotations

from collections.abc import Iterator

from console.doctor.case import Case
from console.doctor.report import Check, Question
from console.errors import MissingExtraError
from console.findings import Finding

OPTIONS = Question("option.preflight", "a run with options that do not fit is refused before anything is started")
_WHY = {
    "error": "a run with these options is refused before anything is started",
    "warning": "the run starts all the same",
}
ASKED_ELSEWHERE = ("sandbox.bubblewrap", "gateway.key", "gateway.unreachable")
"""Findings of preflight that have a check of their own here."""


def preflight(case: Case) -> Iterator[Check]:
    """Every finding, with its own code; the gateway is asked only with --live."""
    if not case.given:
        yield OPTIONS.skipped("no options were given")
        return
    findings = [
        Finding(code="option.value", object=fault.key, message=fault.text.replace(f"{fault.key} ", "", 1))
        for fault in case.faults
    ]
    keys = {fault.key for fault in case.faults}
    if case.options is not None:
        try:
            # An option that was left out has its default meanwhile: what is said of that does not help.
            findings += [finding for finding in _findings(case) if finding.object not in keys]
        except MissingExtraError as error:
            yield OPTIONS.skipped(str(error))
    told = [finding for finding in findings if finding.code not in ASKED_ELSEWHERE]
    for finding in told:
        yield Check(
            code=finding.code, level=finding.level, found=f"{finding.object}: {finding.message}",
            why=_WHY.get(finding.level, ""), remedy=finding.remedy,
        )  # fmt: skip
    if not told:
        yield OPTIONS.ok("nothing to complain about")


def _findings(case: Case) -> list[Finding]:
    from console.commands.start import preflight_findings
    from console.launching import require_engine

    assert case.options is not None
    require_engine()
    return preflight_findings(case.options, case.host.env, whole=True, live=case.live)
