"""Trials of every kind that there is, made to end so by real runs of Harbor: triage finds the class, the cause and the
line of each, and is not deceived by the same words in harmless places."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.constructed.building import Workshop
from tests.bench.constructed.kinds import ASKED, FEWEST, FINDINGS, GROUPS, KINDS
from tests.bench.constructed.making import Made
from tests.bench.constructed.table import TRIALS, Judged, judged

pytestmark = pytest.mark.timeout(600)

IDS = [f"{made.job}/{made.name}" for made in TRIALS]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """All job directories, whose files are as Harbor left them at the end, too."""
    made = Workshop(tmp_path_factory.mktemp("constructed") / "shop", TRIALS)
    made.make()
    before = digest(made.jobs)
    yield made
    assert digest(made.jobs) == before


@pytest.fixture(scope="module")
def found(shop: Workshop) -> dict[tuple[str, str], Judged]:
    return {(one.made.job, one.made.name): one for one in judged(shop)}


def digest(root: Path) -> str:
    said = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        said.update(f"{path}|{path.lstat().st_mtime_ns}|".encode())
        said.update(path.read_bytes() if path.is_file() else b"")
    return said.hexdigest()


def test_no_kind_is_without_two_trials() -> None:
    counts: Counter[str] = Counter()
    for made in TRIALS:
        counts[made.kind] += made.attempts
    assert sum(map(len, GROUPS.values())) == len(KINDS)
    assert not [made.name for made in TRIALS if made.kind not in KINDS]
    assert not {kind: counts[kind] for kind in KINDS if counts[kind] < FEWEST}
    assert sum(made.attempts for made in TRIALS if made.by == "harbor") >= 4 * ASKED
    assert len(set(IDS)) == len(IDS)


@pytest.mark.parametrize("made", TRIALS, ids=IDS)
def test_what_triage_says(found: dict[tuple[str, str], Judged], made: Made) -> None:
    one = found[made.job, made.name]
    assert not one.wrong, one.rows


def test_every_row_is_of_a_trial_that_was_made(shop: Workshop, found: dict[tuple[str, str], Judged]) -> None:
    rows = {(row["job"], row["trial_dir"]) for one in found.values() for row in one.rows}
    there = {(str(path.parent), str(path)) for path in shop.jobs.glob("*/*__*")}
    assert {pair for pair in there - rows if "/filler-" not in pair[1]} == set()
    assert rows - there == set()


@pytest.mark.parametrize("attempts", [made for made in TRIALS if made.attempts > 1], ids=lambda made: made.name)
def test_attempts_of_a_task_are_told_apart(found: dict[tuple[str, str], Judged], attempts: Made) -> None:
    rows = found[attempts.job, attempts.name].rows
    assert sorted(row["attempt"] for row in rows) == list(range(1, attempts.attempts + 1))


@pytest.mark.parametrize("text", [text for said in FINDINGS.values() for text in said])
def test_what_triage_says_of_a_job_as_a_whole(shop: Workshop, text: str) -> None:
    assert text in shop.findings
