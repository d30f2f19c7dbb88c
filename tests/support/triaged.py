"""Trials that `HarborJob` wrote, judged: for tests of what triage says of each kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harbor_jobs import HarborJob

from console.bench.model import Judged
from console.bench.triage import judge
from console.records.harbor.trials import read_trial

type Judge = Callable[..., Judged]

EXIT = "NonZeroAgentExitCodeError"


def judging(root: Path) -> Judge:
    """`judged(reward, error=..., **what HarborJob.trial takes)`, each in a job of its own below `root`.

    Of these `version` is the job's, and `job` its record.
    """
    count = iter(range(1000))

    def make(reward: Any = None, *, task: str = "terminal-bench/fix-git", **rest: Any) -> Judged:
        version, job = rest.pop("version", "0.26.0"), rest.pop("job", None)
        harbor = HarborJob(root / f"job{next(count)}", version)
        path = harbor.trial(task, reward, **rest)
        harbor.write()
        return judge(read_trial(harbor.path, path), None, job)

    return make


def exited(
    code: int, stderr: str = "None", stdout: str = "None", command: str = "mini-swe-agent --task 'fix it'"
) -> str:
    return f"Command failed (exit {code}): {command}\nstdout: {stdout}\nstderr: {stderr}"


def kind(found: Judged) -> str:
    return f"{found.outcome.value}/{found.cause}" if found.cause else found.outcome.value


def check_line(found: Judged) -> None:
    """The evidence is what stands on that line of that file."""
    assert found.evidence.file and found.evidence.line, found
    lines = (found.trial.path / found.evidence.file).read_text().split("\n")
    shown = found.evidence.text.strip("…").strip()
    assert shown in " ".join(lines[found.evidence.line - 1].split()), (shown, lines[found.evidence.line - 1])
