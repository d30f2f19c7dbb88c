"""The commands `runs` and `ctl`: what they take, what they print. Each returns its exit code."""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

from console.control.client import new_command, send_command
from console.control.commands import COMMANDS, Command, CommandSpec, parse_target
from console.control.runs import RunInfo, find_run, list_runs, load_view
from console.errors import ControlError, QuarterdeckError, UsageError
from console.headless.status import status_lines, status_record
from console.state.sanitize import sanitize

EXIT_REFUSED = 1
_NAMES = {name.replace("_", "-"): spec for name, spec in COMMANDS.items()}


class _Parser(argparse.ArgumentParser):
    """Complains in one line, as every command does."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}: see `{self.prog} --help`")


def _one_line_errors(command: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> int:
        try:
            return command(*args, **kwargs)
        except QuarterdeckError as error:
            sys.stderr.write(f"quarterdeck: error: {error}\n")
            return error.exit_code
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 129

    return run


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _parser(name: str, description: str, epilog: str) -> _Parser:
    return _Parser(
        prog=f"quarterdeck {name}",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


# --- runs ----------------------------------------

_RUNS_EPILOG = """\
states:
  live      its engine runs        finished  it ended by itself
  stopped   ended by the operator or by policy      failed  ended by an error
  dead      its engine died without a word; the journal is intact up to there
  gone      its directory was removed (only with --all)

examples:
  quarterdeck runs                        what is there, newest first
  quarterdeck runs --json | jq '.[] | select(.state == "live") | .run_id'
  quarterdeck attach                      open the console on the only live run
  quarterdeck replay RUN_DIR              look at one that is over
"""

_NO_RUNS = """\
No runs yet. Start one:
  quarterdeck demo                 the whole chain on this machine
  quarterdeck train FILE.toml      your tasks, your gateway"""


@_one_line_errors
def runs_main(argv: Sequence[str]) -> int:
    """`quarterdeck runs`. Exit code 0, 2 for bad usage."""
    parser = _parser("runs", "List your runs on this machine.", _RUNS_EPILOG)
    parser.add_argument("--json", action="store_true", help="a JSON list: run_id, run_dir, state, step, steps, ...")
    parser.add_argument("--all", action="store_true", help="also runs whose directory is gone")
    args = parser.parse_args(argv)
    runs = list_runs(missing=args.all)
    if args.json:
        _say(json.dumps([run_record(run) for run in runs], indent=2))
    elif not runs:
        _say(_NO_RUNS)
    else:
        _say("\n".join(_table(runs)))
    return 0


def run_record(run: RunInfo) -> dict[str, Any]:
    """A run as `runs --json` lists it; `started` in Unix seconds; null what is not known."""
    return {
        "run_id": run.run_id,
        "run_dir": run.run_dir,
        "state": run.state,
        "step": run.step,
        "steps": run.steps,
        "started": run.started,
        "pid": run.pid,
        "socket": run.socket,
    }


def _table(runs: list[RunInfo]) -> list[str]:
    rows = [("RUN", "NAME", "STATE", "STEPS", "STARTED", "DIRECTORY")]
    for run in runs:
        started = datetime.fromtimestamp(run.started, UTC).strftime("%Y-%m-%d %H:%MZ") if run.started else "--"
        done = "--" if run.steps_done is None else str(run.steps_done)
        steps = f"{done}/{'--' if run.steps is None else run.steps}"
        row = (run.run_id, run.name or "--", run.state, steps, started, run.run_dir)
        rows.append(tuple(sanitize(cell, 200) for cell in row))  # type: ignore[arg-type]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths)), row[-1]]) for row in rows]


# --- ctl ----------------------------------------


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


@_one_line_errors
def ctl_main(argv: Sequence[str]) -> int:
    """`quarterdeck ctl`. Exit code 0 done, 1 refused, 2 bad usage or no answer."""
    parser = _parser("ctl", "Ask a running run for something, from a script or another terminal.", _ctl_epilog())
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
        _say(json.dumps({**record, "id": result.id, "status": result.status, "text": sanitize(result.text)}))
    else:
        _say(f"{result.status.replace('_', ' ')}: {sanitize(result.text)}")
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
        _say(json.dumps({**run_record(run), **status_record(view)}))
    else:
        _say("\n".join(status_lines(run.state, view)))
    return 0
