"""The comparison and a mop-up's plan, without a terminal."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from harbor_jobs import HarborJob, put, tree_hash
from look_jobs import DEAD, PASSED, TIMEOUT, WORK, first_job
from look_stage import reader_of

from console.bench.compare import compare_all, side_of
from console.bench.figures.modes import DEFAULT, MODES
from console.bench.lineage import FILE
from console.errors import UsageError
from console.tui.bench.mopping import MopUp, mop_up_lines, mop_ups, the_one
from console.tui.bench.reading import Side, Survey
from console.tui.bench.versus import alerts, first_pair, flip_rows, head_lines, pairs, task_rows
from console.tui.text import plain, width


def lines_of(found, cells: int) -> list[str]:
    lines = head_lines(found, cells)
    assert all(width(one) <= cells for one in lines)
    return [plain(one).rstrip() for one in lines]


def test_it_says_what_compare_says_and_warns_first(survey: Survey) -> None:
    found = pairs(survey, DEFAULT)
    (one,) = found.found
    assert survey.against is not None
    sides = [side_of(label, side.merged.groups[0], side.jobs) for label, side in zip("AB", survey.sides)]
    assert one.asked == compare_all(sides, DEFAULT)[0].asked
    said = alerts(one)
    assert len(said) >= 3 and any("timeout multiplier" in text for text in said)
    text = "\n".join(lines_of(one, 120))
    places = [text.index(warning[:40]) for warning in said]
    assert places == sorted(places) and max(places) < text.index(one.asked.verdict[:40])
    assert "exact McNemar test: p " in text and re.search(r"both passed +only A +only B +neither\n +6 +3 +5 +0", text)
    assert all(name in text for name in MODES)
    for cells in (60, 80, 200):
        lines_of(one, cells)


def test_tasks_that_differ_each_way_and_their_trials(survey: Survey) -> None:
    found = pairs(survey, DEFAULT)
    (one,) = found.found
    assert [(row.ahead, row.flip.task) for row in flip_rows(one)] == [
        *(("B", f"task-{at:02}") for at in (8, 9, 10, 11, 13)),
        *(("A", f"task-{at:02}") for at in range(3)),
    ]
    (row,) = task_rows(found, one, "task-08")
    assert row.a is not None and row.b is not None
    assert (row.a.row.reward, row.b.row.reward) == (0.0, 1.0) and "/a/" in row.a.path and "/b/" in row.b.path


def test_sides_of_unlike_length_stand_side_by_side(tmp_path: Path) -> None:
    few, many = HarborJob(tmp_path / "a"), HarborJob(tmp_path / "b", agent="other", attempts=3)
    few.trial("x", 1.0, files=PASSED)
    for at in range(3):
        many.trial("x", 0.0, name=f"x__{at}", files=PASSED)
    few.write()
    many.write()
    survey = reader_of([few.path], [many.path]).read()
    found = pairs(survey, DEFAULT)
    rows = task_rows(found, found.found[0], "x")
    assert [(row.a is not None, row.b is not None) for row in rows] == [(True, True), (False, True), (False, True)]
    assert [row.b.row.attempt for row in rows if row.b] == [1, 2, 3]


def test_one_run_is_no_comparison_and_the_agents_of_one_job_are(tmp_path: Path, survey: Survey) -> None:
    with pytest.raises(UsageError, match="--against"):
        pairs(Survey(survey.side), DEFAULT)
    for at, agent in enumerate(("x", "y", "z")):
        job = HarborJob(tmp_path / f"{at}", agent=agent)
        job.trial("t", float(at == 1), files=PASSED)
        job.write()
    found = pairs(reader_of([tmp_path]).read(), DEFAULT)
    assert [(one.a.label, one.b.label) for one in found.found] == [("A", "B"), ("A", "C"), ("B", "C")]
    assert all(one.asked.p_holm is not None for one in found.found)
    both = reader_of([tmp_path / "0", tmp_path / "1"], [tmp_path / "2"]).read()
    found = pairs(both, DEFAULT)
    assert found.found[first_pair(found, both)].b.name.startswith("z")


# --- mop-up ---


def marked(side: Side, *tasks: str) -> set[str]:
    return {seen.path for seen in side.trials if seen.task in tasks}


def text_of(found: MopUp, cells: int = 80) -> str:
    lines = mop_up_lines(found, cells)
    assert all(width(one) <= cells for one in lines)
    return "\n".join(plain(one).rstrip() for one in lines)


def chosen(found: MopUp) -> list[str]:
    return [] if found.plan is None else [one.short for one in found.plan.choice.chosen]


def test_without_marks_it_is_the_usual_choice(two_jobs: Path, survey: Survey) -> None:
    (found,) = mop_ups(survey.side, set(), cache=False)
    assert found.arguments == ("mop-up", str(two_jobs / "a"))
    assert sorted(chosen(found)) == [f"task-{at}" for at in (14, 15, 16, 17, 18)]
    text = text_of(found)
    assert "nothing marked" in text and "5 attempts of 5 tasks" in text
    assert "a result: the agent had its time" in text and "--mended" in text
    assert "12 completed attempts stand" in text and "a-mop-up-1: 5 trials" in text_of(found, 300)
    assert the_one([found]) is found


def test_marks_name_tasks_and_classes(two_jobs: Path, survey: Survey) -> None:
    before = tree_hash(two_jobs)
    (found,) = mop_ups(survey.side, marked(survey.side, "task-12", "task-14"), cache=False)
    assert (
        found.command
        == f"quarterdeck bench mop-up {two_jobs / 'a'} --class agent_timeout --task org/task-12 --task org/task-14"
    )
    assert sorted(chosen(found)) == ["task-12", "task-14"]
    text = text_of(found)
    assert "of 2 marked trials: 2 attempts of 2 tasks" in text and "not named by --task" not in text
    assert "6 further attempts that did not complete" in text
    assert tree_hash(two_jobs) == before


def test_a_mark_forces_no_graded_trial_and_no_wrong_key(survey: Survey) -> None:
    (found,) = mop_ups(survey.side, marked(survey.side, "task-00", "task-19"), cache=False)
    assert "--force" not in found.command and "--class" not in found.command and chosen(found) == []
    text = text_of(found)
    assert "1 marked trial is graded and stands" in text and "nothing would run" in text and "--mended" in text
    with pytest.raises(UsageError, match="would run nothing"):
        the_one([found])


def test_names_with_blanks_and_globs_reach_the_command_whole(tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "the job")
    job.trial("org/a [b] *", error=DEAD, files=WORK)
    job.trial("org/a b c", error=DEAD, files=WORK)
    job.write()
    side = reader_of([job.path]).read().side
    (found,) = mop_ups(side, marked(side, "a [b] *"), cache=False)
    assert chosen(found) == ["a [b] *"]
    assert shlex.split(found.command)[2:] == ["mop-up", str(job.path), "--task", "org/a [[]b] [*]"]


def test_a_mop_up_belongs_to_its_parent_and_two_runs_are_two(tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "a")
    job.trial("org/x", error=DEAD, files=WORK)
    job.trial("org/y", error=TIMEOUT, seconds={"agent": 3600}, files=WORK)
    job.write()
    again = HarborJob(tmp_path / "a-mop-up-1", began=job.began + 10_000)
    again.trial("org/x", error=DEAD, files=WORK)
    again.write()
    put(again.path / FILE, {"v": 1, "parent": {"path": str(job.path), "id": ""}, "tasks": ["org/x"],
                            "attempts": {"org/x": 1}, "pass": 1})  # fmt: skip
    side = reader_of([job.path, again.path]).read().side
    (found,) = mop_ups(side, {str(path) for path in again.trials}, cache=False)
    assert found.root == job.path and chosen(found) == ["x"] and "a-mop-up-2" in text_of(found, 300)
    first_job(tmp_path / "b", agent="another")
    side = reader_of([job.path, again.path, tmp_path / "b"]).read().side
    both = mop_ups(side, set(), cache=False)
    assert [one.root.name for one in both] == ["a", "b"]
    with pytest.raises(UsageError, match="one run at a time"):
        the_one(both)


def test_what_cannot_be_mopped_up_says_why(tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "a")
    job.trial("org/x", error=DEAD, files=WORK)
    job.write()
    put(job.path / FILE, {"v": 1, "parent": {"path": str(tmp_path / "gone"), "id": ""}})
    side = reader_of([job.path]).read().side
    with pytest.raises(UsageError, match=r"mop-up of .*gone"):
        mop_ups(side, set(), cache=False)
