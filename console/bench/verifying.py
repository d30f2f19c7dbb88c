"""Whether a verifier did its work: behind a clean zero, behind an agent's timeout, and where it left no reward."""

from __future__ import annotations

import re
from typing import NamedTuple

from console.bench.model import Evidence
from console.bench.rules import tables
from console.bench.texts import LOG, TrialTexts
from console.outcomes import text
from console.outcomes.text import Hit

_CTRF = "verifier/ctrf.json"
_COUNTED = re.compile(r'"tests"\s*:\s*([1-9]\d*)\s*[,}]')
_SECOND = "Skipping exception record because trial already has exception_info"
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Timeout))\b.*$", re.MULTILINE)


class Fault(NamedTuple):
    """What kept a verifier from its work, and the line that says so."""

    hit: Hit
    evidence: Evidence


def find_fault(texts: TrialTexts) -> Fault | None:
    """Why the verifier could not do its work, and the line that says so; None where it counted a test, or is silent."""
    output = texts.verifier_output()
    if not output or text.tests_ran(output) or _COUNTED.search(texts.tail(_CTRF).text):
        return None
    hit = text.find(output, tables.VERIFIER_RULES)
    return Fault(hit, _where(texts, hit)) if hit else None


def _where(texts: TrialTexts, hit: Hit) -> Evidence:
    wanted = hit.evidence.strip("…").strip()
    for name in texts.verifier():
        line = texts.find(name, wanted)
        if line is not None:
            return line.evidence()
    return Evidence(file="verifier/test-stdout.txt", text=hit.evidence)


def second_error(texts: TrialTexts) -> tuple[str, Evidence] | None:
    """Type and line of the exception that came second: Harbor records a trial's first one, and only logs the next."""
    log = texts.tail(LOG).text
    at = log.rfind(_SECOND)
    raised = list(_RAISED.finditer(log, at)) if at >= 0 else []
    if not raised:
        return None
    last = raised[-1]
    return last[1], texts.line(LOG, log.count("\n", 0, last.start()), last[0]).evidence()
