"""`quarterdeck ctl`: the console's actions for a script, and the state of a run in a few lines."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from console.commands.parsing import Parser, say
from console.commands.runs import run_record
from console.control.client import new_command, send_command
from console.control.commands import COMMANDS, Command, CommandSpec, parse_target
from console.control.runs import RunInfo, find_run, load_view
from console.errors import ControlError, UsageError
from console.headless.status import status_lines, status_record
from console.state.sanitize import sanitize

EXIT_REFUSED = 1
_NAMES = {name.replace("_", "-"): spec for name, spec in COMMANDS.items()}


def _ctl_epilog() -> str:
    def line(name: str, spec: CommandSpec) -> str:
        target = {"none": "", "group": " g3", "trial": " g3/t5", "optional": " [g3 or g3/t5]"}[spec.target]
        cost = f" ({spec.cost})" if spec.cost else ""
        return f"  {name + target:<24}  {spec.help}{cost}"

    return "\n".join(
        [
            "commands:",
            f"  {'status':<24}  where the run is, in a few lines or as JSON",
            *(line(name, spec) for name, spec in _NAMES.items()),
            "",
            "RUN is a run's id, its beginning, its name, or its directory; left out, the only live run is meant.",
            "Groups and trials are named as the console shows them, from g1 and t1.",
            "",
            "exit codes: 0 done, or possible with --dry-run; 1 refused by the run; 2 bad usage, or no answer.",
            "",
            "examples:",
            "  quarterdeck ctl status",
            "  quarterdeck ctl retry                          every trial that is held",
            "  quarterdeck ctl cancel-group g3 --dry-run      what would be lost",
            '  quarterdeck ctl cancel-group g3 --yes --reason "task is broken"',
            "  quarterdeck ctl stop-after-step                and, to take it back: --off",
            "  quarterdeck ctl demo-1 stop-now --yes --json",
        ]
    )


def ctl_main(argv: Sequence[str]) -> int:
    """`quarterdeck ctl`. Exit code 0 done, 1 refused, 2 bad usage or no answer."""
    parser = Parser("ctl", "Ask a running run for something, from a script or another terminal.", _ctl_epilog())
    parser.add_argument("words", nargs="*", metavar="[RUN] COMMAND [TARGET]", help="see below")
    parser.add_argument("--reason", default="", help="why; kept in the run's journal and audit file")
    parser.add_argument("--dry-run", action="store_true", help="say what would happen, and do nothing")
    parser.add_argument("--off", action="store_true", help="with stop-after-step: take the request back")
    parser.add_argument("--yes", action="store_true", help="do not ask before work is lost")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS", help="wait for an answer (30)")
    args = parser.parse_intermixed_args(argv)
    run_name, name, target = _words(args.words)
    if name == "status":
        return _status(find_run(run_name), args.json)
    command = _command(_NAMES[name], target, args)
    run = find_run(run_name)
    if run.state != "live" or run.socket is None:
        raise ControlError(f"run {run.run_id} is not live ({run.state}): it takes no commands")
    if _NAMES[name].destructive and not (args.yes or args.dry_run):
        _confirm(name, target, _NAMES[name], run)
    result = send_command(run.socket, command, args.timeout, run=run.run_id)
    if args.json:
        record = {"v": 1, "type": "result", "run_id": run.run_id, "command": command.command, "args": command.args}
        say(json.dumps({**record, "id": result.id, "status": result.status, "text": sanitize(result.text)}))
    else:
        say(f"{result.status.replace('_', ' ')}: {sanitize(result.text)}")
    return EXIT_REFUSED if result.status == "refused" else 0


def _words(words: list[str]) -> tuple[str | None, str, str | None]:
    """Run, command and target. A first word that is a command is one, unless another command follows."""
    known = {"status", *_NAMES}

    def name_of(word: str) -> str:
        return word.replace("_", "-")

    if not words:
        raise UsageError("a command is missing: see `quarterdeck ctl --help`")
    second_is = len(words) > 1 and name_of(words[1]) in known
    at = 1 if second_is or name_of(words[0]) not in known else 0
    if len(words) <= at or name_of(words[at]) not in known:
        word = words[min(at, len(words) - 1)]
        raise UsageError(f"unknown command {word!r}: choose from {', '.join(['status', *_NAMES])}")
    name, rest = name_of(words[at]), words[at + 1 :]
    if len(rest) > 1:
        raise UsageError(f"{name}: one target at a time, not {' '.join(rest)}")
    return (words[0] if at else None), name, (rest[0] if rest else None)


def _command(spec: CommandSpec, target: str | None, args: argparse.Namespace) -> Command:
    name = spec.name.replace("_", "-")
    if target is None and spec.target in ("group", "trial"):
        raise UsageError(f"{name} needs a target: {'g3' if spec.target == 'group' else 'g3/t5'}, as the console shows")
    if target is not None and spec.target == "none":
        raise UsageError(f"{name} takes no target, and {target!r} was given")
    scalars = parse_target(target) if target is not None else {}
    if spec.target == "trial" and "trial" not in scalars:
        raise UsageError(f"{name} needs a trial: {target}/t1, for example")
    if spec.target == "group" and "trial" in scalars:
        raise UsageError(f"{name} takes a group, not a trial: {str(target).partition('/')[0]}")
    if args.off:
        if spec.name != "stop_after_step":
            raise UsageError(f"--off belongs to stop-after-step, not to {name}")
        scalars["on"] = False
    return new_command(spec.name, scalars, reason=sanitize(args.reason, 500), dry_run=args.dry_run)


def _confirm(name: str, target: str | None, spec: CommandSpec, run: RunInfo) -> None:
    what = f"{name}{f' {target}' if target else ''} on run {run.name or run.run_id}: {spec.cost}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{what}: add --yes, or --dry-run to see what it would do")
    sys.stderr.write(f"{what}. Go on? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was done")


def _status(run: RunInfo, as_json: bool) -> int:
    view = load_view(run)
    if as_json:
        say(json.dumps({**run_record(run), **status_record(view)}))
    else:
        say("\n".join(status_lines(run.state, view)))
    return 0
