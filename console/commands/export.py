"""`quarterdeck export`: a run, or the screen at a moment of it, as a file."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from console.commands import export_tokens
from console.commands.export_file import file_or_stdout
from console.commands.parsing import Parser
from console.errors import UsageError
from console.state.sanitize import sanitize
from console.state.words import BENCHMARK

if TYPE_CHECKING:
    from console.journal.layout import Damage
    from console.records.run_dir import RunRecord
    from console.records.timeline import Gap

FORMATS = ("json", "csv", "svg", "cast", "txt")
WHAT = {"json": ("view", "events", "trials"), "csv": ("steps", "trials", "events")}
"""What can be had of a format, the default first; of a benchmark, `trials` is the default of tables and JSON lines."""
_SUFFIXES = {".json": "json", ".jsonl": "json", ".csv": "csv", ".svg": "svg", ".cast": "cast", ".txt": "txt"}
_PROGRESS_SECONDS = 0.5
READ_SECONDS = 600.0
HOLES_NAMED = 5
_EPILOG = """\
formats:
  json   --what view     state, step history, and what is missing, at a moment: one object (the default)
         --what events   the events as they are in the journal, one a line; the default of FILE.jsonl
         --what trials   the trials of a benchmark, one a line; the default of FILE.jsonl for such a run
  csv    --what steps    one row a training step (the default)
         --what trials   one row a trial: its last try, outcome, cause, reward, turns, tokens, seconds; of a
                         benchmark (where it is the default) class, cause, rule, reward, seconds, tokens, cost
         --what events   one row an event, with the console's sentence about it
  svg, txt               the screen at a moment, as a picture or as text
  cast                   the console playing the run, for asciinema and its players (asciicast v2)

moments (--at, --from):
  14:01, 14:01:30    a time of day (local)           s12     the end of step 12
  2026-11-29T14:01   a date and time                 #4711   an event's number
  +5m, 50%           from the start; of the length   start, end

examples:
  quarterdeck export RUN --format csv --what trials -o trials.csv
  quarterdeck export RUN --what events | jq 'select(.type == "alarm.opened")'
  quarterdeck export RUN --format json --at s12 | jq .state.groups
  quarterdeck export RUN --tokens --step 12 -o step12.jsonl
  quarterdeck export RUN -o screen.svg --at 14:01 --size 120x40 --theme light --page metrics
  quarterdeck export RUN -o run.cast --speed 16 --size 100x30
