"""What `bench run` and `bench mop-up` share: preflight, the choice of how to watch, starting the engine, watching."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from console.bench.running.launch import begin_benchmark, require_harbor
from console.bench.running.options import BenchOptions
from console.bench.running.preflight import Examination, examine
from console.bench.running.preflight.places import existing_finding
from console.bench.running.secrets import hide, shown
from console.commands.bench_left import say_what_is_left
from console.commands.start import Watch, warn, watch_engine
from console.errors import UsageError
from console.findings import Finding, errors, refuse
from console.launching import new_run_id
from console.state.sanitize import sanitize
from console.tui.main import PLAIN_LOOK, Look, check_look, require_terminal

_CHANGES = "leave out what changes it (--api-base, --agent-env, --set), or correct it with --set KEY=VALUE"
_OF_MOP_UP = {
    "correct it in the job file": _CHANGES,
    "correct them in the job file": _CHANGES,
    "in the job file": "with --set KEY=VALUE",
}


class Examined(NamedTuple):
    """An examination, and the variables that secrets of the job file went to."""

    examination: Examination
    variables: dict[str, str]


def examined(options: BenchOptions, *, live: bool = True) -> Examined:
    """Everything that can be said before a trial runs, of options with their secrets taken out."""
    hidden = hide(options.job, os.environ)
    options = msgspec.structs.replace(options, job=hidden.job)
    found = examine(options, os.environ | hidden.variables, live=live)
    findings = [_shown(finding, mop_up=bool(options.parent)) for finding in hidden.findings + found.findings]
    return Examined(msgspec.structs.replace(found, findings=findings), hidden.variables)


def _shown(finding: Finding, *, mop_up: bool) -> Finding:
    """A finding quotes the job, and with it what may be a secret. A mop-up has options in the place of a job file."""
    parts = {name: shown(getattr(finding, name)) for name in ("object", "message", "remedy")}
    if mop_up:
        for words, instead in _OF_MOP_UP.items():
            parts["remedy"] = parts["remedy"].replace(words, instead)
    return msgspec.structs.replace(finding, **parts)


def _refuse(findings: Iterable[Finding], lists: str) -> None:
    """Raise UsageError with the first error, and the option that lists the others."""
    found = errors(findings)
    if found:
        more = f" ({len(found) - 1} more: {lists} lists them)" if len(found) > 1 else ""
        raise UsageError(found[0].line() + more)


def start_benchmark(
    options: BenchOptions,
    watch: Watch,
    look: Look = PLAIN_LOOK,
    *,
    goes_on: bool = False,
    before: Callable[[Examination], None] = lambda found: None,
) -> int:
    """Check, start the engine, and watch the run as asked; the exit code.

    Args:
        options: of the run. `job` may hold secrets: they go to the engine's environment, and names take their place.
        goes_on: the job directory may exist: what stands in it has been told and accepted.
        before: called once everything has been checked, before anything is written or started; may raise.

    Raises:
        UsageError: preflight refuses; nothing was started.
    """
    if watch == "console":
        require_terminal("use --headless, --plain or --detach")
        check_look(look)
    require_harbor()
    if not goes_on:
        refuse(existing_finding(options))
    found, variables = examined(options)
    _refuse(found.findings, "--dry-run" if options.parent else "--check")
    warn(found.findings)
    before(found)
    # The engine's environment is ours; a secret is nowhere else.
    os.environ.update(variables)
    say_places(found.options)
    code = watch_benchmark(found.options, watch, look)
    if watch != "detach" and not found.options.parent:  # a mop-up says itself what it brought
        say_what_is_left(Path(found.options.job_dir), found.options.rules)
    return code


def say_places(options: BenchOptions) -> None:
    """Where it all goes, on standard error: the directory to look at is never a guess."""
    sys.stderr.write(f"quarterdeck: job directory {sanitize(options.job_dir)}\n")
    sys.stderr.write(f"quarterdeck: run directory {sanitize(options.run_dir)}\n")


def watch_benchmark(options: BenchOptions, watch: Watch, look: Look = PLAIN_LOOK) -> int:
    """Start the engine and watch it."""
    return watch_engine(lambda owned: begin_benchmark(options, new_run_id(), owned=owned), watch, look, told_after=True)
