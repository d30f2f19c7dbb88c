"""Results of the checks, and how they read: lines for people, one JSON object for scripts."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from console.state.sanitize import sanitize

OK, NOTE, WARNING, ERROR, SKIPPED = "ok", "note", "warning", "error", "skipped"
_LEVEL_WIDTH, _CODE_WIDTH = 9, 22
_MARGIN = " " * _LEVEL_WIDTH
_TEXT_LIMIT = 600


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One result.

    Attributes:
        code: stable name of the check, `subject.object`.
        level: ok, note, warning, error (a run would not start, or not end well) or skipped (not looked at).
        found: what was found, or why it was not looked at; why: why that matters; remedy: what to do about it.
    """

    code: str
    level: str
    found: str
    why: str = ""
    remedy: str = ""


class Question(msgspec.Struct, frozen=True):
    """What a check asks: its code, and why the answer matters."""

    code: str
    why: str

    def ok(self, found: str) -> Check:
        """It is as it should be."""
        return Check(code=self.code, level=OK, found=found, why=self.why)

    def note(self, found: str, remedy: str = "") -> Check:
        """Good to know."""
        return Check(code=self.code, level=NOTE, found=found, why=self.why, remedy=remedy)

    def warning(self, found: str, remedy: str) -> Check:
        """It may cost a run, or a part of one."""
        return Check(code=self.code, level=WARNING, found=found, why=self.why, remedy=remedy)

    def error(self, found: str, remedy: str) -> Check:
        """A run would not start, or would end badly."""
        return Check(code=self.code, level=ERROR, found=found, why=self.why, remedy=remedy)

    def skipped(self, reason: str) -> Check:
        """It was not looked at."""
        return Check(code=self.code, level=SKIPPED, found=reason, why=self.why)


def exit_code(checks: Iterable[Check]) -> int:
    """0 without errors, else 2."""
    return 2 if any(check.level == ERROR for check in checks) else 0


def as_json(checks: Sequence[Check]) -> str:
    """One object: `ok`, and `checks` with their fields, in the order they were made."""
    body = {"ok": exit_code(checks) == 0, "checks": [msgspec.to_builtins(check) for check in checks]}
    return msgspec.json.encode(body).decode()


def as_text(checks: Sequence[Check], width: int) -> str:
    """Each check with its code; for what is not as it should be also why it matters and what to do. Then the sum.

    Args:
        width: cells of a line; a command in a remedy is not broken.
    """
    lines: list[str] = []
    for check in checks:
        head = f"{check.level:<{_LEVEL_WIDTH}}{_clean(check.code):<{_CODE_WIDTH}} "
        lines += _wrapped(_clean(check.found), head, width)
        if check.level in (NOTE, WARNING, ERROR):
            lines += _wrapped(_clean(check.why), f"{_MARGIN}why: ", width) if check.why else []
            lines += _wrapped(_clean(check.remedy), f"{_MARGIN}do:  ", width) if check.remedy else []
    return "\n".join([*lines, "", *_sum(checks, width)])


def _sum(checks: Sequence[Check], width: int) -> list[str]:
    counts = Counter(check.level for check in checks)
    said = [f"{counts[OK]} ok"]
    for level, plural in ((NOTE, "notes"), (WARNING, "warnings"), (ERROR, "errors"), (SKIPPED, "skipped")):
        if counts[level]:
            said.append(f"{counts[level]} {level if counts[level] == 1 else plural}")
    lines = [", ".join(said)]
    for level in (ERROR, WARNING):
        codes = dict.fromkeys(_clean(check.code) for check in checks if check.level == level)
        if codes:
            lines += _wrapped(", ".join(codes), f"{level:<{_LEVEL_WIDTH}}", width)
    return lines


def _clean(text: str) -> str:
    """One line; files, tasks and gateways may be called anything."""
    return " ".join(sanitize(text, limit=_TEXT_LIMIT).split())


def _wrapped(text: str, head: str, width: int) -> list[str]:
    indent = min(len(head), width // 2)
    lines = textwrap.wrap(
        text, max(width, 40), initial_indent=head, subsequent_indent=" " * indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return lines or [head.rstrip()]
