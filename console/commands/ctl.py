"""`quarterdeck ctl`: the console's actions for a script, and what there is to know about a run.

The commands and their arguments come from the one table that the console uses too; the views are those of `ctl_views`.
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence

import msgspec

from console.commands.ctl_trial import show_trial
from console.commands.ctl_views import show_alarms, show_events, show_groups, show_status, show_viewers
from console.commands.parsing import Parser, say
from console.control.blocking import new_command, send_command
from console.control.commands import COMMANDS, ArgSpec, Command, CommandResult, CommandSpec, parse_target
from console.control.dispatch import REASON_LIMIT, fault_of
from console.control.runs import RunInfo, find_run
from console.errors import ControlError, UsageError
from console.journal.events import Scalars
from console.state.sanitize import sanitize

EXIT_REFUSED = 1


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Something to look at. `usage`: its words; `options`: of its own; `show`: prints it, returns the exit code."""

    usage: str
    help: str
    show: Callable[[RunInfo, list[str], argparse.Namespace], int]
    options: tuple[str, ...] = ()


_NAMES = {name.replace("_", "-"): spec for name, spec in COMMANDS.items()}
_VIEWS = {
    "status": View(usage="", help="where the run is, in a few lines or as JSON", show=show_status),
    "groups": View(usage="", help="each group of the current step: its trials and their outcomes", show=show_groups),
    "trial": View(
        usage=" g3/t5",
        help="what a trial said and did: --kind transcript, verifier, tokens, log or result",
        show=show_trial,
        options=("kind", "step", "try", "call", "limit"),
    ),
    "alarms": View(usage="", help="alarms that are open, acknowledged or shelved", show=show_alarms),
    "events": View(
        usage="", help="the run's journal from an event on: --after SEQ", show=show_events, options=("after", "limit")
    ),
    "viewers": View(usage="", help="who looks at the run, and who has the watch", show=show_viewers),
}
_OWN_OPTIONS = {
    "off": [name for name, spec in _NAMES.items() if any(a.kind == "flag" for a in spec.args)],
    "step": [name for name, spec in _NAMES.items() if any(a.name == "step" for a in spec.args)],
}


def _numeric(spec: CommandSpec) -> dict[str, ArgSpec]:
    return {arg.name: arg for arg in spec.args if arg.kind in ("number", "budget")}


for _name, _spec in _NAMES.items():
    for _arg in _numeric(_spec):
        _OWN_OPTIONS.setdefault(_arg, []).append(_name)
for _name, _view in _VIEWS.items():
    for _arg in _view.options:
        _OWN_OPTIONS.setdefault(_arg, []).append(_name)


def _usage(spec: CommandSpec) -> str:
    words = {"none": "", "group": " g3", "trial": " g3/t5", "optional": " [g3 or g3/t5]"}[spec.target]
    for arg in spec.args:
        if arg.kind == "text":
            words += f" {arg.name.upper()}" if arg.required else f" [{arg.name.upper()}]"
        elif arg.kind == "flag":
            words += " [--off]"
        elif not spec.one_of:
            words += f" [--{arg.name.replace('_', '-')} N]"
    return words + (" NAME=VALUE ..." if spec.one_of else "")


def _ctl_epilog() -> str:
    def line(name: str, words: str, help: str, cost: str = "") -> str:
        return f"  {name + words:<32}  {help}{f' ({cost})' if cost else ''}"

    settings = [
        f"  {'':<4}{arg.name:<28}  {arg.help}" for spec in COMMANDS.values() if spec.one_of for arg in spec.args
    ]
    return "\n".join(
        [
            "commands:",
            *(line(name, _usage(spec), spec.help, spec.cost) for name, spec in _NAMES.items()),
            "",
            "what `set` takes:",
            *settings,
            "",
            "to look at:",
            *(line(name, view.usage, view.help) for name, view in _VIEWS.items()),
            "",
            "RUN is a run's id, its beginning, its name, or its directory; left out, the only live run is meant.",
            "--run RUN says the same, and is needed for a run that is called like a command. Groups and trials are",
            "named as the console shows them, from g1 and t1.",
            "",
            f"A note, and the words of --reason, are one line of at most {REASON_LIMIT} characters.",
            "",
            "exit codes: 0 done, or possible with --dry-run; 1 refused by the run; 2 bad usage, or no answer.",
            "",
            "examples:",
            "  quarterdeck ctl status",
            "  quarterdeck ctl retry                          every trial that is held",
            "  quarterdeck ctl cancel-group g3 --dry-run      what would be lost",
            '  quarterdeck ctl cancel-group g3 --yes --reason "task is broken"',
            "  quarterdeck ctl stop-after-step                and, to take it back: --off",
            "  quarterdeck ctl set parallel=2 token_budget=none",
            "  quarterdeck ctl ack disk.low && quarterdeck ctl shelve gateway.slow --minutes 30",
            "  quarterdeck ctl trial g3/t5 --kind verifier",
            "  quarterdeck ctl events --after 1200 --json | jq .cursor",
            "  quarterdeck ctl demo-1 stop-now --yes --json",
        ]
    )


