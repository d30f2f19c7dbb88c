"""`quarterdeck bench tally`: the figures of benchmark runs, by each accounting rule, with what is left out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from console.bench.attempts import RULES
from console.bench.figures import modes
from console.bench.merge import DEFAULT
from console.bench.mop_up.family import left_out_lines
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
from console.commands.bench_text import columns, paragraph, path_text
from console.commands.parsing import Parser
from console.errors import UsageError

if TYPE_CHECKING:
    from console.bench.figures.tables import Table
    from console.bench.figures.tally import GroupTally, Tally
    from console.bench.session import Session

TABLES = ("figures", "errors", "pass_at", "excluded", "outcomes", "tasks", "usage", "notices")
_SHOWN = ("figures", "excluded", "errors", "pass_at", "outcomes", "usage", "notices")
"""What text and Markdown have unless tables are named: a table of tasks is long."""


def listed(table: dict[str, str]) -> str:
    """Names and sentences for a help text."""
    return "".join(f"  {name:<24}{text}\n" for name, text in table.items())


def mode_help() -> str:
    """The accounting modes and their rules, for a help text."""
    return listed({one.name: one.rule + (f" ({one.remark})" if one.remark else "") for one in modes.MODES.values()})


_EPILOG = (
    "modes: which attempts count, and as what (--mode NAME; all of them otherwise)\n"
    + mode_help()
    + f"""
No mode guesses: what nobody can decide is left out under its own name, with how far the figure could move. The mean
that Harbor prints changed its meaning in 0.26 (raw-old, raw-new), and its summary counts a trial with an exception and
a reward twice: never quote it.

merging (--merge NAME): several directories, one run with its re-runs ({DEFAULT} unless given)
"""
    + listed(RULES)
    + """
Harbor's own repeats (-k) are attempts of their own and are never merged away. Re-running what was graded inflates a
figure: attempts that were, are counted and told.

errors: within (the same tasks once more) and across (other tasks like these) answer two questions; state which one.

figures published for comparison, with what is known against them:
  37.98 % (169/445)    Qwen3.6-35B-A3B, terminus-2, Terminal-Bench 2.0, 89 tasks x 5, by error-aware; E2B sandboxes of \
1 CPU and 2 GiB, the tasks' own time-outs (600 to 12,000 s), 256K context, at most 80K output, no step limit, 3 \
retries, 8 H200. Its published error of 1.92 points, pass@2 of 44.72 % and pass@3 of 56.76 % cannot be of one such run
  24.6 % +- 3.2        the leaderboard's entry of another agent (little-coder): not comparable with the above
  62.35 % (53/85)      Qwen3.8-27B-FP8, terminus-2, Terminal-Bench 2.1, time-outs x 4, by infra-excluded-strict; the \
same run is 76.8 % (53/69) by clean-only
  4.71 % (4/85)        gpt-oss-20b in the same setting, by infra-excluded-strict; Harbor printed a mean of 0.045 (4/89)
Figures of different datasets (2.0, 2.1, 3.0), time-outs or sandboxes are never comparable.

"""
    + RULE_FILE
    + """
examples:
  quarterdeck bench tally jobs/a                every mode
  quarterdeck bench tally jobs/a jobs/a-mopup   a run with its mop-up
  quarterdeck bench tally jobs/a --mode leaderboard --table tasks
  quarterdeck bench tally jobs/a --csv --table tasks   one table as CSV
  quarterdeck bench tally jobs/a --json | jq '.modes[].value'
"""
)


def tally_main(argv: Sequence[str]) -> int:
    """Run `bench tally`; the exit code."""
    parser = Parser(
        "bench tally",
        "The figures of benchmark runs, by each accounting rule, always with numerator, denominator and what is left "
        "out.",
        _EPILOG,
    )
    parser.add_argument(
        "dirs", nargs="+", type=Path, metavar="DIR", help="job directories that are one run, or several"
    )
    add_mode(parser)
    add_merge(parser)
    parser.add_argument(
        "--table", action="append", default=[], metavar="NAME", help=f"only this; repeat for more: {', '.join(TABLES)}"
    )
    add_reading(parser)
    add_formats(parser, "one JSON object: modes, groups, notices")
    args = parser.parse_args(argv)
    names = [modes.mode(name).name for name in args.mode] or list(modes.MODES)
    _check(args)
    require_statistics("bench tally")
    rules = load(args)
    progress = Progress()
    session = open_session(args, args.dirs, rules, progress)
    try:
        found, decided = _tally(session, args.merge, names)
    finally:
        progress.end()
    complain([*session.problems, *left_out_lines(job.path for job in session.jobs)])
    complain(idle_rules(rules, decided))
    for text in _answer(found, args, names):
        sys.stdout.write(text)
    return 0


def _tally(session: Session, rule: str, names: Sequence[str]) -> tuple[Tally, Collection[str]]:
    """The tally, and the user's rules that decided, out of the cache where nothing has changed."""
    from console.bench.answers import keep, recall
    from console.bench.figures.tally import Tally, tally

    def key() -> str | None:
        found = session.fingerprint()
        return None if found is None else f"tally {rule} {' '.join(names)} {found}"

    answer = recall(session.directory, before := key(), tuple[Tally, list[str]])
    if answer is None:
        found = tally(session.judged(), session.jobs, rule=rule, names=names)
        answer = found, sorted(session.decided)
        keep(session.directory, before or key(), answer)
    return answer


