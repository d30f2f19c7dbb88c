"""The rows of the triage, and lists of trials, without a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from harbor_jobs import HarborJob
from look_jobs import DEAD, KEY, NO_TOOLS, PASSED, WORK
from look_stage import reader_of

from console.tui.bench.causes import CauseRow, cause_rows, said
from console.tui.bench.reading import Side, Stopped, Survey
from console.tui.bench.trials import attempt, fields, reward, shown
from console.tui.filters import Filter, parse


def rows_of(side: Side, text: str = "", sort: str = "attention", marks: tuple[str, ...] = ()) -> list[CauseRow]:
    return cause_rows(side, parse(text) if text else Filter(), sort, lambda seen: fields(seen, seen.path in marks))


def told(rows: list[CauseRow]) -> list[tuple[str, int]]:
    return [(row.label, row.count) for row in rows if row.kind in ("class", "cause")]


def test_failures_come_first_with_their_counts_and_shares(survey: Survey) -> None:
    rows = rows_of(survey.side)
    assert told(rows) == [
        ("infrastructure/sandbox", 3),
        ("bad_reward/verifier_fault", 2),
        ("configuration/key", 1),
        ("agent_timeout", 2),
        ("completed", 12),
    ]
    sandbox = next(row for row in rows if row.key == ("class", "infrastructure"))
    assert (sandbox.share, sandbox.tasks, sandbox.positive) == (0.15, 3, 0)
    assert next(row for row in rows if row.label == "completed").positive == 8
    assert sum(row.share for row in rows if row.kind == "class") == pytest.approx(1.0)


def test_a_class_of_several_causes_has_a_row_for_each(tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "a")
    job.trial("x", error=DEAD, files=WORK)
    job.trial("y", error=("RateLimitError", "429 Too Many Requests"), files=WORK)
    job.trial("z", error=("RateLimitError", "429 Too Many Requests"), files=WORK)
    job.write()
    rows = rows_of(reader_of([job.path]).read().side)
    assert told(rows) == [("infrastructure", 3), ("infrastructure/api", 2), ("infrastructure/sandbox", 1)]
    assert [row.kind for row in rows if row.outcome] == ["class", "cause", "cause"]


def test_findings_and_problems_stand_above_and_have_advice(tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "a")
    for at in range(6):
        job.trial(f"task-{at}", error=DEAD, files=WORK, seconds={"agent": 5})
    job.write()
    (job.path / "lock.json").write_text("{")
    side = reader_of([job.path]).read().side
    rows = rows_of(side)
    assert [row.kind for row in rows][:2] == ["problem", "finding"]
    assert "lock.json" in rows[0].label and not rows[0].opens
    finding = rows[1]
    assert finding.finding is not None and finding.finding.code == "same_failure" and len(finding.trials) == 6
    assert [name for name, _ in said(finding)] == ["", "so", "do"]
    assert [row.kind for row in rows_of(side, "class:infra")] == ["class", "note"]  # a filter is about trials


def test_a_finding_that_names_some_of_its_trials_counts_all(tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "a")
    for at in range(14):
        job.trial(f"task-{at:02}", error=DEAD, files=WORK, seconds={"agent": 5})
    job.write()
    finding = next(row for row in rows_of(reader_of([job.path]).read().side) if row.kind == "finding")
    assert (finding.count, len(finding.trials), finding.share) == (14, 10, 1.0)


def test_what_was_seen_and_is_not_decisive_has_its_trials(survey: Survey) -> None:
    row = next(row for row in rows_of(survey.side) if row.key == ("note", "bench.work_done"))
    assert row.count == 3 and {seen.row.error for seen in row.trials} == {"SandboxError"}


def test_a_row_says_which_line_decided_and_no_key(survey: Survey) -> None:
    rows = rows_of(survey.side)
    verifier = next(row for row in rows if row.key == ("class", "bad_reward"))
    assert any(
        "verifier/test-stdout.txt:3: " in text and "uvx: command not found" in text for _, text in said(verifier)
    )
    assert all(KEY not in f"{row.label} {said(row)}" for row in rows)
    key = next(row for row in rows if row.key == ("class", "configuration"))
    assert "Incorrect API key provided: [redacted]" in str(said(key))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("class:infra", [("infrastructure/sandbox", 3)]),
        ("task:task-1 !class:completed", [("infrastructure/sandbox", 3), ("bad_reward/verifier_fault", 2),
                                          ("configuration/key", 1), ("agent_timeout", 2)]),
        ("uvx", [("bad_reward/verifier_fault", 2)]),
        ("status:marked", [("completed", 1)]),
        ("status:replaced", []),
        ("nothing-like-it", []),
    ],
)  # fmt: skip
def test_a_filter_counts_the_trials_that_pass(survey: Survey, text: str, found: list[tuple[str, int]]) -> None:
    marked = (survey.side.trials[0].path,)
    assert told(rows_of(survey.side, text, marks=marked)) == found


def test_orders(survey: Survey) -> None:
    assert told(rows_of(survey.side, sort="count"))[:2] == [("completed", 12), ("infrastructure/sandbox", 3)]
    assert [name for name, _ in told(rows_of(survey.side, sort="name"))] == sorted(
        name for name, _ in told(rows_of(survey.side))
    )


def test_trials_are_sorted_by_what_is_asked_for(survey: Survey) -> None:
    def order(sort: str) -> list[str]:
        return [seen.task for seen in shown(survey.side.trials, Filter(), sort, set())]

    assert order("task") == [f"task-{at:02}" for at in range(20)]
    assert order("seconds")[:2] == ["task-12", "task-13"]
    assert set(order("reward")[:9]) == {f"task-{at:02}" for at in (*range(8), 12)}
    assert order("reward")[-3:] == ["task-14", "task-15", "task-16"]  # without one they come last
    assert set(order("exception")[:2]) == {"task-12", "task-13"} and order("exception")[-1] == "task-18"
    assert order("class")[:2] == ["task-12", "task-13"]


def test_a_later_try_replaces_and_is_counted(tmp_path: Path) -> None:
    first = HarborJob(tmp_path / "a")
    first.trial("x", error=DEAD, files=WORK)
    first.write()
    again = HarborJob(tmp_path / "b", began=first.began + 10_000)
    again.trial("x", 1.0, files=PASSED)
    again.write()
    side = reader_of([first.path, again.path]).read().side
    assert [(attempt(seen), reward(seen), seen.row.chosen) for seen in side.trials] == [
        ("1.1", "--", False),
        ("1.2", "1.000", True),
    ]
    assert told(rows_of(side, "status:replaced")) == [("infrastructure/sandbox", 1)]


def test_a_reading_that_nobody_waits_for_ends(two_jobs: Path) -> None:
    reader = reader_of([two_jobs / "a"])
    reader.stop()
    with pytest.raises(Stopped):
        reader.read()
    assert reader.count == 1


def test_reading_again_sees_what_came(tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "a")
    job.trial("x", 0.0, files=NO_TOOLS)
    job.write(finished=False, planned=3)
    reader = reader_of([job.path])
    assert len(reader.read().side.trials) == 1
    job.trial("y", 1.0, files=PASSED)
    assert len(reader.read().side.trials) == 2 == reader.count
