"""What a comparison warns of: sides that share trials, few tasks, tasks that are lost; and how it counts them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from harbor_jobs import HarborJob

from console.bench.compare import Comparison, compare_all, side_of
from console.bench.merge import merge
from console.bench.rows import read_rows
from console.bench.session import Session
from console.bench.sides import Side


def job(path: Path, passed: int, failed: int = 0, prefix: str = "task") -> HarborJob:
    made = HarborJob(path)
    for at in range(passed + failed):
        made.trial(f"org/{prefix}-{at:02}", float(at < passed), name=f"{prefix}-{at:02}__x")
    made.write()
    return made


def side(label: str, *paths: Path) -> Side:
    session = Session(paths, cache=False)
    return side_of(label, merge(read_rows(session.judged()), session.jobs).groups[0])


def compared(*paths: Path) -> Comparison:
    return compare_all([side(label, path) for label, path in zip("AB", paths)])[0]


def test_a_run_beside_itself_is_told_first_however_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = job(tmp_path / "a", 3).path, job(tmp_path / "b", 3).path
    (tmp_path / "link").symlink_to(first)
    (tmp_path / "one").symlink_to(first / "task-00__x")
    monkeypatch.chdir(tmp_path)
    for second, count in (
        (first, "3 trials"),
        (Path("a"), "3 trials"),
        (tmp_path / "link", "3 trials"),
        (first / "task-00__x", "1 trial"),
        (tmp_path / "one", "1 trial"),
    ):
        assert compared(first, second).warnings[0].startswith(f"A and B share {count}:"), second
    assert not any("share" in line for line in compared(first, other).warnings)


def test_of_several_sides_only_those_that_share_trials_are_named(tmp_path: Path) -> None:
    first, other = job(tmp_path / "a", 3).path, job(tmp_path / "b", 3, prefix="else").path
    found = compare_all([side("A", first), side("B", other), side("C", other, first / "task-01__x")])
    told = [[line.partition(":")[0] for line in one.warnings if "share" in line] for one in found]
    assert told == [[], ["A and C share 1 trial"], ["B and C share 3 trials"]]


def test_one_task_is_one_task(tmp_path: Path) -> None:
    found = compared(job(tmp_path / "a", 1).path, job(tmp_path / "b", 0, 1).path)
    assert "1 task is few: below" in " ".join(found.warnings)
    found = compared(job(tmp_path / "c", 2).path, job(tmp_path / "d", 2).path)
    assert "2 tasks are few: below" in " ".join(found.warnings)


def test_without_a_task_in_common_nothing_is_called_a_selection(tmp_path: Path) -> None:
    lines = compared(job(tmp_path / "a", 3).path, job(tmp_path / "b", 3, prefix="else").path).warnings
    assert "3 of 6 tasks do not count in A" in lines and "3 of 6 tasks do not count in B" in lines
    assert not any("in common" in line for line in lines)
    some = compared(job(tmp_path / "c", 3).path, job(tmp_path / "d", 2).path).warnings
    assert "1 of 3 tasks does not count in B: those in common with A are a selection" in " ".join(some)


def test_a_verdict_groups_the_digits_of_many_tasks(tmp_path: Path) -> None:
    rows = read_rows(Session([job(tmp_path / "a", 1).path], cache=False).judged())
    sides = []
    for label in "AB":
        made = side_of(label, merge(rows).groups[0])
        for at in range(2499):
            made.add(msgspec.structs.replace(rows[0], task=f"t{at}", path=f"/{label}/{at}"))
        sides.append(made)
    assert "on each of 2,500 tasks" in compare_all(sides)[0].asked.verdict
