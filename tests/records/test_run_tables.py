"""A run as tables: what each row says, last tries only, and nothing that a spreadsheet would run."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.journal import events as ev
from console.journal.writer import JournalWriter
from console.records.run_dir import RunRecord
from console.records.tables import (
    EVENT_COLUMNS,
    TRIAL_COLUMNS,
    Cell,
    csv_cell,
    csv_lines,
    event_table,
    step_table,
    trial_table,
)


def record(run_dir: Path, events: Iterable[ev.Event]) -> RunRecord:
    clock = iter(range(1000, 10**6))
    with JournalWriter(run_dir / "journal", clock=lambda: float(next(clock))) as writer:
        for event in events:
            writer.append(event)
    return RunRecord(run_dir)


def read(columns: Iterable[str], rows: Iterable[list[Cell]]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("".join(csv_lines(columns, rows)), newline="")))


def end(step: int, trial: int, try_: int = 0, **more: object) -> ev.TrialFinished:
    fields = {"outcome": "completed", "reward": 1.0, "seconds": {"agent": 2.5, "total": 3.0}, **more}
    return ev.TrialFinished(step=step, group=0, trial=trial, try_=try_, **fields)  # type: ignore[arg-type]


def trials(run: RunRecord) -> list[dict[str, str]]:
    return read(TRIAL_COLUMNS, trial_table(run, run.journal.last_seq))


def test_the_last_try_of_each_trial_counts(tmp_path: Path) -> None:
    run = record(
        tmp_path,
        [
            ev.RunStarted(run_id="r"),
            ev.StepStarted(step=0, groups=1, policy_version=0),
            ev.GroupStarted(step=0, group=0, task="fix-git", size=2),
            end(0, 1, outcome="infrastructure", cause="sandbox", exception="SandboxError", reward=None, retryable=True),
            end(0, 0, turns=4, prompt_tokens=900, sampled_tokens=40),
            end(0, 1, 1, reward=0.5),
            ev.GroupFinished(step=0, group=0, kept=True),
            ev.StepFinished(step=0, outcomes={"completed": 2}),
            ev.StepStarted(step=1, groups=1, policy_version=1),
            ev.GroupStarted(step=1, group=0, task="sort", size=2),
            end(1, 0),
        ],
    )
    rows = trials(run)
    assert [(r["step"], r["name"], r["task"], r["try"], r["reward"]) for r in rows] == [
        ("0", "g1/t1", "fix-git", "0", "1.0"), ("0", "g1/t2", "fix-git", "1", "0.5"), ("1", "g1/t1", "sort", "0", "1.0")
    ]  # fmt: skip
    assert [r["group_kept"] for r in rows] == ["true", "true", ""]
    first = rows[0]
    assert (first["turns"], first["prompt_tokens"], first["sampled_tokens"]) == ("4", "900", "40")
    assert (first["seconds_agent"], first["seconds_total"], first["seconds_setup"]) == ("2.5", "3.0", "")
    assert first["finished"] == "1970-01-01T00:16:44.000Z"
    # Up to a moment before the retry, the failure is the last try.
    early = read(TRIAL_COLUMNS, trial_table(run, 5))
    assert [(r["outcome"], r["cause"], r["exception"]) for r in early] == [
        ("completed", "", ""), ("infrastructure", "sandbox", "SandboxError")
    ]  # fmt: skip


def test_what_a_resumed_run_did_again_replaces_the_rest(tmp_path: Path) -> None:
    def step(number: int, reward: float, last: int) -> list[ev.Event]:
        started = [
            ev.StepStarted(step=number, groups=1, policy_version=0),
            ev.GroupStarted(step=number, group=0, task="t", size=2),
        ]
        return [*started, *(end(number, trial, reward=reward) for trial in range(last))]

    run = record(
        tmp_path,
        [
            ev.RunStarted(run_id="r"),
            *step(0, 0.0, 2),
            ev.StepFinished(step=0),
            *step(1, 0.1, 2),
            end(1, 0, 2, reward=0.2),
            ev.StepFinished(step=1),
            *step(2, 0.3, 1),
            ev.RunStarted(run_id="r", resumed_from=1),
            *step(1, 0.6, 2),
            ev.StepFinished(step=1),
        ],
    )
    assert [(r["step"], r["trial"], r["reward"]) for r in trials(run)] == [
        ("0", "0", "0.0"), ("0", "1", "0.0"), ("1", "0", "0.6"), ("1", "1", "0.6"), ("2", "0", "0.3")
    ]  # fmt: skip


def test_steps_have_a_column_for_each_class(tmp_path: Path) -> None:
    run = record(
        tmp_path,
        [
            ev.RunStarted(run_id="r"),
            ev.StepFinished(step=0, reward_mean=0.25, outcomes={"completed": 3}, nonfinite=["ppo_loss", "entropy"]),
            ev.StepFinished(step=1, outcomes={"completed": 2, "agent_timeout": 1}),
        ],
    )
    rows = read(*step_table(run, 3))
    assert [(r["step"], r["reward_mean"], r["outcome_completed"], r["outcome_agent_timeout"]) for r in rows] == [
        ("0", "0.25", "3", "0"), ("1", "", "2", "1")
    ]  # fmt: skip
    assert rows[0]["nonfinite"] == "ppo_loss;entropy" and rows[0]["time"].endswith("Z")
    assert len(read(*step_table(run, 2))) == 1


def test_each_event_has_a_row_with_the_consoles_sentence(tmp_path: Path) -> None:
    run = record(
        tmp_path,
        [
            ev.RunStarted(run_id="r", name="r"),
            ev.TrialPhase(step=0, group=1, trial=2, phase="agent", try_=1),
            ev.Note(text="=1+1", level="warning"),
        ],
    )
    rows = read(EVENT_COLUMNS, event_table(run, 3))
    assert [(r["seq"], r["type"], r["text"]) for r in rows] == [
        ("1", "run.started", "run r started"), ("2", "trial.phase", ""), ("3", "note", "'=1+1")
    ]  # fmt: skip
    assert [rows[1][name] for name in ("step", "group", "trial", "try")] == ["0", "1", "2", "1"]
    assert rows[2]["level"] == "warning"


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\x1b[31m=1"])
def test_formulas_are_texts(text: str) -> None:
    assert str(csv_cell(text)).startswith("'")


def test_numbers_stay_numbers() -> None:
    assert [csv_cell(x) for x in (-1.5, -3, None, True, float("nan"), float("inf"))] == [-1.5, -3, None, "true", "", ""]
    assert csv_cell("sort-and-dedupe") == "sort-and-dedupe"


@given(st.text())
def test_no_text_is_a_formula_or_moves_the_cursor(text: str) -> None:
    cell = csv_cell(text)
    assert isinstance(cell, str) and cell.isprintable() and not cell.startswith(("=", "+", "-", "@"))
