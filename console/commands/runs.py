"""`quarterdeck runs`: the runs of this user on this machine."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.cells import cell_len, set_cell_size

from console.commands.parsing import Parser, say
from console.control.runs import RunInfo, list_runs
from console.state.sanitize import sanitize
from console.state.words import BENCHMARK

_RUNS_EPILOG = """\
states:
  live      its engine runs        finished  it ended by itself
  stopped   ended by the operator or by policy      failed  ended by an error
  dead      its engine died without a word; the journal is intact up to there
  damaged   its end cannot be read: the journal is damaged
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

_NAME, _STARTED, _DIRECTORY = 1, 4, 5
"""Columns of the table."""


def runs_main(argv: Sequence[str]) -> int:
    """`quarterdeck runs`. Exit code 0, 2 for bad usage."""
    parser = Parser("runs", "List your runs on this machine.", _RUNS_EPILOG)
    parser.add_argument(
        "--json", action="store_true", help="a JSON list: run_id, run_dir, kind, state, step, steps, ..."
    )
    parser.add_argument("--all", action="store_true", help="also runs whose directory is gone")
    args = parser.parse_args(argv)
    runs = list_runs(missing=args.all)
    if args.json:
        say(json.dumps([run_record(run) for run in runs], indent=2))
    elif not runs:
        say(_NO_RUNS)
    else:
        say("\n".join(_table(runs, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)))
    return 0


def run_record(run: RunInfo) -> dict[str, Any]:
    """A run as `runs --json` lists it; `started` in Unix seconds; null what is not known."""
    return {
        "run_id": run.run_id,
        "run_dir": run.run_dir,
        "state": run.state,
        "step": run.step,
        "steps": run.steps,
        "kind": run.kind,
        "trials": run.trials,
        "trials_done": run.trials_done,
        "started": run.started,
        "pid": run.pid,
        "socket": run.socket,
    }


def progress(run: RunInfo) -> str:
    """Steps done of those planned, 7/20; of a benchmark its trials, 37/445 trials; dashes for what is not known."""
    bench = run.kind == BENCHMARK
    done, planned = (run.trials_done, run.trials) if bench else (run.steps_done, run.steps)
    text = f"{'--' if done is None else done}/{'--' if planned is None else planned}"
    return f"{text} trials" if bench else text


def _table(runs: list[RunInfo], cells: int | None) -> list[str]:
    """Lines of at most so many cells, None for as many as it takes. A name or path that is too long is cut."""
    rows = [("RUN", "NAME", "STATE", "STEPS", "STARTED", "DIRECTORY")]
    for run in runs:
        started = datetime.fromtimestamp(run.started, UTC).strftime("%Y-%m-%d %H:%MZ") if run.started else "--"
        steps = progress(run)
        row = (run.run_id, run.name or "--", run.state, steps, started, run.run_dir)
        rows.append(tuple(sanitize(cell, 200) for cell in row))  # type: ignore[arg-type]
    widths = [max(cell_len(row[i]) for row in rows) for i in range(len(rows[0]))]
    if cells is not None:
        _narrow(widths, cells)
    return ["  ".join(_cut(*one) for one in zip(row, widths)).rstrip() for row in rows]


def _narrow(widths: list[int], cells: int) -> None:
    """Take what is too much from the name, then from the directory, then from the start time; then from all."""
    for column, least in ((_NAME, 12), (_DIRECTORY, 24), (_NAME, 4), (_STARTED, 0), (_DIRECTORY, 0)):
        over = sum(widths) + 2 * (len(widths) - 1) - cells
        widths[column] -= min(max(0, over), max(0, widths[column] - least))


def _cut(text: str, cells: int) -> str:
    """So many cells of a text, the rest left out where it is seen."""
    if cell_len(text) <= cells:
        return text + " " * (cells - cell_len(text))
    return set_cell_size(text, cells - 2) + ".." if cells > 2 else " " * cells