def add_mode(parser: argparse.ArgumentParser) -> None:
    """`--mode`."""
    parser.add_argument("--mode", action="append", default=[], metavar="NAME", help="accounting mode; repeat for more")


def add_merge(parser: argparse.ArgumentParser) -> None:
    """`--merge`."""
    parser.add_argument(
        "--merge", default=DEFAULT, metavar="RULE", help=f"{', '.join(RULES)} (default: {DEFAULT}), see below"
    )


def _check(args: argparse.Namespace) -> None:
    """Raises UsageError, before anything is read."""
    for name in args.table:
        if name not in TABLES:
            raise UsageError(f"--table {name}: there is no such table; one of {', '.join(TABLES)}")
    if args.merge not in RULES:
        raise UsageError(f"--merge {args.merge}: there is no such rule; one of {', '.join(RULES)}")
    if args.csv and len(args.table) > 1:
        raise UsageError("--csv writes one table: give --table once")
    if args.json and args.table:
        raise UsageError("--json has every table: leave --table out")


def _answer(found: Tally, args: argparse.Namespace, names: Sequence[str]) -> Iterator[str]:
    from console.bench.figures import report
    from console.bench.figures.tables import to_markdown, to_text

    main = modes.DEFAULT if modes.DEFAULT in names else names[0]
    if args.json:
        yield json.dumps(report.as_json(found)) + "\n"
        return
    if args.csv:
        yield from _csv(found, args.table[0] if args.table else "figures", main)
        return
    width = columns()
    for group in found.groups:
        tables = _chosen(report.tables(group, main), args.table, main)
        heading = report.heading(group)
        if args.markdown:
            yield f"## {heading}\n\n{to_markdown(tables)}\n\n"
            continue
        yield "\n".join([*paragraph(heading, width), *_jobs(group, width), "", to_text(tables, width)]) + "\n\n"
    notices = [report.notice_table(found.notices)] if found.notices else []
    if notices and (not args.table or "notices" in args.table):
        yield (to_markdown(notices) if args.markdown else to_text(notices, width)) + "\n\n"
    if not args.markdown:
        yield "\n".join(paragraph(f"merged by {found.merge}: {found.merge_rule}.", width)) + "\n"


def _csv(found: Tally, name: str, main: str) -> Iterator[str]:
    """One table of all groups, with who they are in front."""
    from console.bench.figures import report
    from console.bench.figures.tables import Column, to_csv

    who = (Column("agent", "agent"), Column("model", "model"), Column("dataset", "dataset"))
    whole: Table | None = None
    for group in found.groups:
        table = report.tables(group, main).get(name)
        if table is None:
            continue
        rows = tuple((group.agent, group.model, group.dataset, *row) for row in table.rows)
        if whole is None:
            whole = msgspec.structs.replace(table, columns=(*who, *table.columns), rows=rows)
        else:
            whole = msgspec.structs.replace(whole, rows=(*whole.rows, *rows), kinds=(*whole.kinds, *table.kinds))
    if whole is not None:
        yield from to_csv(whole)


def _chosen(tables: dict[str, Table], names: Sequence[str], main: str) -> list[Table]:
    """The tables that were asked for, or the usual ones: then of what is left out only what the main mode leaves."""
    if names:
        return [tables[name] for name in TABLES if name in names and name in tables]
    found = [tables[name] for name in _SHOWN if name in tables]
    return [_of_mode(table, main) if table.name == "excluded" else table for table in found]


def _of_mode(table: Table, main: str) -> Table:
    rows = tuple(row for row in table.rows if row[0] == main)
    note = "--table excluded has those of every mode."
    return msgspec.structs.replace(table, title=f"{table.title} by {main}", rows=rows, notes=(*table.notes, note))


def _jobs(group: GroupTally, width: int) -> Iterator[str]:
    for job in group.jobs[:12]:
        yield f"  {path_text(job, width - 2)}"
    if len(group.jobs) > 12:
        yield f"  and {len(group.jobs) - 12} more jobs"
