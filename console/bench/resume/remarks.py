"""What to know of a job beside what Harbor would do with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from console.bench.resume.reading import Entry
from console.bench.resume.versions import known, numbers
from console.records.harbor.files import shown
from console.records.harbor.running import is_running
from console.records.harbor.values import table, text

_MASK = re.compile(r"\A.{0,4}\*{4}.{0,3}\Z", re.DOTALL)
"""How Harbor writes a secret that it does not find in its own environment."""
_SECRET = re.compile(r"KEY|SECRET|TOKEN(?!S)|PASSWORD|CREDENTIAL|AUTH", re.IGNORECASE)


def unsure_of(version: str, entries: Sequence[Entry], config: dict[str, Any], datasets: Sequence[str]) -> list[str]:
    """What only Harbor can find out."""
    lines = [entry.unsure for entry in entries if entry.unsure][:5]
    if not numbers(version) or not known(version):
        lines.append(f"version {shown(version)} is not one whose ways are known here; told as for the nearest")
    if datasets:
        named = ", ".join(shown(name) for name in datasets[:3])
        lines.append(f"the dataset {named} lies elsewhere and was not asked for; it is taken to be what it was")
    if config.get("source_jobs"):
        lines.append("the job was derived from another one (regrade or diff), which is not looked at")
    return lines


def notes_of(job_dir: Path, config: dict[str, Any], datasets: Sequence[dict[str, Any]], cwd: Path) -> list[str]:
    """What to know before the command is typed."""
    lines = []
    if is_running(job_dir):
        lines.append("a process of this machine works in the directory now: wait for its end first")
    for name in dict.fromkeys(_masked(config)):
        lines.append(f"{name} was written masked: what runs again would get the mask instead of the value")
    relative = [text(each.get("path")) for each in datasets if not Path(text(each.get("path"))).is_absolute()]
    if relative:
        lines.append(f"the dataset {shown(relative[0])} is looked for from the working directory, here {shown(cwd)}")
    return lines


def _masked(config: dict[str, Any]) -> Iterator[str]:
    agents = config.get("agents")
    parts = [("environment", config.get("environment")), ("verifier", config.get("verifier"))]
    parts += [(f"agents.{at}", agent) for at, agent in enumerate(agents if isinstance(agents, list) else [])]
    for part, value in parts:
        for name, item in table(table(value).get("env")).items():
            if isinstance(item, str) and _SECRET.search(str(name)) and _MASK.match(item):
                yield f"{part}.env.{shown(str(name))}"
