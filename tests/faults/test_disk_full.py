"""A disk that is full under one part of a run after the other; `disk_full` has all places and moments, by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from disk_full import Case, spend
from whole_runs import processes_of

from console.journal.reader import Journal
from console.state.reduce import fold

pytestmark = pytest.mark.timeout(400)
NO_ROOM, REMEDY = "No space left on device", "make room, then resume the run"


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A run whose checkpoint, then whose journal find no room, and that is resumed each time."""
    base = tmp_path_factory.mktemp("disk")
    found = spend("gateway@ready+journal@trials", base)
    assert processes_of(base) == []
    return found


def test_each_end_has_its_exit_code_and_names_the_disk(case: Case) -> None:
    assert [end.code for end in case.ends] == [7, 7]
    for end, place in zip(case.ends, ("run/gateway/", "run/journal"), strict=True):
        assert place in end.reason and NO_ROOM in end.reason and end.reason.endswith(REMEDY)


def test_nothing_is_corrupt_and_the_last_resume_completes_with_nothing_trained_twice(case: Case) -> None:
    assert case.wrong == []


def test_what_no_disk_took_is_not_in_the_journal(case: Case) -> None:
    ends = [fold(Journal(end.run_dir / "journal").events()).state for end in case.ends]
    assert [state.exit_code for state in ends] == [7, None] and ends[0].status == "failed"
    assert ends[1].status in ("live", "stopping"), "that it began to end is a short line, for which there may be room"
