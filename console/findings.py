"""A finding of a check made before anything is started: what is wrong, with what, and what to do."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from console.errors import UsageError
from console.state.sanitize import sanitize

ERROR, WARNING, NOTE = "error", "warning", "note"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a check.

    Attributes:
        code: stable name of the rule, e.g. `trial.unknown_kwarg`; level: error (refuses the run), warning or note.
        object: the option, file or variable it is about; message: what is wrong; remedy: what to do.
    """

    code: str
    level: str = ERROR
    object: str
    message: str
    remedy: str = ""

    def line(self) -> str:
        """One readable line; files, tasks and gateways may be called anything."""
        parts = [sanitize(part) for part in (self.object, self.message, self.remedy)]
        return " ".join(f"{parts[0]}: {parts[1]}{f'; {parts[2]}' if parts[2] else ''}".split())


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """Those that refuse the run."""
    return [finding for finding in findings if finding.level == ERROR]


def refuse(findings: Iterable[Finding]) -> None:
    """Raise `UsageError` with the first error's line, and how many more there are. Nothing happens without one."""
    found = errors(findings)
    if found:
        more = f" ({len(found) - 1} more: --check lists them)" if len(found) > 1 else ""
        raise UsageError(found[0].line() + more)


def report(findings: Iterable[Finding]) -> str:
    """All findings, worst first, one a line with their codes; a line that says so when there is none."""
    order = {ERROR: 0, WARNING: 1, NOTE: 2}
    ranked = sorted(findings, key=lambda finding: order.get(finding.level, 3))
    return "\n".join(f"{f.level:<8}{f.code:<28}{f.line()}" for f in ranked) or "ok: nothing to complain about"


def report_json(findings: Iterable[Finding]) -> str:
    """The same as one JSON object: `ok`, and `findings` with their fields."""
    listed = list(findings)
    body = {"ok": not errors(listed), "findings": [msgspec.to_builtins(finding) for finding in listed]}
    return msgspec.json.encode(body).decode()