def _parser() -> Parser:
    parser = Parser("ctl", "Ask a running run for something, from a script or another terminal.", _ctl_epilog())
    parser.add_argument("words", nargs="*", metavar="[RUN] COMMAND [TARGET]", help="see below")
    parser.add_argument("--run", metavar="RUN", help="the run that is meant")
    parser.add_argument("--reason", default="", help="why; kept in the run's journal and audit file")
    parser.add_argument("--dry-run", action="store_true", help="say what would happen, and do nothing")
    parser.add_argument("--off", action="store_true", default=None, help="take the request back")
    parser.add_argument("--yes", action="store_true", help="do not ask before work is lost")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--timeout", type=_seconds, default=30.0, metavar="SECONDS", help="wait for an answer (30)")
    for name, arg in {name: arg for spec in COMMANDS.values() for name, arg in _numeric(spec).items()}.items():
        help = argparse.SUPPRESS if COMMANDS["set"].one_of and name in _numeric(COMMANDS["set"]) else arg.help
        parser.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar="N", help=help)
    parser.add_argument("--kind", choices=("transcript", "verifier", "tokens", "log", "result"), help="of `trial`")
    parser.add_argument(
        "--step",
        type=_index,
        metavar="N",
        help="of `trial`: a step other than the current one; of cancelling and retrying: only if it is the current one",
    )
    parser.add_argument("--try", type=_index, metavar="N", help="of `trial`: which try, from 1; the last one")
    parser.add_argument(
        "--call", type=_index, metavar="N", help="of `trial --kind tokens`: which call, from 1; the last"
    )
    parser.add_argument("--after", type=_index, metavar="SEQ", help="of `events`: those after this one; the last 50")
    parser.add_argument("--limit", type=_index, metavar="N", help="of `events` and `trial`: at most so many (1000)")
    return parser


def ctl_main(argv: Sequence[str]) -> int:
    """`quarterdeck ctl`. Exit code 0 done, 1 refused, 2 bad usage or no answer."""
    args = _parser().parse_intermixed_args(argv)
    run_name, name, rest = _words(args.words, args.run)
    _check_options(name, args)
    if name in _VIEWS:
        if rest and not _VIEWS[name].usage:
            raise UsageError(f"{name} takes nothing more, and {rest[0]!r} was given")
        return _VIEWS[name].show(find_run(run_name), rest, args)
    command = _command(_NAMES[name], rest, args)
    run = find_run(run_name)
    if run.state != "live" or run.socket is None:
        raise ControlError(f"run {run.run_id} is not live ({run.state}): it takes no commands")
    if _NAMES[name].destructive and not (args.yes or args.dry_run):
        refused = _confirm(name, rest, _NAMES[name], run, command, named=run_name is not None)
        if refused is not None:
            return _report(run, command, refused, args.json)
    return _report(run, command, send_command(run.socket, command, args.timeout, run=run.run_id), args.json)


def _report(run: RunInfo, command: Command, result: CommandResult, as_json: bool) -> int:
    if as_json:
        record = {"v": 1, "type": "result", "run_id": run.run_id, "command": command.command, "args": command.args}
        say(json.dumps({**record, "id": result.id, "status": result.status, "text": sanitize(result.text)}))
    else:
        say(f"{result.status.replace('_', ' ')}: {sanitize(result.text)}")
    return EXIT_REFUSED if result.status == "refused" else 0


# --- the words of the command line ---------------------------------------------------------------------------------


