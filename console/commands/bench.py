"""`quarterdeck bench`: what became of a benchmark's trials, what its figures mean, and whether one run beat another."""

from __future__ import annotations

import sys
from collections.abc import Callable

from console.errors import UsageError

HELP = """\
quarterdeck bench: benchmark runs of Harbor that can be believed

usage: quarterdeck bench COMMAND DIR... [OPTIONS]
       quarterdeck bench COMMAND --help teaches each one

  run       start a job, with its mistakes told before, and stand watch over it
  triage    what became of each trial: its class and cause, and the line of
            which file says so; what went wrong with the job as a whole
  tally     the figures, by each accounting rule, with numerator, denominator
            and what is left out
  compare   did B beat A, and can it be trusted: on the tasks in common
  look      triage and comparison on the screen, down to the evidence
  mop-up    run what failed for reasons that are not the agent's again, in a new
            job; the old one is not touched
  resume-check
            what `harbor job resume` would keep, delete and run again
  cache     what is kept so that a second look is fast; --clear deletes it

Start with triage: a sandbox that died, an expired key and a verifier that could
not run its tests all look like a zero in Harbor's own summary. Then tally. A
difference between two runs is for compare: never read it off two tallies.

DIR is a job directory, a directory of jobs, or a single trial, of any version
of Harbor, finished, cut off, or still running. Nothing is ever written into it.
"""


def bench_main(argv: list[str]) -> int:
    """Run `bench`; the exit code: 0 when it answered, whatever the answer, 2 for bad usage."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        sys.stdout.write(HELP)
        return 0 if argv else 2
    command = COMMANDS.get(argv[0])
    if command is None:
        raise UsageError(f"bench: unknown command {argv[0]!r}: {', '.join(COMMANDS)}; see `quarterdeck bench --help`")
    return command(argv[1:])


def _triage(argv: list[str]) -> int:
    from console.commands.bench_triage import triage_main

    return triage_main(argv)


def _tally(argv: list[str]) -> int:
    from console.commands.bench_tally import tally_main

    return tally_main(argv)


def _compare(argv: list[str]) -> int:
    from console.commands.bench_compare import compare_main

    return compare_main(argv)


def _cache(argv: list[str]) -> int:
    from console.commands.bench_cache import cache_main

    return cache_main(argv)


def _run(argv: list[str]) -> int:
    from console.commands.bench_run import run_main

    return run_main(argv)


def _look(argv: list[str]) -> int:
    from console.commands.bench_look import look_main

    return look_main(argv)


def _mop_up(argv: list[str]) -> int:
    from console.commands.bench_mop_up import mop_up_main

    return mop_up_main(argv)


def _resume_check(argv: list[str]) -> int:
    from console.commands.bench_resume_check import resume_check_main

    return resume_check_main(argv)


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "triage": _triage,
    "tally": _tally,
    "compare": _compare,
    "cache": _cache,
    "run": _run,
    "look": _look,
    "mop-up": _mop_up,
    "resume-check": _resume_check,
}