"""


def export_main(argv: list[str]) -> int:
    """Run `export`; the exit code."""
    args = _parser().parse_args(argv)
    kind = _format(args)
    _only(args, kind)
    if export_tokens.is_wanted(args, kind):
        return _tokens(args)
    what = _what(args, kind)
    record = _open(args.run)
    what = _of_kind(record, args, kind, what)
    target = _target(args, f"--format {kind}" if kind in ("svg", "cast") else None)
    progress = _Progress(record.journal.last_seq)
    with file_or_stdout(target, args.force) as sink:
        match kind:
            case "json" | "csv":
                _tables(record, args, kind, what, sink.write, progress)
            case "cast":
                _cast(record, args, sink.write, progress)
            case _:
                _picture(record, args, kind, sink.write)
    progress.end()
    if (kind, what) != ("json", "view"):  # which has it in the document
        _say_what_is_missing(record, _moment(record, args.at))
    return 0


def _target(args: argparse.Namespace, not_shown: str | None) -> Path | None:
    """The file to write, None for standard output; `not_shown` is what a terminal is not sent."""
    if args.output is None and not_shown and sys.stdout.isatty():
        raise UsageError(f"{not_shown} is not for a terminal: name a file with -o, or -o - for standard output")
    return Path(args.output) if args.output not in (None, "-") else None


def _tokens(args: argparse.Namespace) -> int:
    target = _target(args, "--tokens")
    progress = _Progress(0)
    with file_or_stdout(target, args.force) as sink:
        told = export_tokens.export_tokens(
            _run_dir(args.run), export_tokens.wanted(args), args.calls, lambda text: sink.write(_ascii(text)), progress
        )
    progress.end()
    for line in told.lines:
        sys.stderr.write(f"quarterdeck: {sanitize(line, limit=600)}\n")
    return told.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "export",
        "Writes a run, or the screen at a moment of it, as a file. Runs that still run, were killed, or left only a\n"
        "plain log directory of the cookbook can be exported too. Nothing is sent anywhere, and no secrets are in it.",
        export_tokens.EPILOG + _EPILOG,
    )
    parser.add_argument("run", help="run directory, or run id, its start, or name")
    parser.add_argument("--format", choices=FORMATS, help="by default what the name of the file says, else json")
    parser.add_argument("--what", metavar="WHAT", help="json: view, events; csv: steps, trials, events")
    parser.add_argument("-o", "--output", metavar="FILE", help="- (the default) is standard output")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    parser.add_argument("--at", default="end", metavar="MOMENT", help="up to when, see below (default: end)")
    export_tokens.add_options(parser)
    screen = parser.add_argument_group("the screen (svg, txt, cast)")
    screen.add_argument("--size", default="120x40", help="columns and rows (default: 120x40)")
    screen.add_argument("--theme", default="dark", help="name of a theme (default: dark)")
    screen.add_argument("--page", default="run", help="run, metrics, events, alarms or config (default: run)")
    screen.add_argument("--ascii", action="store_true", help="no characters beyond ASCII")
    cast = parser.add_argument_group("the cast")
    cast.add_argument("--speed", help="times real time, 0.25 to 64; the default makes it about a minute long")
    cast.add_argument("--from", dest="begin", default="start", metavar="MOMENT", help="where it begins")
    cast.add_argument("--idle", type=float, metavar="SECONDS", help="players cut longer pauses to so much")
    return parser


def _format(args: argparse.Namespace) -> str:
    if args.format is not None:
        return str(args.format)
    if args.output in (None, "-"):
        return "json"
    suffix = Path(args.output).suffix.lower()
    if suffix not in _SUFFIXES and args.tokens:  # which have one format
        return "json"
    if suffix not in _SUFFIXES:
        raise UsageError(f"-o {args.output}: its name tells no format; add --format {', '.join(FORMATS)}")
    return _SUFFIXES[suffix]


def _what(args: argparse.Namespace, kind: str) -> str:
    known = WHAT.get(kind, ())
    if args.what is None:
        jsonl = kind == "json" and args.output is not None and args.output.endswith(".jsonl")
        return "events" if jsonl else known[0] if known else ""
    if args.what not in known:
        offer = f"--format {kind} has --what {', '.join(known)}" if known else f"--format {kind} takes no --what"
        raise UsageError(f"--what {args.what}: {offer}")
    return str(args.what)


def _of_kind(record: RunRecord, args: argparse.Namespace, kind: str, what: str) -> str:
    """What to write, once it is known whether the run is a benchmark. Raises `UsageError`."""
    if kind not in WHAT:
        return what
    bench = record.view_at_end().state.kind == BENCHMARK
    if bench and args.what is None:
        return what if (kind, what) == ("json", "view") else "trials"
    if (kind, what) == ("json", "trials") and not bench:
        raise UsageError("--what trials: as JSON it is for benchmarks; --format csv has the trials of a training")
    return what


def _only(args: argparse.Namespace, kind: str) -> None:
    """Options of another format are refused: whoever wrote them expects something of them."""
    given = {"--speed": args.speed, "--idle": args.idle, "--from": args.begin if args.begin != "start" else None}
    for name, value in given.items():
        if value is not None and kind != "cast":
            raise UsageError(f"{name} is for --format cast")
    if args.idle is not None and not 0 < args.idle <= 3600:
        raise UsageError(f"--idle {args.idle:g}: give seconds above 0")


def _open(run: str) -> RunRecord:
    from console.tui.opening import open_record

    return open_record(_run_dir(run))


def _run_dir(run: str) -> Path:
    path = Path(run)
    if path.is_dir():
        return path
    from console.control.runs import find_run

    return Path(find_run(run).run_dir)


# --- formats ---


def _moment(record: RunRecord, text: str, option: str = "--at") -> int:
    """The number of the last event up to a moment. Raises `UsageError`."""
    from console.tui.goto import parse_goto

    line = record.timeline()
    try:
        seq, ts = parse_goto(text, line, line.first_ts or 0.0)
    except ValueError as error:
        raise UsageError(f"{option} {error}") from None
    return seq if seq is not None else max(1, record.journal.seq_at(ts or 0.0))


def _tables(
    record: RunRecord, args: argparse.Namespace, kind: str, what: str, write: Callable[[str], object],
    progress: _Progress,
) -> None:  # fmt: skip
    from console.headless import trial_table
    from console.records import tables

    until = _moment(record, args.at)
    progress.total = until
    state = record.view_at(seq=until).state if what == "trials" else None
    bench = state if state is not None and state.kind == BENCHMARK else None
    match kind, what:
        case "json", "view":
            write(_view(record, until))
        case "json", "trials":
            for part in trial_table.trial_lines(bench) if bench is not None else ():
                write(part)
        case "json", _:
            from console.journal.codec import encode_event

            for event in record.journal.events(0, until):
                write(_ascii(encode_event(event).decode()) + "\n")
                progress(event.seq)
        case _, "steps":
            columns, rows = tables.step_table(record, until)
            for part in tables.csv_lines(columns, rows):
                write(part)
        case _, "trials" if bench is not None:
            for part in tables.csv_lines(trial_table.COLUMNS, trial_table.trial_rows(bench)):
                write(part)
        case _, "trials":
            for part in tables.csv_lines(tables.TRIAL_COLUMNS, tables.trial_table(record, until, progress)):
                write(part)
        case _:
            for part in tables.csv_lines(tables.EVENT_COLUMNS, tables.event_table(record, until, progress)):
                write(part)


def _view(record: RunRecord, until: int) -> str:
    import msgspec

    from console import __version__
    from console.journal.events import SCHEMA_VERSION
    from console.records.tables import moment

    view = record.view_at(seq=until)
    state = view.state
    holes, damage = _missing(record)
    body = {
        "quarterdeck": __version__, "schema": SCHEMA_VERSION, "seq": state.seq, "time": moment(state.ts),
        "coarse": record.coarse, "missing": holes, "damage": [str(one) for one in damage],
        "state": state, "history": view.history.rows,
    }  # fmt: skip
    return _ascii(msgspec.json.format(msgspec.json.encode(body), indent=2).decode()) + "\n"


def _missing(record: RunRecord) -> tuple[tuple[Gap, ...], list[Damage]]:
    """Events that are missing, and what of the files could not be read."""
    from console.records.marking import MarkReader

    reader = MarkReader(record)
    reader.begin(READ_SECONDS)
    return reader.marks.holes if reader.marks is not None else (), reader.damage


def _say_what_is_missing(record: RunRecord, until: int) -> None:
    """On standard error: what was written is not all that happened up to there."""
    holes, damage = _missing(record)
    before = [hole for hole in holes if hole.first_seq <= until]
    named = [
        f"event {hole.first_seq}" if hole.first_seq == hole.last_seq else f"events {hole.first_seq}-{hole.last_seq}"
        for hole in before[:HOLES_NAMED]
    ]
    if len(before) > HOLES_NAMED:
        named.append(f"{len(before) - HOLES_NAMED} more stretches")
    if named:
        sys.stderr.write(f"quarterdeck: the journal is damaged: {', '.join(named)} are missing; the rest is exported\n")
    elif damage and not holes:
        more = f" and {len(damage) - 1} more" if len(damage) > 1 else ""
        line = sanitize(f"{damage[0]}{more}", limit=300)
        sys.stderr.write(f"quarterdeck: not all of the recording can be read: {line}; the rest is exported\n")


def _ascii(text: str) -> str:
    """The same JSON in ASCII: a terminal obeys some of what JSON need not escape."""
    if text.isascii() and "\x7f" not in text:
        return text
    return re.sub(r"[^\x00-\x7e]", lambda found: json.dumps(found[0])[1:-1].replace("\x7f", "\\u007f"), text)


def _picture(record: RunRecord, args: argparse.Namespace, kind: str, write: Callable[[str], object]) -> None:
    os.environ.pop("NO_COLOR", None)  # the theme says what colours there are
    from console.tui.screenshot import checked_look, render, render_text

    look = checked_look(args.size, args.theme, args.ascii, args.page)
    write(asyncio.run((render if kind == "svg" else render_text)(record, look, args.at)))


def _cast(
    record: RunRecord, args: argparse.Namespace, write: Callable[[str], object], progress: _Progress
) -> None:  # fmt: skip
    os.environ.pop("NO_COLOR", None)
    from console.tui.cast import record_cast
    from console.tui.replay import parse_speed
    from console.tui.screenshot import checked_look

    speed = None
    if args.speed is not None:
        try:
            speed = parse_speed(args.speed)
        except ValueError:
            speed = 0.0
        if speed <= 0:
            raise UsageError(f"--speed {args.speed}: give 0.25 to 64")
    look = checked_look(args.size, args.theme, args.ascii, args.page)
    first, last = _moment(record, args.begin, "--from"), _moment(record, args.at)
    if first >= last:
        raise UsageError(f"--from {args.begin} (event {first}) must lie before --at {args.at} (event {last})")
    asyncio.run(
        record_cast(
            record, look, write, speed=speed, begin=args.begin, end=args.at, idle_limit=args.idle, heard=progress
        )
    )  # fmt: skip


class _Progress:
    """How far long work is, on standard error when that is a terminal."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._next = time.monotonic() + _PROGRESS_SECONDS
        self._shown = False

    def __call__(self, seq: int, /) -> None:
        """Event `seq`, or the file of that number, has been reached."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _PROGRESS_SECONDS
        if sys.stderr.isatty():
            self._shown = True
            sys.stderr.write(f"\r{min(1.0, seq / max(1, self.total)):4.0%}")
            sys.stderr.flush()

    def end(self) -> None:
        """Take the line back."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
