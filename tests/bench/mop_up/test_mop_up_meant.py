"""A mop-up's results go to the attempts that it was for, whatever else of their task needs a further try."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from harbor_jobs import BEGAN, HarborJob, put

from console.bench.lineage import FILE, Lineage, read_lineage
from console.bench.merge import MergedGroup, merge
from console.bench.mop_up.choice import CEILING, Wish
from console.bench.mop_up.plan import Plan, make_plan
from console.bench.mop_up.writing import make_directory
from console.bench.rows import read_rows
from console.bench.session import Session

HOUR = 3600.0
DEAD = {"error": ("SandboxError", "the sandbox was not found")}
LATE = {"reward": 0.0, "error": ("AgentTimeoutError", "Agent execution timed out after 60.0 seconds")}
KEY = {"error": ("AuthenticationError", "Incorrect API key provided")}
UNGRADED: dict[str, Any] = {}
FAULT = {"reward": 0.0, "files": {"verifier/test-stdout.txt": "/tests/test.sh: line 3: uvx: command not found\n"}}
PASS = {"reward": 1.0, "files": {"verifier/test-stdout.txt": "1 passed in 0.1s\n"}}
CLOCK = itertools.count(1)


def a_job(path: Path, tasks: dict[str, Sequence[dict[str, Any]]], **write: Any) -> Path:
    job = HarborJob(path, attempts=max(map(len, tasks.values())))
    for task, ends in tasks.items():
        for end in ends:
            job.trial(task, **end)
    return job.write(**write)


def plan(job: Path, **wish: Any) -> Plan:
    return make_plan([job], Wish(**wish), cache=False)


def run(job: Path, ends: dict[str, Sequence[dict[str, Any]]], *, old: bool = False, **wish: Any) -> list[Path]:
    """A pass of a mop-up, made as the command makes it, that ends as told for each task's trials in their order."""
    found = plan(job, **wish)
    left = {task: list(each) for task, each in ends.items()}
    for planned in found.jobs:
        make_directory(found, planned)
        if old:
            told = json.loads((planned.path / FILE).read_text())
            put(planned.path / FILE, {key: value for key, value in told.items() if key != "chosen"})
        made = HarborJob(planned.path, attempts=planned.attempts, began=BEGAN + next(CLOCK) * HOUR)
        for agent in planned.config["agents"]:
            made.agent = agent["name"]
            for task, number in planned.names.items():
                for _ in range(number):
                    made.trial(task, **left[task].pop(0))
        made.write(config={"agents": planned.config["agents"]})
    assert not any(left.values()), "every trial that was told ran"
    return [planned.path for planned in found.jobs]


def groups(*jobs: Path) -> list[MergedGroup]:
    session = Session(list(jobs), cache=False)
    return merge(read_rows(session.judged()), session.jobs).groups


def tries(*jobs: Path) -> dict[str, list[list[str]]]:
    """Task to its attempts, each the words of its tries; a group's agent stands before where there are several."""
    found: dict[str, dict[int, list[tuple[int, str]]]] = defaultdict(lambda: defaultdict(list))
    merged = groups(*jobs)
    for group in merged:
        for row in group.tries:
            name = row.task if len(merged) == 1 else f"{group.group.agent} {row.task}"
            word = f"{row.kind} {row.reward:g}" if row.kind == "completed" else row.kind
            found[name][row.attempt].append((row.try_, word))
    return {
        name: [[word for _, word in sorted(each[number])] for number in sorted(each)] for name, each in found.items()
    }


MISSING, BROKEN, SANDBOX = "bad_reward/missing", "bad_reward/verifier_fault", "infrastructure/sandbox"


@pytest.mark.parametrize(
    ("ends", "wish", "words"),
    [
        ([UNGRADED, FAULT], {}, [[MISSING], [BROKEN, "completed 1"]]),
        ([FAULT, UNGRADED], {}, [[BROKEN, "completed 1"], [MISSING]]),
        ([UNGRADED, LATE], {"classes": (("agent_timeout", "*"),)}, [[MISSING], ["agent_timeout", "completed 1"]]),
        ([UNGRADED, KEY], {"mended": True}, [[MISSING], ["configuration/key", "completed 1"]]),
        ([KEY, DEAD], {}, [["configuration/key"], [SANDBOX, "completed 1"]]),
    ],
)  # fmt: skip
def test_what_was_left_out_gets_no_try(
    tmp_path: Path, ends: list[dict[str, Any]], wish: dict[str, Any], words: list[list[str]]
) -> None:
    job = a_job(tmp_path / "job", {"tb/a": ends})
    again = run(job, {"tb/a": [PASS]}, **wish)
    assert tries(job, *again) == {"a": words}
    assert not plan(job, **wish).jobs, "what it was for is cured"


