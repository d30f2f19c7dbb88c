"""Several job directories become one set of attempts: which try stands for each, and what is told about it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_trials import C, a_job, clean, judged, sandbox_failures

from console.bench.attempts import RULES, VALID
from console.bench.lineage import FILE, Lineage, LineageError, read_lineage
from console.bench.merge import Merged, MergedGroup, merge
from console.bench.model import Judged
from console.bench.rows import Row, read_rows
from console.errors import UsageError
from console.records.harbor.model import JobRecord


def merged(trials: list[Judged], jobs: list[JobRecord] | None = None, rule: str = "latest-valid") -> Merged:
    return merge(read_rows(trials), jobs or [], rule)


def only(found: Merged) -> MergedGroup:
    (group,) = found.groups
    return group


def chosen(found: Merged) -> dict[str, list[tuple[str, float | None]]]:
    """Task to the (job, reward) of its attempts."""
    table: dict[str, list[tuple[str, float | None]]] = {}
    for row in only(found).rows:
        table.setdefault(row.task, []).append((Path(row.job).name, row.reward))
    return table


def codes(found: Merged) -> list[str]:
    return [notice.code for notice in [*found.notices, *(n for group in found.groups for n in group.notices)]]


def text_of(found: Merged, code: str) -> str:
    notices = [*found.notices, *(n for group in found.groups for n in group.notices)]
    (text,) = [notice.text for notice in notices if notice.code == code]
    return text


def infra(task: str, **fields: Any) -> Judged:
    return judged(task, C.INFRASTRUCTURE, None, "sandbox", error="SandboxError", **fields)


def graded(task: str, reward: float, **fields: Any) -> Judged:
    return judged(task, C.COMPLETED, reward, **fields)


def mop_up(directory: Path, parent: Path, attempts: dict[str, int] | None = None, number: int = 1, **more: Any) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    content = {
        "v": 1, "parent": {"path": str(parent), "id": "5f0c"}, "tasks": list(attempts or {}),
        "attempts": attempts or {}, "pass": number,
    } | more  # fmt: skip
    (directory / FILE).write_text(json.dumps(content))


# --- which try stands for an attempt ---

SANDBOX_THEN_PASS = [infra("t", job="one", at=0), graded("t", 1.0, job="two", at=100)]
PASS_THEN_SANDBOX = [graded("t", 1.0, job="one", at=0), infra("t", job="two", at=100)]
FAIL_THEN_PASS = [graded("t", 0.0, job="one", at=0), graded("t", 1.0, job="two", at=100)]
CANCELLED_TWICE = [
    judged("t", C.CANCELLED, None, "operator", job="one", at=0),
    judged("t", C.CANCELLED, None, "operator", job="two", at=100),
]
CRASH_THEN_FAULT = [
    judged("t", C.AGENT_FAILURE, None, "crash", job="one", at=0),
    judged("t", C.BAD_REWARD, 0.0, "verifier_fault", job="two", at=100),
]


@pytest.mark.parametrize(
    ("trials", "rule", "job"),
    [
        (SANDBOX_THEN_PASS, "latest-valid", "two"), (SANDBOX_THEN_PASS, "latest", "two"),
        (SANDBOX_THEN_PASS, "first-graded", "two"),
        (PASS_THEN_SANDBOX, "latest-valid", "one"), (PASS_THEN_SANDBOX, "latest", "two"),
        (PASS_THEN_SANDBOX, "first-graded", "one"),
        (FAIL_THEN_PASS, "latest-valid", "two"), (FAIL_THEN_PASS, "latest", "two"),
        (FAIL_THEN_PASS, "first-graded", "one"),
        (CANCELLED_TWICE, "latest-valid", "two"), (CANCELLED_TWICE, "first-graded", "two"),
        (CRASH_THEN_FAULT, "latest-valid", "one"), (CRASH_THEN_FAULT, "first-graded", "one"),
    ],
)  # fmt: skip
def test_the_rule_chooses_the_try(trials: list[Judged], rule: str, job: str) -> None:
    for order in (trials, trials[::-1]):
        found = merged(order, rule=rule)
        assert [Path(row.job).name for row in only(found).rows] == [job]
        assert only(found).replaced == 1
        assert [row.try_ for row in sorted(found.rows, key=lambda row: row.began or 0)] == [1, 2]


def test_an_unknown_rule_is_told_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"unknown merge rule 'best': use one of latest-valid, "):
        merged([], rule="best")


def test_tries_are_ordered_by_their_end_and_one_without_an_end_ranks_last() -> None:
    early = graded("t", 0.0, job="one", at=0, seconds=5000.0)
    late = graded("t", 1.0, job="two", at=100, seconds=60.0)
    assert chosen(merged([early, late])) == {"t": [("one", 0.0)]}  # it began first and ended last
    open_end = graded("t", 1.0, job="two", at=9000, seconds=None)
    by_mtime = graded("t", 1.0, job="two", at=9000, ended_from="file")
    for unsure in (open_end, by_mtime):
        found = merged([early, unsure], rule="latest")
        assert chosen(found) == {"t": [("one", 0.0)]} and "merge.unsure_end" in codes(found)


def test_equal_ends_are_told_and_the_later_job_is_taken() -> None:
    found = merged([graded("t", 0.0, job="one", at=0, seconds=100.0), graded("t", 1.0, job="two", at=40, seconds=60.0)])
    assert chosen(found) == {"t": [("two", 1.0)]} and "merge.tie" in codes(found)


# --- attempts and tries ---


def test_harbors_repeats_are_attempts_and_never_merged_away() -> None:
    trials = [graded("t", float(i % 2), at=100 - i, name=f"t__{i}") for i in range(4)]
    for rule in RULES:
        found = merged(trials, [a_job(planned=4, attempts=4)], rule)
        assert len(only(found).rows) == 4 and only(found).replaced == 0
        assert [(row.attempt, row.try_) for row in found.rows] == [(4, 1), (3, 1), (2, 1), (1, 1)]  # by when they began


def test_a_later_job_fills_the_attempts_that_need_it() -> None:
    first = [graded("t", 0.0, at=0), infra("t", at=1), judged("t", C.AGENT_TIMEOUT, 0.0, at=2), infra("t", at=3)]
    again = [graded("t", 1.0, job="two", at=100), graded("t", 1.0, job="two", at=101)]
    found = merged(first + again, [a_job(planned=4, attempts=4)])
    assert chosen(found) == {"t": [("one", 0.0), ("two", 1.0), ("one", 0.0), ("two", 1.0)]}
    assert only(found).again == 0 and "merge.again" not in codes(found) and "merge.inferred" in codes(found)
    assert [(row.attempt, row.try_) for row in found.rows[-2:]] == [(2, 2), (4, 2)]


def test_planned_attempts_that_left_nothing_are_filled_before_graded_ones_are_touched() -> None:
    first = [graded("t", 0.0, at=0), infra("t", at=1)]
    again = [graded("t", 1.0, job="two", at=100 + i) for i in range(2)]
    found = merged(first + again, [a_job(planned=3, attempts=3)])
    assert chosen(found) == {"t": [("one", 0.0), ("two", 1.0), ("two", 1.0)]}
    assert (only(found).planned, only(found).missing, only(found).again) == (3, 0, 0)


def test_limits_are_run_again_before_completed_attempts() -> None:
    first = [graded("t", 1.0, at=0), judged("t", C.AGENT_TIMEOUT, 0.0, at=1, error="AgentTimeoutError")]
    found = merged([*first, graded("t", 0.0, job="two", at=100)], [a_job(planned=2, attempts=2)])
    assert chosen(found) == {"t": [("one", 1.0), ("two", 0.0)]} and only(found).again == 1


def test_more_trials_than_attempts_open_attempts_of_their_own() -> None:
    found = merged([graded("t", 0.0, at=0), *(graded("t", 1.0, job="two", at=100 + i) for i in range(3))])
    assert len(only(found).rows) == 3 and only(found).again == 1


def test_graded_attempts_run_again_are_flagged_and_counted() -> None:
    trials = clean([0, 0, 1, 1, 0]) + clean([1, 0, 0, 1], job="two", at=100)
    found = merged(trials)
    assert only(found).again == 4
    said = text_of(found, "merge.again")
    assert said.startswith("4 attempts run again although graded (2 kept its reward, 1 gained, 1 fell)")
    kept = merged(trials, rule="first-graded")
    assert {task: rows[0][1] for task, rows in chosen(kept).items()} == dict(
        zip((f"task-{i}" for i in range(5)), (0.0, 0.0, 1.0, 1.0, 0.0), strict=True)
    )
    assert "no later try was taken" in text_of(kept, "merge.again")


def test_the_latest_rule_says_which_grades_it_threw_away() -> None:
    found = merged(PASS_THEN_SANDBOX, rule="latest")
    assert text_of(found, "merge.lost").startswith("1 graded result replaced by a later failure")
    assert "merge.lost" not in codes(merged(PASS_THEN_SANDBOX))


def test_four_rules_give_four_figures_of_one_history() -> None:
    """Passes of 89 tasks of which 43 were run again: first graded, latest, latest that is valid, any."""
    first = clean([1] * 34 + [0] * 34) + sandbox_failures([f"lost-{i}" for i in range(21)])
    second = clean([1] * 32 + [0] * 2 + [1] * 5, job="two", at=1000)  # the first 39 again: two fell, five gained
    second += [graded(f"lost-{i}", 1.0, job="two", at=1000) for i in range(4)]
    second[0] = infra("task-0", job="two", at=1000)
    passes = {rule: sum(row.reward == 1 for row in only(merged(first + second, rule=rule)).rows) for rule in RULES}
    assert passes["first-graded"] == 38 and passes["latest-valid"] == 41 and passes["latest"] == 40
    assert len(only(merged(first + second)).rows) == 89 and only(merged(first + second)).again == 39


def test_jobs_that_are_repeats_keep_all_their_trials() -> None:
    trials = clean([1, 0]) + clean([0, 0], job="two", at=100)
    found = merged(trials, [a_job(planned=2, attempts=1), a_job("two", planned=2, attempts=1)], "repeats")
    assert chosen(found) == {"task-0": [("one", 1.0), ("two", 0.0)], "task-1": [("one", 0.0), ("two", 0.0)]}
    assert (only(found).planned, only(found).again) == (4, 0)
    assert {(row.task, row.attempt) for row in found.rows} == {(f"task-{i}", n) for i in (0, 1) for n in (1, 2)}


def test_what_a_resume_left_behind_is_an_earlier_try_of_the_attempt() -> None:
    trials = [
        judged("t", C.UNREADABLE, None, "corrupt", at=0, name="t__old"),
        graded("t", 1.0, at=50, name="t__new"),
        judged("u", C.UNREADABLE, None, "incomplete", at=0),
    ]
    found = merged(trials, [a_job(planned=2, attempts=1)])
    assert [(row.task, row.outcome) for row in only(found).rows] == [("t", C.COMPLETED), ("u", C.UNREADABLE)]
    assert [(row.attempt, row.try_) for row in found.rows] == [(1, 1), (1, 2), (1, 1)]
    assert only(found).missing == 0


def test_readable_trials_beyond_the_plan_are_attempts_and_told() -> None:
    found = merged([graded("t", 1.0, at=i) for i in range(3)], [a_job(planned=2, attempts=2)])
    assert len(only(found).rows) == 3
    assert text_of(found, "merge.surplus").startswith("1 trial more than their job plans")


def test_a_copied_directory_counts_once() -> None:
    trial = graded("t", 1.0, at=7, name="t__abc")
    copy = graded("t", 1.0, at=7, name="t__abc", job="backup")
    found = merged([trial, copy, graded("u", 0.0, at=7, name="u__abc")])
    assert len(only(found).rows) == 2 and only(found).copies == 1 and "merge.copies" in codes(found)
    assert [row.attempt for row in found.rows] == [1, 0, 1]


def test_trials_of_which_nothing_tells_the_task_are_merged_with_nothing() -> None:
    trials = [
        judged("", C.UNREADABLE, None, "corrupt", at=i, job=job, name=f"{job}{i}") for job in "ab" for i in range(2)
    ]
    assert len(only(merged(trials)).rows) == 4


# --- what belongs together ---


def test_a_task_is_known_by_its_short_name() -> None:
    found = merged([
        infra("terminal-bench/tune-mjcf", at=0, checksum="c"), graded("tune-mjcf", 1.0, job="two", at=9, checksum="c")
    ])  # fmt: skip
    assert chosen(found) == {"tune-mjcf": [("two", 1.0)]}


@pytest.mark.parametrize("field", ["agent", "model", "dataset"])
def test_different_agents_models_and_datasets_are_never_merged(field: str) -> None:
    found = merged([infra("t", at=0), graded("t", 1.0, job="two", at=9, **{field: "another"})])
    assert len(found.groups) == 2 and [len(group.rows) for group in found.groups] == [1, 1]
    assert "2 different agents, models or datasets, never merged" in text_of(found, "merge.groups")


def test_a_trial_that_tells_nothing_belongs_to_its_job() -> None:
    blank = {"agent": "", "model": "", "dataset": "", "checksum": None}
    found = merged([graded("t", 1.0, at=0), judged("u", C.UNREADABLE, None, "corrupt", at=1, **blank)])
    assert len(only(found).rows) == 2 and "merge.settled" in codes(found)
    mixed = merged([graded("t", 1.0), graded("t", 1.0, agent="x"), judged("u", C.UNREADABLE, None, "corrupt", **blank)])
    assert len(mixed.groups) == 3


def test_versions_of_a_task_are_tasks_of_their_own_and_told() -> None:
    trials = [
        infra("t", at=0, checksum="aaaaaaaaaaaa"),
        graded("t", 1.0, job="two", at=9, checksum="sha256:bbbbbbbbbbbb"),
        graded("u", 1.0, at=0, checksum="cccc"),
        graded("u", 0.0, job="two", at=9, checksum=None),
    ]
    found = merged(trials)
    assert sorted(chosen(found)) == ["t@aaaaaaaa", "t@bbbbbbbb", "u"]
    assert text_of(found, "differs.checksum").startswith("1 task with several checksums")
    assert chosen(found)["u"] == [("two", 0.0)]  # one without a checksum takes the only one there is


def test_settings_that_differ_are_told_with_their_values() -> None:
    base: dict[str, Any] = {
        "agent_version": "2.0.0", "harbor": "0.26.0", "agent_kwargs": {"reasoning_effort": "low", "api_base": "http://a"},
        "agent_timeout": 900.0, "sandbox": {"cpus": 1},
    }  # fmt: skip
    other = base | {
        "agent_version": "2.0.1", "timeout_multiplier": 4.0, "agent_timeout": 3600.0, "sandbox": {"cpus": 4},
        "agent_kwargs": {"api_base": "http://b"},
    }  # fmt: skip
    early = judged("x", C.INFRASTRUCTURE, None, "setup", **(base | {"agent_version": ""}))
    trials = [graded("t", 1.0, **base), graded("v", 1.0, **base), early, infra("u", **base)]
    trials += [graded("u", 1.0, job="two", at=99, **other), graded("t", 1.0, job="two", at=99, **other)]
    found = merged(trials, rule="repeats")
    told = {code for code in codes(found) if code.startswith("differs.")}
    assert told == {
        "differs.agent_version", "differs.timeout_multiplier", "differs.agent_timeout", "differs.sandbox_cpus",
        "differs.agent_option_reasoning_effort", "differs.endpoint",
    }  # fmt: skip
    assert "2.0.0 (3 trials), 2.0.1 (2 trials)" in text_of(found, "differs.agent_version")
    assert "low (4 trials), not set (2 trials)" in text_of(found, "differs.agent_option_reasoning_effort")
    assert "within 2 tasks, e.g. t: 900 s (1 trial), 3600 s (1 trial)" in text_of(found, "differs.agent_timeout")
    assert not [code for code in codes(merged([graded("t", 1.0, **base), early])) if code.startswith("differs.")]


def test_long_settings_that_differ_at_their_end_differ() -> None:
    long = "x" * 5000
    found = merged([graded(str(i), 1.0, agent_kwargs={"prompt": long + str(i)}) for i in range(2)])
    assert "differs.agent_option_prompt" in codes(found)
    assert len(text_of(found, "differs.agent_option_prompt")) < 500
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert codes(merged([graded("t", 1.0, agent_kwargs={"deep": deep})])) == []


# --- plans ---


def test_missing_trials_are_those_planned_and_not_on_disk() -> None:
    found = merged(clean([1, 0, 1]), [a_job(planned=10, attempts=2)])
    assert (only(found).planned, only(found).missing) == (10, 7)
    assert (only(merged(clean([1, 0]))).planned, only(merged(clean([1, 0]))).missing) == (None, 0)


def test_what_a_later_job_adds_is_missing_no_more() -> None:
    trials = [
        *clean([1, 0, 1]),
        *clean([1, 1], prefix="new", job="two", at=100),
        graded("task-0", 1.0, job="two", at=101),
    ]
    found = merged(trials, [a_job(planned=10, attempts=1), a_job("two", planned=3, attempts=1)])
    assert (len(only(found).rows), only(found).planned, only(found).missing) == (5, 10, 5)


def test_shards_of_one_dataset_add_their_plans() -> None:
    trials = clean([1, 0]) + clean([1], prefix="other", job="two", at=100)
    found = merged(trials, [a_job(planned=3, attempts=1), a_job("two", planned=4, attempts=1)])
    assert (only(found).planned, only(found).missing) == (7, 4)


def test_the_plan_of_a_job_of_several_agents_is_split() -> None:
    trials = clean([1, 0]) + clean([1], agent="codex")
    job = a_job(planned=8, attempts=1, config={"agents": [{}, {}]})
    assert [group.planned for group in merged(trials, [job]).groups] == [4, 4]
    odd = a_job(planned=9, attempts=1, config={"agents": [{}, {}]})
    assert [group.planned for group in merged(trials, [odd]).groups] == [None, None]


def test_a_running_job_is_told() -> None:
    assert "merge.running" in codes(merged(clean([1]), [a_job(running=True)]))


# --- lineage ---


def test_a_mop_up_replaces_its_parents_attempts_without_a_guess(tmp_path: Path) -> None:
    parent, again = tmp_path / "full", tmp_path / "again"
    mop_up(again, parent, {"tb/lost": 2})
    trials = [graded("kept", 1.0, job=parent, at=0), *(infra("lost", job=parent, at=i) for i in range(3))]
    trials += [graded("lost", 1.0, job=again, at=90 + i) for i in range(2)]
    jobs = [a_job(parent, planned=4, attempts=3), a_job(again, planned=2, attempts=2)]
    for rule in RULES:
        found = merged(trials, jobs, rule)
        assert chosen(found)["lost"] == [("again", 1.0), ("again", 1.0), ("full", None)], rule
        assert "merge.inferred" not in codes(found) and only(found).planned == 4


def test_a_mop_up_of_tasks_that_left_nothing_adds_no_plan(tmp_path: Path) -> None:
    parent, again = tmp_path / "full", tmp_path / "again"
    mop_up(again, parent, {"gone": 1})
    trials = [graded("kept", 1.0, job=parent, at=0), graded("gone", 0.0, job=again, at=9)]
    found = merged(trials, [a_job(parent, planned=3, attempts=1), a_job(again, planned=1, attempts=1)])
    assert (len(only(found).rows), only(found).planned, only(found).missing) == (2, 3, 1)


def test_a_mop_up_follows_its_parent_whatever_the_clocks_say(tmp_path: Path) -> None:
    parent, first, second = tmp_path / "full", tmp_path / "b", tmp_path / "a"
    mop_up(first, parent, {"t": 1})
    mop_up(second, first, {"t": 1}, number=2)
    trials = [infra("t", job=parent, at=500), infra("t", job=first, at=400), infra("t", job=second, at=300)]
    found = merged(trials)
    assert [Path(job).name for job in only(found).jobs] == ["full", "b", "a"]
    assert [row.try_ for row in found.rows] == [1, 2, 3] and len(only(found).rows) == 1


def test_a_mop_up_of_one_repeat_leaves_the_others_alone(tmp_path: Path) -> None:
    one, two, again = (tmp_path / name for name in ("one", "two", "again"))
    mop_up(again, two, {"t": 1})
    trials = [infra("t", job=one, at=0), infra("t", job=two, at=50), graded("t", 1.0, job=again, at=90)]
    found = merged(trials, rule="repeats")
    assert chosen(found) == {"t": [("one", None), ("again", 1.0)]}


def test_a_parent_that_was_moved_is_found_by_its_name(tmp_path: Path) -> None:
    moved, again = tmp_path / "elsewhere" / "full", tmp_path / "again"
    mop_up(again, tmp_path / "full", {"t": 1})
    found = merged([infra("t", job=moved, at=0), graded("t", 1.0, job=again, at=9)])
    assert chosen(found) == {"t": [("again", 1.0)]} and "merge.orphan" not in codes(found)


def test_a_mop_up_whose_parent_is_not_given_is_told(tmp_path: Path) -> None:
    mop_up(tmp_path / "again", tmp_path / "full", {"t": 1})
    found = merged([graded("t", 1.0, job=tmp_path / "again", at=9)])
    assert text_of(found, "merge.orphan").endswith("not among the directories given: give that one too")


def test_lineages_in_a_circle_are_told(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    mop_up(a, b)
    mop_up(b, a)
    found = merged([infra("t", job=a, at=0), graded("t", 1.0, job=b, at=9)])
    assert "circle" in text_of(found, "merge.lineage") and chosen(found) == {"t": [("b", 1.0)]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no lineage file"), (b"{", "is no lineage file"), (b"[]", "is no lineage file"),
        (b'{"v": 1}', "is no lineage file"), (b"\xff\xfe{", "is no lineage file"),
        (b'{"v": 1, "parent": {"path": ""}}', "names no parent"),
        (b'{"v": 1, "parent": {"path": "/a\\u0000"}}', "names no parent"),
        (b'{"v": 2, "parent": {"path": "/x"}}', "has version 2"),
        (b"[" * 200_000, "is no lineage file"), (b" " * (5 << 20), "is larger than 4 MiB"),
    ],
)  # fmt: skip
def test_a_bad_lineage_file_is_one_finding(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / FILE).write_bytes(content)
    found = read_lineage(tmp_path)
    assert isinstance(found, LineageError) and said in found.text and FILE in found.text
    whole = merged([graded("t", 1.0, job=tmp_path)])
    assert "merge.lineage" in codes(whole) and len(only(whole).rows) == 1


def test_a_lineage_is_read_from_a_plain_file_only(tmp_path: Path) -> None:
    assert read_lineage(tmp_path) is None
    mop_up(tmp_path / "real", tmp_path / "full", {"t": 1}, number=2)
    found = read_lineage(tmp_path / "real")
    assert isinstance(found, Lineage) and (found.number, found.parent.id) == (2, "5f0c")
    (tmp_path / FILE).symlink_to(tmp_path / "real" / FILE)
    assert read_lineage(tmp_path) is None
    (tmp_path / FILE).unlink()
    os.mkfifo(tmp_path / FILE)
    assert read_lineage(tmp_path) is None


# --- whatever comes in ---

OUTCOMES = st.sampled_from([C.COMPLETED, C.AGENT_TIMEOUT, C.INFRASTRUCTURE, C.UNREADABLE, C.AGENT_FAILURE, C.AMBIGUOUS])
TRIALS = st.lists(
    st.tuples(st.sampled_from("abc"), OUTCOMES, st.sampled_from("xyz"), st.integers(0, 50), st.booleans()), max_size=25
)


@given(TRIALS, st.sampled_from(list(RULES)), st.one_of(st.none(), st.integers(1, 4)))
def test_every_trial_has_a_place_and_every_attempt_one_try(
    kinds: list[tuple[str, Any, str, int, bool]], rule: str, attempts: int | None
) -> None:
    trials = [
        judged(
            task,
            outcome,
            1.0 if outcome in VALID else None,
            job=job,
            at=at,
            seconds=9.0 if ended else None,
            name=str(i),
        )
        for i, (task, outcome, job, at, ended) in enumerate(kinds)
    ]
    found = merged(trials, [a_job(job, attempts=attempts) for job in "xyz"], rule)
    places: dict[tuple[str, int], list[Row]] = {}
    for row in found.rows:
        assert row.attempt >= 1 and row.try_ >= 1
        places.setdefault((row.task, row.attempt), []).append(row)
    for tries in places.values():
        assert sorted(row.try_ for row in tries) == list(range(1, len(tries) + 1))
        assert sum(row.chosen for row in tries) == 1
        best = next(row for row in tries if row.chosen)
        if rule != "latest" and any(row.outcome in VALID for row in tries):
            assert best.outcome in VALID
        readable = [row for row in tries if row.outcome is not C.UNREADABLE]
        assert len({row.job for row in readable}) == len(readable)  # repeats of one job never share an attempt
    rows = [row for group in found.groups for row in group.rows]
    assert len(rows) == len(places) and all(row.chosen for row in rows)
