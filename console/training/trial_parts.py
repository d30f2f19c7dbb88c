"""Parts of a trial's try: its sandbox in the totals, its report without its secret, the evidence for its verdict."""

from __future__ import annotations

import msgspec

from console.outcomes.classes import CallEvidence, TrialEvidence
from console.records.redact import HIDDEN
from console.training.trial_context import Totals
from console.trials.protocol import TrialReport


class SandboxCounter:
    """Counts one sandbox in the totals while it lives."""

    def __init__(self, totals: Totals) -> None:
        self._totals, self._live = totals, False

    def started(self) -> None:
        """It is there."""
        if not self._live:
            self._live = True
            self._totals.sandboxes += 1

    def gone(self) -> None:
        """It is not there any more, or never was."""
        if self._live:
            self._live = False
            self._totals.sandboxes -= 1


def without_secret(report: TrialReport, secret: str) -> TrialReport:
    """The report without the trial's token: an agent's error may name it, and goes on to journals, logs and alarms."""
    if secret and secret in report.exception_message + report.verifier_output:
        report = msgspec.structs.replace(
            report,
            exception_message=report.exception_message.replace(secret, HIDDEN),
            verifier_output=report.verifier_output.replace(secret, HIDDEN),
        )
    return report


def evidence_of(report: TrialReport, calls: CallEvidence | None, cancelled_by: str | None) -> TrialEvidence:
    """What the rules look at.

    Args:
        calls: what the capture gateway saw, None for a trial without it; cancelled_by: operator, group, run or None.
    """
    return TrialEvidence(
        exception_type=report.exception_type,
        exception_message=report.exception_message,
        exception_phase=report.exception_phase,
        rewards=report.rewards,
        verifier_output=report.verifier_output,
        agent_seconds=report.seconds.get("agent"),
        agent_timeout=report.agent_timeout,
        calls=calls,
        cancelled_by=cancelled_by,
    )