def test_a_fault_that_stays_is_final_at_the_ceiling(tmp_path: Path) -> None:
    job = a_job(tmp_path / "job", {"tb/a": [UNGRADED, FAULT]})
    for number in range(CEILING):
        assert plan(job).jobs, number
        run(job, {"tb/a": [FAULT]})
    found = plan(job)
    assert not found.jobs
    left = {each.kind: (each.final, each.passes) for each in found.choice.left}
    assert left == {MISSING: (False, 0), BROKEN: (True, CEILING)}


def test_unequal_numbers_of_attempts_and_a_second_pass(tmp_path: Path) -> None:
    """Tasks that need different numbers of attempts are parts of one pass, each for its own."""
    job = a_job(tmp_path / "job", {"tb/a": [UNGRADED, FAULT, DEAD], "tb/b": [PASS, UNGRADED, FAULT]})
    first = run(job, {"tb/a": [PASS, DEAD], "tb/b": [FAULT]})
    assert [path.name for path in first] == ["job-mop-up-1", "job-mop-up-1-part-2"]
    second = run(job, {"tb/a": [PASS], "tb/b": [PASS]})
    assert tries(job, *first, *second) == {
        "a": [[MISSING], [BROKEN, "completed 1"], [SANDBOX, SANDBOX, "completed 1"]],
        "b": [["completed 1"], [MISSING], [BROKEN, BROKEN, "completed 1"]],
    }
    assert not plan(job).jobs


def test_what_left_nothing_is_filled_and_not_what_was_left_out(tmp_path: Path) -> None:
    job = a_job(tmp_path / "job", {"tb/a": [UNGRADED, PASS, PASS]}, finished=False)
    gone = max(job.glob("a__*"), key=lambda trial: json.loads((trial / "result.json").read_text())["started_at"])
    gone.rename(tmp_path / "gone")
    first = run(job, {"tb/a": [DEAD]})
    second = run(job, {"tb/a": [PASS]})
    assert tries(job, *first, *second) == {"a": [[MISSING], ["completed 1"], [SANDBOX, "completed 1"]]}
    assert not plan(job).jobs


def test_agents_that_share_a_job_have_attempts_of_their_own(tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "job", attempts=2)
    names = ("terminus-2", "codex")
    for name, ends in zip(names, ([UNGRADED, FAULT], [DEAD, UNGRADED])):
        job.agent = name
        for end in ends:
            job.trial("tb/a", **end)
    path = job.write(config={"agents": [{"name": name, "model_name": job.model, "kwargs": {}} for name in names]})
    (again,) = run(path, {"tb/a": [PASS, PASS]})
    assert tries(path, again) == {
        "terminus-2 a": [[MISSING], [BROKEN, "completed 1"]], "codex a": [[SANDBOX, "completed 1"], [MISSING]],
    }  # fmt: skip


def test_the_file_names_a_trial_of_each(tmp_path: Path) -> None:
    job = a_job(tmp_path / "job", {"tb/a": [UNGRADED, FAULT]})
    odd = os.fsdecode(b"a__\xff\xfe")
    (chosen,) = plan(job).choice.chosen
    Path(chosen.trial).rename(job / odd)
    (again,) = run(job, {"tb/a": [PASS]})
    lineage = read_lineage(again)
    assert isinstance(lineage, Lineage) and lineage.v == 1
    assert lineage.attempts == {"tb/a": 1} and lineage.chosen == {"tb/a": ("a__\\udcff\\udcfe",)}
    assert tries(job, again) == {"a": [[MISSING], [BROKEN, "completed 1"]]}


def test_a_file_that_does_not_tell_is_read_as_before(tmp_path: Path) -> None:
    job = a_job(tmp_path / "job", {"tb/a": [UNGRADED, FAULT]})
    again = run(job, {"tb/a": [PASS]}, old=True)
    assert tries(job, *again) == {"a": [[MISSING, "completed 1"], [BROKEN]]}


def test_what_the_file_may_hold(tmp_path: Path) -> None:
    """Every trial has one place and the attempts are not more than planned, whatever the file names."""
    job = a_job(tmp_path / "job", {"tb/a": [UNGRADED, FAULT]})
    (again,) = run(job, {"tb/a": [PASS]})
    told = json.loads((again / FILE).read_text())
    names = [path.name for path in job.glob("a__*")]
    picks = random.Random(7)
    for words in (
        [],
        ["x"],
        [""] * 9_000,
        names * 900,
        ["../" + names[0], "\0"],
        picks.choices([*names, "", "x"], k=9),
    ):
        put(again / FILE, told | {"chosen": {"a": words, "": [""], "other/a": words}})
        (group,) = groups(job, again)
        assert (len(group.rows), len(group.tries), group.planned, group.missing) == (2, 3, 2, 0), words[:9]
    for bad in ([], {"tb/a": "x"}, {"tb/a": [2]}, {"tb/a": [None]}, 1):
        put(again / FILE, told | {"chosen": bad})
        assert not isinstance(read_lineage(again), Lineage)
        assert len(groups(job, again)[0].tries) == 3
