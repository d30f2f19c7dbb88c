"""`quarterdeck bench compare`: did B beat A, and can it be trusted."""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from console.bench.attempts import RULES
from console.bench.figures import modes
from console.commands.bench_options import (
    RULE_FILE,
    Progress,
    add_formats,
    add_reading,
    complain,
    idle_rules,
    load,
    open_session,
    require_statistics,
)
from console.commands.bench_tally import add_merge, listed, mode_help
from console.commands.parsing import Parser
from console.errors import UsageError

if TYPE_CHECKING:
    from console.bench.compare import Comparison
    from console.bench.merge import MergedGroup
    from console.bench.rules.user import UserRules
    from console.bench.session import Session
    from console.bench.sides import Side

_LETTERS = "ABCDEFGH"
_EPILOG = (
    """\
Only tasks that were graded in both runs are compared, each with the same weight; the others are listed with the
reason. With one attempt a task: the exact McNemar test of the tasks that only one side passed, and Newcombe's
interval of the difference. With several: the differences of the tasks' means, an interval by resampling the tasks and
a test that flips their signs. With three runs or more, p-values are adjusted for all pairs (Holm).

how to read the answer:
  distinguishable        test and interval agree that the difference is not chance, at 5 %
  not distinguishable    such runs differ as much by chance: it does not mean that they are equal
  on the edge            test and interval disagree: run more attempts before you say anything
Ten points on 80 tasks are seldom enough: 53 of 85 against 42 of 81 (62.4 and 51.9 %, one run each of terminus-2 and
mini-swe-agent on Terminal-Bench 2.1) is a difference of 10.5 points with p = 0.17 unpaired, and thinking was on in
one and off in the other. "Substantially outperformed" is more than that says.

Then the warnings: what differs beside agent and model (time-outs, options, dataset, sandboxes, versions) may be what
makes the difference. When the accounting modes disagree about who is ahead, that is told: an agent that passes many
tasks at its time-out wins by one rule and loses by another.

modes (--mode NAME)
"""
    + mode_help()
    + "\nmerging (--merge NAME), within each side\n"
    + listed(RULES)
    + "\n"
    + RULE_FILE
    + """
examples:
  quarterdeck bench compare jobs/a jobs/b    did b beat a?
  quarterdeck bench compare jobs/both        the agents of one job
  quarterdeck bench compare --side jobs/a jobs/a-mopup --side jobs/b
  quarterdeck bench compare jobs/a jobs/b --mode leaderboard --json
"""
)


def compare_main(argv: Sequence[str]) -> int:
    """Run `bench compare`; the exit code."""
    parser = Parser(
        "bench compare", "Compares runs on the tasks in common, and says no more than the data do.", _EPILOG
    )
    parser.add_argument("dirs", nargs="*", type=Path, metavar="DIR", help="the runs, one directory each: A B [C ...]")
    parser.add_argument(
        "--side", action="append", nargs="+", default=[], type=Path, metavar="DIR", help="a run of several directories"
    )
    parser.add_argument("--mode", default=modes.DEFAULT, metavar="NAME", help=f"default: {modes.DEFAULT}")
    add_merge(parser)
    parser.add_argument("--agent", default="*", metavar="GLOB", help="only this agent")
    parser.add_argument("--model", default="*", metavar="GLOB", help="only this model")
    parser.add_argument("--flips", type=int, default=10, metavar="N", help="tasks listed each way (default: 10)")
    add_reading(parser)
    add_formats(parser, "one JSON object, or a list of them for three runs and more")
    args = parser.parse_args(argv)
    modes.mode(args.mode)
    if args.merge not in RULES:
        raise UsageError(f"--merge {args.merge}: there is no such rule; one of {', '.join(RULES)}")
    if args.flips < 0:
        raise UsageError("--flips: a number from 0 on is expected")
    require_statistics("bench compare")
    rules, progress = load(args), Progress()
    try:
        found, decided = _compared(args, rules, progress)
    finally:
        progress.end()
    complain(idle_rules(rules, decided))
    from console.commands import bench_compare_text as answer

    if args.json:
        objects = [answer.as_json(one) for one in found]
        sys.stdout.write(json.dumps(objects[0] if len(objects) == 1 else objects) + "\n")
    elif args.csv:
        for text in answer.as_csv(found):
            sys.stdout.write(text)
    else:
        lines = answer.as_markdown(found, args.flips) if args.markdown else answer.as_text(found, args.flips)
        for line in lines:
            sys.stdout.write(line + "\n")
    return 0


