"""A run as tables for people's own analysis: steps, trials, events. Rows are plain values; cells are safe for CSV.

Texts come from policies, sandboxes and tasks. Control characters are taken out, and a text that a spreadsheet would
take for a formula gets a quote in front.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from console.journal import events as ev
from console.records.run_dir import RunRecord
from console.state.lines import line_for, trial_name
from console.state.reduce import RunView, apply
from console.state.sanitize import sanitize

Cell = str | int | float | bool | None
Heard = Callable[[int], object]
"""Told of the event number reached, for progress."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_PHASES = ("environment", "setup", "agent", "verify", "teardown", "total")
TRIAL_COLUMNS = (
    "step", "group", "task", "trial", "name", "try", "outcome", "cause", "rule", "reward", "group_kept", "retryable",
    "exception", "turns", "prompt_tokens", "sampled_tokens", *(f"seconds_{phase}" for phase in _PHASES), "finished",
    "trial_dir", "evidence",
)  # fmt: skip
EVENT_COLUMNS = ("seq", "ts", "time", "type", "step", "group", "trial", "try", "level", "text")
_NO_COLUMNS = frozenset({"type", "seq", "outcomes", "nonfinite"})


def step_table(record: RunRecord, until: int) -> tuple[list[str], Iterator[list[Cell]]]:
    """Columns and rows of the finished steps up to event `until`; one column for each outcome class that occurs."""
    return rows_table(record.view_at(seq=until).history.rows)


def rows_table(rows: Sequence[ev.StepFinished]) -> tuple[list[str], Iterator[list[Cell]]]:
    """The same of finished steps that are at hand."""
    classes = sorted({name for row in rows for name in row.outcomes})
    figures = [name for name in msgspec.structs.fields(ev.StepFinished) if name.name not in _NO_COLUMNS]
    names = ["step", "time", *(f.name for f in figures if f.name != "step")]
    columns = [*names, *(f"outcome_{name}" for name in classes), "nonfinite"]

    def lines() -> Iterator[list[Cell]]:
        for row in rows:
            cells: list[Cell] = [row.step, moment(row.ts), *(getattr(row, name) for name in names[2:])]
            yield [*cells, *(row.outcomes.get(name, 0) for name in classes), ";".join(row.nonfinite)]

    return columns, lines()


def trial_table(record: RunRecord, until: int, heard: Heard = lambda seq: None) -> Iterator[list[Cell]]:
    """A row for the last try of each trial that ended, in order of step, group and trial (all from 0).

    What a resumed run did again replaces what was done before.
    """
    again = _done_again(record)
    engine = 0
    steps: dict[int, dict[tuple[int, int], tuple[int, int, list[Cell]]]] = {}
    tasks: dict[tuple[int, int], str] = {}
    kept: dict[tuple[int, int], bool] = {}

    def take(step: int) -> Iterator[list[Cell]]:
        found = steps.pop(step, {})
        for group, trial in sorted(found):
            row = found[group, trial][-1]
            row[2], row[10] = tasks.get((step, group), ""), kept.get((step, group))
            yield row
        for at in [at for at in tasks if at[0] == step]:
            tasks.pop(at), kept.pop(at, None)

    for event in record.journal.events(0, until):
        match event:
            case ev.RunStarted():
                engine += 1
            case ev.GroupStarted():
                tasks[event.step, event.group] = event.task
            case ev.GroupFinished():
                kept[event.step, event.group] = event.kept
            case ev.TrialFinished():
                step, at = steps.setdefault(event.step, {}), (event.group, event.trial)
                if at not in step or step[at][:2] <= (engine, event.try_):
                    step[at] = engine, event.try_, _trial_row(event)
            case ev.StepFinished():
                heard(event.seq)
                for number in sorted(n for n in steps if n <= event.step and not again(n, event.seq)):
                    yield from take(number)
    for number in sorted(steps):
        yield from take(number)


def _done_again(record: RunRecord) -> Callable[[int, int], bool]:
    """Whether a later engine begins at or before a step: (step, event number) to that."""
    starts = [
        (row.seq, row.resumed_from)
        for row in record.journal.step_rows()
        if isinstance(row, ev.RunStarted) and row.resumed_from is not None
    ]
    return lambda step, seq: any(at > seq and resumed <= step for at, resumed in starts)


def _trial_row(event: ev.TrialFinished) -> list[Cell]:
    return [
        event.step, event.group, "", event.trial, trial_name(event.group, event.trial), event.try_, event.outcome,
        event.cause, event.rule, event.reward, None, event.retryable, event.exception, event.turns,
        event.prompt_tokens, event.sampled_tokens, *(event.seconds.get(phase) for phase in _PHASES), moment(event.ts),
        event.trial_dir, event.evidence,
    ]  # fmt: skip


def event_table(record: RunRecord, until: int, heard: Heard = lambda seq: None) -> Iterator[list[Cell]]:
    """A row for each event but snapshots; `text` is what the console's event list says of it, empty for nothing."""
    view = RunView()
    for event in record.journal.events(0, until):
        apply(view, event)
        if isinstance(event, ev.Snapshot):
            continue
        said = line_for(view.state, event)
        kind = event.original if isinstance(event, ev.UnknownEvent) else event.__struct_config__.tag
        yield [
            event.seq, event.ts, moment(event.ts), str(kind),
            *(getattr(event, name, None) for name in ("step", "group", "trial", "try_")),
            said.level if said is not None else None, said.text if said is not None else None,
        ]  # fmt: skip
        if event.seq % 1000 == 0:
            heard(event.seq)


def csv_lines(columns: Iterable[str], rows: Iterable[list[Cell]]) -> Iterator[str]:
    """CSV with a header line, a line feed after each row."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([csv_cell(column) for column in columns])
    for row in rows:
        writer.writerow([csv_cell(cell) for cell in row])
        if buffer.tell() > 64 << 10:
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


def csv_cell(cell: Cell) -> Cell:
    """A value as CSV may have it: unknown and non-finite ones are empty, texts clean and no formulas."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return cell if math.isfinite(cell) else ""
    if not isinstance(cell, str):
        return cell
    guarded = cell.lstrip().startswith(_FORMULA) or cell.startswith(_FORMULA)
    text = sanitize(cell)
    return f"'{text}" if guarded or text.startswith(_FORMULA) else text


def moment(ts: float) -> str:
    """Unix seconds as UTC, ISO 8601 with milliseconds."""
    return datetime.fromtimestamp(ts, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
