"""Comparing two runs: the tests against worked values, what is paired with what, and how much the verdict says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from console.bench.compare import Comparison, compare, compare_all, points, points_range, side_of
from console.bench.figures import paired
from console.bench.merge import MergedGroup, merge
from console.bench.model import Judged
from console.bench.rows import Row, read_rows
from console.bench.sides import Side
from console.commands.bench_compare_text import as_text
from console.outcomes.classes import OutcomeClass
from console.records.harbor.model import JobRecord, Phase, RecordedError, TrialRecord

INFRA = OutcomeClass.INFRASTRUCTURE


def row(task: str, reward: float | None = 1.0, job: str = "a", number: int = 1, **fields: Any) -> Row:
    """A trial; `outcome`, `cause` and `errors` are the verdict's, everything else the record's."""
    outcome, cause = fields.pop("outcome", OutcomeClass.COMPLETED), fields.pop("cause", "")
    kinds = fields.pop("errors", ())
    record = TrialRecord(
        job=Path(job),
        path=Path(job) / f"{task}__{number}",
        name=f"{task}__{job}{number}",
        task=task,
        began=1e9 + number,
        ended=1e9 + number + 60,
        phases={"agent": Phase(began=1e9, ended=1e9 + 30)},
        errors=tuple(RecordedError(type=kind) for kind in kinds),
        rewards=None if reward is None else {"reward": reward},
        **{"agent": "terminus-2", "model": "m", "dataset": "tb", "checksum": f"sum-{task}", **fields},
    )
    return read_rows([Judged(trial=record, outcome=outcome, cause=cause, reward=reward)])[0]


def side(label: str, rows: Sequence[Row]) -> Side:
    merged = merge(rows)
    assert len(merged.groups) == 1
    return side_of(label, merged.groups[0])


def sides(pairs: Sequence[tuple[float, float]], **fields: Any) -> tuple[Side, Side]:
    """One attempt a task and side."""
    return (
        side("A", [row(f"t{at:02}", a, "a", **fields) for at, (a, _) in enumerate(pairs)]),
        side("B", [row(f"t{at:02}", b, "b", **fields) for at, (_, b) in enumerate(pairs)]),
    )


def table(both: int, only_a: int, only_b: int, neither: int) -> list[tuple[float, float]]:
    return [(1.0, 1.0)] * both + [(1.0, 0.0)] * only_a + [(0.0, 1.0)] * only_b + [(0.0, 0.0)] * neither


# --- the statistics ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("only_a", "only_b", "p"),
    [
        # Published tables of paired Terminal-Bench runs, and what an exhaustive sum gives.
        (12, 7, 0.3593), (16, 4, 0.01182), (12, 3, 0.03516), (13, 5, 0.0963), (17, 7, 0.0639), (17, 4, 0.0072),
        (19, 4, 0.0026), (15, 13, 0.8506), (5, 18, 0.0106), (6, 20, 0.0094), (0, 0, 1.0), (4, 4, 1.0), (0, 5, 0.0625),
    ],
)  # fmt: skip
def test_the_exact_test_gives_the_published_values(only_a: int, only_b: int, p: float) -> None:
    found, mid = paired.mcnemar(only_a, only_b)
    assert found == pytest.approx(p, rel=5e-3)
    total, least = only_a + only_b, min(only_a, only_b)
    summed = 2 * sum(math.comb(total, at) for at in range(least + 1)) / 2**total
    assert found == pytest.approx(min(1.0, summed))
    expected = min(1.0, summed - math.comb(total, least) / 2**total) if total else 1.0
    assert mid == pytest.approx(expected)
    assert paired.mcnemar(only_b, only_a) == (found, mid)


def test_newcombes_interval_gives_the_published_one_and_stands_where_nothing_differs() -> None:
    # Airway hyper-responsiveness before and after transplantation: 1, 1, 7, 12 (Bentur 2009), -0.507 to -0.026 in
    # Fagerland, Lydersen, Laake, Stat Med 33:2850 (2014).
    found = paired.paired_proportions(both=1, only_a=7, only_b=1, neither=12)
    assert (round(found.low, 3), round(found.high, 3)) == (-0.507, -0.026)
    same = paired.paired_proportions(both=10, only_a=0, only_b=0, neither=0)
    assert same.low == pytest.approx(-same.high) and 0.2 < same.high < 0.4  # ten equal tasks do not show equality
    turned = paired.paired_proportions(both=1, only_a=1, only_b=7, neither=12)
    assert turned.low == pytest.approx(-found.high) and turned.high == pytest.approx(-found.low)
    with pytest.raises(ValueError, match="no task"):
        paired.paired_proportions(0, 0, 0, 0)


def test_holms_adjustment_of_three_tests() -> None:
    assert paired.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert paired.holm([0.5, 0.9]) == [1.0, 1.0]
    assert paired.holm([]) == []


@given(st.lists(st.sampled_from([-1.0, -0.5, -0.2, 0.0, 0.2, 0.5, 1.0]), min_size=1, max_size=9))
@example([-0.5, -0.2, -0.2, -0.2, -0.2, -0.2, 0.5, 0.5, 0.5])  # a mean of zero that sums to a little less
def test_the_sign_flip_test_counts_all_signs(differences: list[float]) -> None:
    found = paired.sign_flip(differences)
    total, hits = 0, 0
    for signs in range(2 ** len(differences)):
        flipped = sum(-d if signs >> at & 1 else d for at, d in enumerate(differences))
        total += 1
        hits += abs(flipped) >= abs(sum(differences)) - 1e-9
    assert found == pytest.approx(hits / total)
    assert paired.sign_flip([-d for d in differences]) == pytest.approx(found)


def test_an_interval_of_means_is_the_same_each_time_and_absent_where_nothing_can_be_said() -> None:
    differences = [0.0, 0.2, 0.4, -0.2, 0.2, 0.0, 0.6, 0.2] * 5
    first = paired.mean_interval(differences)
    assert first is not None and first == paired.mean_interval(differences)
    middle, error = sum(differences) / len(differences), paired.standard_error(differences)
    assert error is not None
    assert first.low == pytest.approx(middle - 1.96 * error, abs=0.02)
    assert first.high == pytest.approx(middle + 1.96 * error, abs=0.02)
    assert paired.mean_interval([0.3]) is None and paired.mean_interval([0.2, 0.2, 0.2]) is None
    assert paired.standard_error([0.3]) is None


# --- what is compared -------------------------------------------------------------------------------------------------


def test_the_tasks_in_common_are_compared_and_the_others_are_named_with_the_reason() -> None:
    a = side("A", [row("x", 1.0), row("y", 0.0), row("z", None, outcome=INFRA, cause="sandbox"), row("only-a", 1.0)])
    b = side("B", [row("x", 0.0, "b"), row("y", 0.0, "b"), row("z", 1.0, "b")])
    found = compare(a, b).asked
    assert found.tasks == 2
    assert found.excluded == {"A: infrastructure/sandbox": ["z"], "B: no trial of it": ["only-a"]}
    assert (found.both, found.only_a, found.only_b, found.neither) == (0, 1, 0, 1)
    assert [flip.task for flip in found.better_a] == ["x"] and not found.better_b
    assert found.better_a[0].paths_a == ["a/x__1"] and found.better_a[0].paths_b == ["b/x__1"]


def test_two_runs_of_a_notebook_are_not_told_apart_although_one_has_ten_points_more() -> None:
    # 53 of 85 and 42 of 81 were called "substantially outperformed"; on tasks in common such runs look like this.
    found = compare(*sides(table(both=38, only_a=13, only_b=4, neither=24))).asked
    assert found.p == pytest.approx(0.0490, abs=1e-4)
    found = compare(*sides(table(both=35, only_a=15, only_b=7, neither=24))).asked
    assert found.effect == pytest.approx(-8 / 81)
    assert not found.distinguishable
    assert found.verdict.startswith("A is ahead of B by 9.9 points on 81 tasks; 95 % interval ")
    assert "not distinguishable at 5 % (p = 0.13)" in found.verdict


def test_points_that_are_not_zero_are_not_written_as_zero() -> None:
    assert [points(share) for share in (0.00047, -0.00047, 0.0004999, 0.0005, 0.19, 0.00002)] == [
        "0.05", "-0.05", "0.05", "0.1", "19.0", "0.002",
    ]  # fmt: skip
    assert [points(share, "+") for share in (-0.0, 0.0, -1e-15, 1e-9, -1e-9)] == ["+0.0"] * 5
    assert points(-0.0) == "0.0" and points_range((-1e-9, 0.00047)) == "+0.0 to +0.05"


def test_a_bound_that_excludes_zero_says_so() -> None:
    found = compare(*sides(table(26, 6, 15, 33)))
    assert found.asked.ci95 is not None and 0 < found.asked.ci95[0] < 0.0005
    assert (
        "95 % interval 0.01 to 22.0; on the edge" in found.asked.verdict and "interval says yes" in found.asked.verdict
    )
    said = " ".join("\n".join(as_text([found], 3)).split())
    assert said.count("+0.01 to +22.0") >= 2 and "-0.0" not in said  # the figures, and the table of modes


def test_the_verdict_is_sure_only_where_test_and_interval_agree() -> None:
    sure = compare(*sides(table(30, 4, 20, 30))).asked
    assert sure.distinguishable and sure.verdict.startswith("B is ahead of A by 19.0 points on 84 tasks")
    assert sure.ci95 is not None and sure.ci95[0] > 0
    edge = compare(*sides(table(35, 5, 14, 30))).asked
    assert edge.p is not None and edge.p > 0.05 and edge.ci95 is not None and edge.ci95[0] > 0
    assert not edge.distinguishable and "not to be relied on" in edge.verdict
    level = compare(*sides(table(10, 5, 5, 10))).asked
    assert (
        level.verdict.startswith("A and B are level at 50.0 % of 30 tasks") and "not distinguishable" in level.verdict
    )
    same = compare(*sides(table(10, 0, 0, 10))).asked
    assert same.verdict.startswith("A and B scored the same on each of 20 tasks") and same.p == 1.0


def test_nothing_in_common_says_nothing() -> None:
    found = compare(side("A", [row("x")]), side("B", [row("y", job="b")])).asked
    assert found.tasks == 0 and found.p is None and found.effect is None
    assert found.verdict == "no task was graded in both, so nothing can be said"


def test_several_attempts_are_compared_by_their_means() -> None:
    a = side("A", [row(f"t{t}", float(n <= t % 3), "a", n) for t in range(40) for n in (1, 2, 3)])
    b = side("B", [row(f"t{t}", float(n <= 1 + t % 3), "b", n) for t in range(40) for n in (1, 2, 3)])
    found = compare(a, b).asked
    assert found.test == "sign-flip" and found.attempts_a == found.attempts_b == (3, 3)
    assert found.only_a is None and found.mid_p is None
    assert found.effect == pytest.approx(1 / 3)
    assert found.p is not None and found.p < 0.001
    assert found.ci_method == ""  # each task differs by a third: resampling tasks cannot tell how sure that is
    assert found.se == pytest.approx(0.0, abs=1e-12)
    # 14, 13 and 13 tasks with 0, 1, 2 of 3 and 1, 2, 3 of 3: p (1 - p) / 2 of each.
    assert found.se_within == pytest.approx(math.sqrt((26 + 27) * (2 / 9) / 2) / 40)
    assert len(found.better_b) == 40 and len(found.better_b[0].paths_a) == 3


def test_unequal_attempts_and_partial_scores_are_compared_by_their_means() -> None:
    a = side("A", [row("x", 0.25), row("y", 1.0), row("z", 0.0)])
    b = side("B", [row("x", 0.5, "b"), row("y", 1.0, "b"), row("y", 0.0, "b", 2), row("z", 0.0, "b")])
    found = compare(a, b).asked
    assert found.test == "sign-flip" and found.attempts_b == (1, 2) and found.se_within is None
    assert found.mean_b == pytest.approx(1 / 3) and found.effect == pytest.approx((0.25 - 0.5) / 3)
    assert found.ci95 is not None and found.ci95[0] < 0 < found.ci95[1]


# --- rules, settings, several runs ------------------------------------------------------------------------------------


def test_modes_that_disagree_about_who_is_ahead_are_told() -> None:
    late = {"outcome": OutcomeClass.AGENT_TIMEOUT, "errors": ("AgentTimeoutError",)}
    a = side("A", [row(f"t{t}", float(t < 12), **(late if t < 8 else {})) for t in range(20)])
    b = side("B", [row(f"t{t}", float(t < 9), "b") for t in range(20)])
    found = compare(a, b)
    assert found.modes["infra-excluded"].effect == pytest.approx(-3 / 20)
    assert found.modes["error-aware"].effect == pytest.approx(5 / 20)
    assert found.disagreement.startswith("who is ahead depends on the rule: ")
    assert "A is ahead by infra-excluded (15.0)" in found.disagreement
    assert "error-aware (25.0)" in found.disagreement
    assert compare(*sides(table(10, 2, 8, 10))).disagreement == ""
    assert compare(a, b, "error-aware").asked.mode == "error-aware"


def _warned(found: Comparison) -> Mapping[str, tuple[list[str], list[str]]]:
    return {one.name: (one.a, one.b) for one in found.differences}


def test_what_the_runs_differ_in_is_told_with_both_values() -> None:
    common: dict[str, Any] = {"agent_version": "2.0", "environment": "docker", "harbor": "0.26.0"}
    a = side("A", [row("x", agent_timeout=900.0, agent_kwargs={"effort": "low", "api_base": "http://one"}, **common)])
    changed = {**common, "harbor": "0.22.1", "checksum": "other", "dataset": "tb-2.1", "timeout_multiplier": 4.0}
    b = side(
        "B",
        [
            row(
                "x",
                job="b",
                agent_timeout=3600.0,
                agent_kwargs={"api_base": "http://two"},
                sandbox={"cpus": 2},
                **changed,
            )
        ],
    )
    found = compare(a, b)
    assert _warned(found) == {
        "dataset": (["tb"], ["tb-2.1"]),
        "agent option effort": (["low"], ["not recorded"]),
        "agent option api_base": (["http://one"], ["http://two"]),
        "sandbox cpus": (["not recorded"], ["2"]),
        "timeout multiplier": (["1"], ["4"]),
        "Harbor version": (["0.26.0"], ["0.22.1"]),
        "agent time-out": (["900 s"], ["3600 s"]),
        "task checksum": (["sum-x"], ["other"]),
    }
    assert not next(one for one in found.differences if one.name.endswith("api_base")).weighty
    assert found.differences[-1].name.endswith("api_base")
    assert any("the difference may be theirs" in line for line in found.warnings)


def test_equal_settings_warn_of_nothing_and_an_old_harbor_that_records_none_neither() -> None:
    a, b = sides(table(20, 5, 5, 10), agent_version="2.0", agent_timeout=900.0, agent_kwargs={"effort": "low"})
    found = compare(a, b)
    assert found.differences == [] and found.warnings == []
    other = side(
        "B", [row(f"t{t:02}", 1.0, "b", agent="codex", agent_version="9", agent_timeout=900.0) for t in range(40)]
    )
    assert "agent version" not in _warned(compare(a, other))  # two agents' versions are not to be compared
    newer = side("B", [row(f"t{t:02}", 1.0, "b", agent_version="2.1", agent_timeout=900.0) for t in range(40)])
    assert _warned(compare(a, newer))["agent version"] == (["2.0"], ["2.1"])
    old = side("B", [row("t00", job="b", agent_kwargs={"effort": "low"}, checksum=None)])
    assert [one.name for one in compare(a, old).differences] == []


def test_the_concurrency_of_two_jobs_and_the_number_of_attempts_are_mentioned() -> None:
    group = lambda rows: merge(rows).groups[0]  # noqa: E731
    jobs = [JobRecord(path=Path(name), name=name, concurrent=count) for name, count in (("a", 3), ("b", 8))]
    a: MergedGroup = group([row("x", number=1), row("x", number=2)])
    b: MergedGroup = group([row("x", job="b")])
    found = compare(side_of("A", a, jobs[:1]), side_of("B", b, jobs[1:]))
    assert _warned(found) == {"concurrency": (["3"], ["8"]), "attempts a task": (["2"], ["1"])}
    assert not any("may be theirs" in line for line in found.warnings)


def test_a_side_that_lost_many_tasks_and_few_tasks_are_warned_of() -> None:
    a = side("A", [row(f"t{t}", None, outcome=INFRA, cause="sandbox") if t < 3 else row(f"t{t}") for t in range(20)])
    b = side("B", [row(f"t{t}", job="b") for t in range(20)])
    warnings = compare(a, b).warnings
    assert any(line.startswith("3 of 20 tasks do not count in A") for line in warnings)
    assert any(line.startswith("17 tasks are few") for line in warnings)


def test_three_runs_are_adjusted_for_three_comparisons() -> None:
    a, b = sides(table(30, 4, 16, 30))
    c = side("C", [row(f"t{at:02}", 0.0, "c") for at in range(80)])
    found = compare_all([a, b, c])
    assert [(one.a.label, one.b.label) for one in found] == [("A", "B"), ("A", "C"), ("B", "C")]
    first = found[0].asked
    assert first.p == pytest.approx(0.0118, abs=1e-4)
    assert first.p_holm == pytest.approx(first.p)  # the largest of the three
    assert found[1].asked.p_holm == pytest.approx(2 * (found[1].asked.p or 0))
    assert compare(a, b).asked.p_holm is None


def test_a_difference_that_is_sure_alone_is_not_among_three_comparisons() -> None:
    a, b = sides(table(30, 7, 19, 30))
    assert compare(a, b).asked.distinguishable
    c = side("C", [row(f"t{at:02}", score, "c") for at, (score, _) in enumerate(table(30, 8, 18, 30))])
    alone = compare_all([a, b, c])[0].asked
    assert alone.p is not None and alone.p < 0.05 and alone.p_holm is not None and alone.p_holm > 0.05
    assert not alone.distinguishable and f"{alone.p_holm:.2g}" in alone.verdict
