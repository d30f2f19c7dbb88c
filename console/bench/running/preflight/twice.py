"""What is chosen by a name and by an import path at once: Harbor takes one, says nothing, and records both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from console.bench.running.preflight.case import Case
from console.findings import WARNING, Finding


def twice_findings(case: Case) -> Iterator[Finding]:
    """Environment and agents of which only one of two choices counts.

    A mop-up has to do as its job did: it is warned.
    """
    level = WARNING if case.options.parent else "error"
    environment = case.part("environment")
    if _both(environment, "type"):
        yield _finding(
            "environment",
            "type",
            environment,
            level,
            "Harbor would run the sandboxes of import_path, and record the type as well",
        )
    for number, _, part in case.agents:
        if _both(part, "name"):
            yield _finding(
                f"agents.{number}",
                "name",
                part,
                level,
                "Harbor would run the one named where it knows the name, the one of import_path otherwise, and record "
                "both",
            )


def _both(part: Mapping[str, Any], key: str) -> bool:
    return bool(part.get(key)) and bool(part.get("import_path"))


def _finding(where: str, key: str, part: Mapping[str, Any], level: str, what: str) -> Finding:
    return Finding(
        code="bench.chosen_twice",
        level=level,
        object=f"{where}.{key}",
        message=f"is {part[key]}, and {where}.import_path is {part['import_path']}: {what}",
        remedy=f"leave one of them out: {where}.import_path=null or {where}.{key}=null",
    )
