"""`quarterdeck bench look`: triage and comparison on the screen, down to the line that decided."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from console.commands.bench_options import RULE_FILE, add_reading, load
from console.commands.look import LOOK_HELP, add_look, look_of
from console.commands.parsing import Parser, say
from console.tui.main import check_look, require_terminal

_EPILOG = (
    """\
The first screen has what went wrong with the jobs as a whole, then their trials by class and cause. Enter goes down:
the trials of a cause, then one trial with its verdict, the deciding line of the deciding file, and its phases; escape
comes back. `?` has all keys.

  space, a, C    mark a trial or a whole cause, everything in the list, clear all marks
  R              what a mop-up of the marked would run (without marks: the usual choice); enter there starts
                 `quarterdeck bench mop-up` in this terminal, which asks before anything runs
  t, c           the figures by each accounting rule; the comparison with --against
  /, o, ctrl+g   filter, sort, go to a row
  ctrl+r         read again: a job that still runs has new trials
  ctrl+e         write a file: .csv and .json have the marked trials, or those in the list; .txt and .svg the screen

With --against the comparison comes first: its warnings, then whether B (the directories behind --against) beat A, and
the tasks on which they differ. Left and right turn the accounting mode, tab goes between answer and tasks.

"""
    + LOOK_HELP
    + "\n"
    + RULE_FILE
    + """
examples:
  quarterdeck bench look jobs/a
  quarterdeck bench look jobs/a jobs/a-mop-up-1
  quarterdeck bench look jobs/a --against jobs/b
  quarterdeck bench look jobs/a --print    a mop-up's command is printed, not run
"""
)


def look_main(argv: Sequence[str]) -> int:
    """Run `bench look`; the exit code: 0 when it was left, or that of the mop-up it was left for."""
    parser = Parser(
        "bench look", "Shows what became of a benchmark's trials, and lets you choose what runs again.", _EPILOG
    )
    parser.add_argument("dirs", nargs="+", type=Path, metavar="DIR", help="job directory, directory of jobs, or trial")
    parser.add_argument(
        "--against", nargs="+", default=[], type=Path, metavar="DIR", help="the run to compare with: did it do better?"
    )
    parser.add_argument("--print", action="store_true", help="print a mop-up's command instead of running it")
    add_reading(parser)
    add_look(parser)
    args = parser.parse_args(argv)
    look = look_of(args)
    require_terminal(instead="`bench triage` and `bench compare` answer without one")
    check_look(look)
    args.side = [args.against] if args.against else []
    rules = load(args)
    from console.tui.bench.main import look_at
    from console.tui.bench.reading import Reader, Wanted

    wanted = Wanted(tuple(args.dirs), tuple(args.against), rules, tuple(args.task), cache=not args.no_cache)
    code, command = look_at(Reader(wanted), look, print_only=args.print)
    if not command:
        return code
    if args.print:
        say(f"quarterdeck bench {shlex.join(command)}")
        return code
    # Another program in the same terminal: what the screen has set up in this process is of no use to it.
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", "console", "bench", *command])