def _compared(
    args: argparse.Namespace, rules: UserRules | None, progress: Progress
) -> tuple[list[Comparison], Collection[str]]:
    """Each pair of runs, and the user's rules that decided, out of the cache where nothing has changed.

    Raises:
        UsageError: a path is wrong, or what is named cannot be two runs.
    """
    from console.bench.answers import keep, recall
    from console.bench.compare import Comparison, compare_all

    named: list[list[Path]] = [*([path] for path in args.dirs), *args.side]
    if not named:
        raise UsageError("bench compare: name two runs: quarterdeck bench compare DIR_A DIR_B")
    sessions = [open_session(args, paths, rules, progress) for paths in named]
    complain(line for session in sessions for line in session.problems)

    def key() -> str | None:
        found = [session.fingerprint() for session in sessions]
        return None if None in found else f"compare {args.mode} {args.merge} {args.agent!a} {args.model!a} {found}"

    directory = sessions[0].directory
    answer = recall(directory, before := key(), tuple[list[Comparison], list[str]])
    if answer is None:
        sides = _sides(args, named, sessions, progress)
        answer = compare_all(sides, args.mode), sorted(set().union(*(session.decided for session in sessions)))
        keep(directory, before or key(), answer)
    return answer


def _sides(
    args: argparse.Namespace, named: Sequence[Sequence[Path]], sessions: Sequence[Session], progress: Progress
) -> list[Side]:
    """The runs, each read and merged. Raises UsageError where they cannot be two."""
    from console.bench.compare import side_of

    sides: list[Side] = []
    for paths, session in zip(named, sessions):
        groups = _groups(args, paths[0], session)
        progress.end()
        if len(named) > 1 and len(groups) > 1:
            raise UsageError(
                f"{paths[0]} holds {len(groups)} agents, models or datasets ({_names(groups)}): choose one with "
                "--agent or --model, or compare them with each other by naming only this directory"
            )
        for group in groups:
            own = [job for job in session.jobs if os.fspath(job.path) in group.jobs]
            sides.append(side_of(_LETTERS[len(sides) % len(_LETTERS)], group, own))
    if len(sides) < 2:
        raise UsageError(
            f"{named[0][0]} holds one run ({sides[0].name or 'agent unknown'}): name the one to compare it with, too"
        )
    if len(sides) > len(_LETTERS):
        raise UsageError(f"{len(sides)} runs are too many to compare each with each: at most {len(_LETTERS)}")
    return sides


def _groups(args: argparse.Namespace, path: Path, session: Session) -> list[MergedGroup]:
    """The runs of a session that are meant. Raises UsageError where none is left."""
    from console.bench.merge import merge
    from console.bench.rows import read_rows

    merged = merge(read_rows(session.judged()), session.jobs, args.merge)
    found = [
        group
        for group in merged.groups
        if fnmatch.fnmatchcase(group.group.agent, args.agent) and fnmatch.fnmatchcase(group.group.model, args.model)
    ]
    if not found:
        raise UsageError(f"{path}: no trial is left by --task, --agent and --model; it has {_names(merged.groups)}")
    return [group for group in found if group.group.agent or group.group.model] or found


def _names(groups: Sequence[MergedGroup]) -> str:
    parts = [" · ".join(msgspec.structs.astuple(group.group)).strip(" ·") or "unknown" for group in groups[:4]]
    return "; ".join(parts) + (f"; {len(groups) - 4} more" if len(groups) > 4 else "") if parts else "none"
