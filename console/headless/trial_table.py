"""The trials of a benchmark as a table or as JSON lines, for exports: one row a trial that has ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from console.headless.benchmark import to_trial_record
from console.records.tables import Cell, moment
from console.state.model import RunState

COLUMNS = (
    "trial", "task", "attempt", "try", "class", "cause", "rule", "reward", "exception", "seconds", "prompt_tokens",
    "cached_tokens", "sampled_tokens", "cost_usd", "stood", "finished", "trial_dir", "evidence",
)  # fmt: skip
"""`class` and `cause` are those of `bench triage`; attempts and tries count from 1; `stood`: it ended in an earlier run
of the job."""


def trial_rows(state: RunState) -> Iterator[list[Cell]]:
    """Rows with the cells of `COLUMNS`, in order of task and attempt; what is not known is None."""
    return ([record[name] for name in COLUMNS] for record in _records(state))


def trial_lines(state: RunState) -> Iterator[str]:
    """The same as JSON, an object a line."""
    return (json.dumps({name: record[name] for name in COLUMNS}) + "\n" for record in _records(state))


def _records(state: RunState) -> Iterator[dict[str, Any]]:
    for number in sorted(state.groups):
        group = state.groups[number]
        for trial in group.trials:
            if trial.phase != "done" or trial.outcome is None:
                continue
            record = to_trial_record(state, group, trial, 1)
            tokens = {f"{name}_tokens": figure for name, figure in record["tokens"].items()}
            yield {**record, **tokens, "finished": moment(trial.finished) if trial.finished is not None else None}
