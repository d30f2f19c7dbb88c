"""`quarterdeck doctor`: what is wrong with this host, this account or these options, before a run finds it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from console.commands.parsing import WIDEST, Parser, say
from console.training.options import RunOptions, ValueFault, parse_all

_EPILOG = """\
levels:
  ok       as it should be          note     good to know
  warning  may cost a run, or a part of one
  error    a run would not start, or not end well
  skipped  not looked at; it says why

examples:
  quarterdeck doctor                        this host and this account
  quarterdeck doctor run.toml --live        what that run needs, and its gateway
  quarterdeck doctor --only host.logout     one check, or all of a subject: --only host
  quarterdeck doctor --json | jq '.checks[] | select(.level == "error")'

No run is started, and without --live nothing is asked of other machines.
Exit codes: 0 no errors, 2 errors, or bad usage.
"""


def doctor_main(argv: Sequence[str]) -> int:
    """`quarterdeck doctor`. Exit code 0 without errors, else 2."""
    parser = Parser("doctor", "Look for what would keep a run from starting, or from ending well.", _EPILOG)
    parser.add_argument("words", nargs="*", metavar="FILE.toml key=value", help="options of the run that is meant")
    parser.add_argument("--live", action="store_true", help="also ask the gateway and the sandbox provider")
    parser.add_argument("--only", action="append", default=[], metavar="CODE", help="codes that begin so; repeatable")
    parser.add_argument("--json", action="store_true", help="one object: ok, checks: [code, level, found, why, remedy]")
    args = parser.parse_intermixed_args(argv)

    from console.doctor.case import Case, this_host
    from console.doctor.examination import examine
    from console.doctor.report import as_json, as_text, exit_code

    options: RunOptions | None = None
    faults: list[ValueFault] = []
    if args.words:
        options, faults = parse_all(args.words)
    case = Case(host=this_host(), options=options, given=bool(args.words), faults=faults, live=args.live)
    checks = examine(case, tuple(args.only))
    if args.json:
        say(as_json(checks))
    else:
        say(as_text(checks, min(WIDEST, shutil.get_terminal_size().columns)))
    return exit_code(checks)
