"""A constructed trial: what its task does, and what triage must say of it. The tables of trials are made with these."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EXIT = "NonZeroAgentExitCodeError"
MANY = "many"

STDOUT = "verifier/test-stdout.txt"
REWARD = "/logs/verifier/reward"
ZERO = f"echo '2 failed, 1 passed in 0.10s'; echo 0 > {REWARD}.txt"
ONE = f"echo '3 passed in 0.10s'; echo 1 > {REWARD}.txt"


@dataclass(frozen=True, kw_only=True)
class Want:
    """What triage must say.

    Attributes:
        verdict: class, and cause behind a slash where there is one; rule: id of the rule.
        file: of the evidence, below the trial; text: words of the line that decided.
        reward, exception: of the row; notes: ids that must be there; silent: ids that must not be.
    """

    verdict: str
    rule: str
    file: str
    text: str
    reward: float | None = None
    exception: str | None = None
    notes: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Made:
    """One trial, or all attempts of a task.

    Attributes:
        kind: of the list; name: of the task, one of a kind within its job; job: that runs it; want: the verdict.
        does: the agent's instruction, see `bench_agents`; test: lines of the verifier's script; room: what the sandbox
            is told; agent, verifier, build: their limits in seconds; more: of task.toml; files: further files of it.
        attempts: trials of it in the job; by: "harbor" for one that Harbor ran, "cut" for one of those with a file
            damaged later, "written" for shapes that this Harbor does not write here.
        written: keywords of `HarborJob.trial` for such a shape; version: of Harbor that it is written as.
    """

    kind: str
    name: str
    want: Want
    job: str = MANY
    does: dict[str, Any] = field(default_factory=dict)
    test: str = ZERO
    room: dict[str, Any] = field(default_factory=dict)
    agent: float = 60
    verifier: float = 60
    build: float = 60
    more: str = ""
    files: tuple[tuple[str, str], ...] = ()
    attempts: int = 1
    by: str = "harbor"
    written: dict[str, Any] = field(default_factory=dict)
    version: str = "0.26.0"


def ends(
    kind: str, name: str, test: str, verdict: str, rule: str, text: str, *,
    file: str = "result.json", reward: float | None = None, exception: str | None = None,
    notes: tuple[str, ...] = (), silent: tuple[str, ...] = (), **more: Any,
) -> Made:  # fmt: skip
    """A trial whose verifier decides."""
    want = Want(
        verdict=verdict, rule=rule, file=file, text=text, reward=reward, exception=exception, notes=notes, silent=silent
    )
    return Made(kind=kind, name=name, test=test, want=want, **more)


def gives_up(
    kind: str, name: str, said: str, verdict: str, rule: str, *,
    text: str | None = None, code: int = 1, exception: str = EXIT, reward: float | None = 0.0,
    stdout: str = "", file: str = "exception.txt", does: dict[str, Any] | None = None,
    notes: tuple[str, ...] = (), silent: tuple[str, ...] = (), **more: Any,
) -> Made:  # fmt: skip
    """A trial whose agent writes `said` to its standard error and ends with `code`: `text` or all of it decides."""
    script = f"cat >&2 <<'SAID'\n{said}\nSAID\n" if said else ""
    script += f"cat <<'OUT'\n{stdout}\nOUT\n" if stdout else ""
    want = Want(
        verdict=verdict, rule=rule, file=file, text=said if text is None else text, reward=reward, exception=exception,
        notes=notes, silent=silent,
    )  # fmt: skip
    return Made(kind=kind, name=name, does={"script": f"{script}exit {code}"} | (does or {}), want=want, **more)


def raises(
    kind: str, name: str, words: str, verdict: str, rule: str, *,
    text: str | None = None, reward: float | None = None, notes: tuple[str, ...] = (), silent: tuple[str, ...] = (),
    does: dict[str, Any] | None = None, file: str = "exception.txt", how: str = "error", exception: str = "",
    **more: Any,
) -> Made:  # fmt: skip
    """A trial whose agent raises "Type: message" or "module:Type: message" on the host."""
    exception = exception or words.partition(": ")[0].rpartition(":")[2]
    want = Want(
        verdict=verdict, rule=rule, file=file, text=exception if text is None else text, reward=reward,
        exception=exception, notes=notes, silent=silent,
    )  # fmt: skip
    return Made(kind=kind, name=name, does={how: words} | (does or {}), want=want, **more)


def breaks(
    kind: str, name: str, room: dict[str, Any], verdict: str, rule: str, text: str, exception: str, **more: Any
) -> Made:
    """A trial whose sandbox, or the installation in it, fails before the agent runs."""
    want = Want(verdict=verdict, rule=rule, file="exception.txt", text=text, exception=exception)
    return Made(kind=kind, name=name, room=room, want=want, **more)


def written(
    kind: str, name: str, verdict: str, rule: str, file: str, text: str, *,
    reward: float | None = None, exception: str | None = None, version: str = "0.26.0", job: str = "written",
    notes: tuple[str, ...] = (), trial: dict[str, Any] | None = None,
) -> Made:  # fmt: skip
    """A shape that is written without Harbor: `trial` are keywords of `HarborJob.trial`."""
    want = Want(verdict=verdict, rule=rule, file=file, text=text, reward=reward, exception=exception, notes=notes)
    return Made(kind=kind, name=name, want=want, job=job, by="written", version=version, written=trial or {})


_TOML = """
schema_version = "1.4"
[agent]
timeout_sec = {agent}
[verifier]
timeout_sec = {verifier}
[environment]
build_timeout_sec = {build}
network_mode = "public"
{more}
"""


def write_task(root: Path, made: Made, known: dict[str, str]) -> Path:
    """The task's directory. `known`: words to replace in its files, e.g. by the place of marks."""
    files = {
        "task.toml": _TOML.format(agent=made.agent, verifier=made.verifier, build=made.build, more=made.more),
        "instruction.md": json.dumps(made.does),
        "environment/Dockerfile": "FROM debian\nWORKDIR /app\n",
        "environment/told.json": json.dumps(made.room),
        "solution/solve.sh": "#!/bin/bash\n",
        "tests/test.sh": f"#!/bin/bash\n{made.test}\n",
        **dict(made.files),
    }
    task = root / made.name
    for path, content in files.items():
        for word, place in known.items():
            content = content.replace(word, place)
        (task / path).parent.mkdir(parents=True, exist_ok=True)
        (task / path).write_text(content)
    return task