def _words(words: list[str], run: str | None) -> tuple[str | None, str, list[str]]:
    """Run, command and what follows. A first word that is a command is one: a run of that name needs `--run`."""
    known = [*_VIEWS, *_NAMES]

    def name_of(word: str) -> str:
        return word.replace("_", "-").lower()

    if not words:
        raise UsageError("a command is missing: see `quarterdeck ctl --help`")
    at = 0 if name_of(words[0]) in known or run is not None else 1
    if len(words) <= at or name_of(words[at]) not in known:
        word = words[min(at, len(words) - 1)]
        near = difflib.get_close_matches(name_of(word), known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
        raise UsageError(f"unknown command {word!r}: {hint}")
    return (words[0] if at else run), name_of(words[at]), words[at + 1 :]


def _check_options(name: str, args: argparse.Namespace) -> None:
    for option, owners in _OWN_OPTIONS.items():
        if getattr(args, option) is not None and name not in owners:
            raise UsageError(f"--{option.replace('_', '-')} belongs to {' and '.join(owners)}, not to {name}")


def _command(spec: CommandSpec, rest: list[str], args: argparse.Namespace) -> Command:
    name, numbers = spec.name.replace("_", "-"), _numeric(spec)
    scalars: Scalars = {}
    given = {key: getattr(args, key) for key in numbers if getattr(args, key) is not None}
    plain = []
    for word in rest:
        key, equals, value = word.partition("=")
        key = key.replace("-", "_")
        if equals and (key in numbers or spec.one_of):
            if key in given:
                raise UsageError(f"{name}: {key} is given twice")
            given[key] = value
        else:
            plain.append(word)
    for key, value in given.items():
        if key not in numbers:
            near = difflib.get_close_matches(key, numbers, n=1)
            hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(numbers)}"
            raise UsageError(f"{name} does not know {key!r}: {hint}")
        scalars[key] = _number(name, numbers[key], value)
    scalars |= _target(spec, name, plain)
    if args.off:
        scalars["on"] = False
    if args.step is not None:
        scalars["step"] = args.step
    command = new_command(spec.name, scalars, reason=_line(args.reason, "--reason"), dry_run=args.dry_run)
    fault = fault_of(command)
    if fault:
        raise UsageError(fault.replace(spec.name, name, 1))
    return command


def _target(spec: CommandSpec, name: str, words: list[str]) -> Scalars:
    """What the words without `=` say: a target, or a text."""
    text = next((arg for arg in spec.args if arg.kind == "text"), None)
    if text is not None:
        if not words:
            return {}
        if len(words) > 1 and text.name != "text":
            raise UsageError(f"{name}: one {text.name} at a time, not {' '.join(words)}")
        return {text.name: _line(" ".join(words), name)}
    if len(words) > 1 and spec.target != "none":
        raise UsageError(f"{name}: one target at a time, not {' '.join(words)}")
    target = words[0] if words else None
    if target is None and spec.target in ("group", "trial"):
        raise UsageError(f"{name} needs a target: {'g3' if spec.target == 'group' else 'g3/t5'}, as the console shows")
    if target is not None and spec.target == "none":
        how = "write name=value" if spec.one_of else f"and {target!r} was given"
        raise UsageError(f"{name} takes no target, {how}")
    scalars = parse_target(target) if target is not None else {}
    if spec.target == "trial" and "trial" not in scalars:
        raise UsageError(f"{name} needs a trial: {target}/t1, for example")
    if spec.target == "group" and "trial" in scalars:
        raise UsageError(f"{name} takes a group, not a trial: {str(target).partition('/')[0]}")
    return scalars


def _line(text: str, what: str) -> str:
    """Words for the record, on one line. Raises `UsageError` rather than to cut them."""
    text = " ".join(text.splitlines())
    if len(text) > REASON_LIMIT:
        raise UsageError(f"{what}: {len(text)} characters, and at most {REASON_LIMIT} are kept")
    return sanitize(text, REASON_LIMIT)


def _number(name: str, arg: ArgSpec, text: str) -> float | int | None:
    if arg.kind == "budget" and text.strip().lower() in ("none", "off", ""):
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        none = ", or none" if arg.kind == "budget" else ""
        raise UsageError(f"{name}: {arg.name}={sanitize(text, 40)} is not a number{none}")
    return int(value) if value.is_integer() else value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("give seconds above 0")
    return value


def _index(text: str) -> int:
    value = int(text)
    if not 0 <= value < 1 << 53:
        raise argparse.ArgumentTypeError("give a number from 0")
    return value


# --- before work is lost -------------------------------------------------------------------------------------------


def _confirm(
    name: str, words: Iterable[str], spec: CommandSpec, run: RunInfo, command: Command, named: bool
) -> CommandResult | None:
    """Ask at the terminal, with what the engine says that it would do. A refusal of the engine is returned.

    Raises:
        UsageError: there is nobody to ask, or the answer is no.
    """
    called = sanitize(run.name or run.run_id, 80)
    what = f"{' '.join([name, *words])} on run {called}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{what}: {spec.cost}: add --yes, or --dry-run to see what it would do")
    trial = msgspec.structs.replace(command, dry_run=True)
    foreseen = send_command(str(run.socket), trial, run=run.run_id)
    if foreseen.status == "refused":
        return foreseen
    typed = spec.typed and not named
    question = f"Type {called} to go on:" if typed else "Go on? [y/N]"
    sys.stderr.write(f"{what}: {sanitize(foreseen.text)}. {question} ")
    sys.stderr.flush()
    answer = sys.stdin.readline().strip()
    if not (answer == called if typed else answer.lower() in ("y", "yes")):
        raise UsageError("nothing was done")
    return None
