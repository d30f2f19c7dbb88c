"""What each accounting mode makes of each kind of trial, and the arithmetic of whole runs by it."""

from __future__ import annotations

import pytest
from judged_trials import C, clean, judged, sandbox_failures, timeouts

from console.bench.figures.measure import measure
from console.bench.figures.modes import DEFAULT, MODES, Treat, count, decide, mode, treat
from console.bench.merge import merge
from console.bench.model import Figures, Judged
from console.bench.rows import Row, read_rows
from console.errors import UsageError
from console.outcomes.classes import OutcomeClass

NAMES = list(MODES)


def one(trial: Judged) -> Row:
    (row,) = read_rows([trial])
    return row


def figures(name: str, trials: list[Judged], missing: int = 0) -> Figures:
    (group,) = merge(read_rows(trials)).groups
    return measure(mode(name), group.rows, missing=missing)


def score(name: str, trial: Judged) -> float | None:
    return decide(mode(name), one(trial))[0]


OUT = None
# In the order of the columns:
COLUMNS = (
    "infra-excluded", "infra-excluded-strict", "clean-only", "error-aware", "leaderboard", "raw-old", "raw-new",
    "training",
)  # fmt: skip
CASES: dict[str, tuple[Judged, tuple[float | None, ...]]] = {
    "pass": (judged("t", C.COMPLETED, 1.0), (1, 1, 1, 1, 1, 1, 1, 1)),
    "fail": (judged("t", C.COMPLETED, 0.0), (0, 0, 0, 0, 0, 0, 0, 0)),
    "partial": (judged("t", C.COMPLETED, 0.25), (0.25, 0.25, 0.25, 1, 0.25, 0.25, 0.25, 0.25)),
    "timeout that passed": (
        judged("t", C.AGENT_TIMEOUT, 1.0, error="AgentTimeoutError"),
        (1, 0, OUT, 0, 1, 1, 1, 1),
    ),
    "timeout without a reward": (
        judged("t", C.BAD_REWARD, None, "missing", error="AgentTimeoutError"),
        (0, 0, OUT, 0, 0, 0, OUT, OUT),
    ),
    "overflow that passed": (
        judged("t", C.CONTEXT_OVERFLOW, 1.0, error="ContextWindowExceededError"),
        (1, 0, OUT, 0, OUT, 1, 1, 1),
    ),
    "agent crash without a reward": (
        judged("t", C.AGENT_FAILURE, None, "crash", error="NonZeroAgentExitCodeError"),
        (0, 0, OUT, 0, OUT, 0, OUT, OUT),
    ),
    "agent crash that passed": (
        judged("t", C.AGENT_FAILURE, 1.0, "crash", error="NonZeroAgentExitCodeError"),
        (1, 0, OUT, 0, OUT, 1, 1, OUT),
    ),
    "sandbox": (
        judged("t", C.INFRASTRUCTURE, None, "sandbox", error="SandboxError"),
        (OUT, OUT, OUT, 0, OUT, 0, OUT, OUT),
    ),
    "rate limit behind a reward": (
        judged("t", C.INFRASTRUCTURE, 1.0, "api", error="ApiRateLimitError"),
        (OUT, OUT, OUT, 0, OUT, 1, OUT, OUT),
    ),
    "wrong key graded": (
        judged("t", C.CONFIGURATION, 0.0, "key", error="NonZeroAgentExitCodeError"),
        (OUT, OUT, OUT, 0, OUT, 0, 0, OUT),
    ),
    "verifier fault behind a zero": (
        judged("t", C.BAD_REWARD, 0.0, "verifier_fault"),
        (OUT, OUT, OUT, 0, 0, 0, 0, OUT),
    ),
    "verifier timeout": (
        judged("t", C.BAD_REWARD, None, "verifier_fault", error="VerifierTimeoutError"),
        (OUT, OUT, OUT, 0, 0, 0, OUT, OUT),
    ),
    "cancelled": (
        judged("t", C.CANCELLED, None, "operator", error="CancelledError"),
        (OUT, OUT, OUT, OUT, OUT, 0, OUT, OUT),
    ),
    "killed, nobody knows by whom": (
        judged("t", C.AMBIGUOUS, 0.0, "killed", error="NonZeroAgentExitCodeError"),
        (OUT, OUT, OUT, 0, OUT, 0, 0, OUT),
    ),
    "no result": (judged("t", C.UNREADABLE, None, "incomplete", problem="incomplete"), (OUT,) * 8),
    "no result, but an exception on disk": (
        judged("t", C.INFRASTRUCTURE, None, "sandbox", error="AgentTimeoutError", problem="incomplete"),
        (OUT, OUT, OUT, 0, OUT, OUT, OUT, OUT),
    ),
    "an unknown exception of a step": (
        judged("t", C.AGENT_FAILURE, 1.0, "crash", step_error="StrangeError"),
        (1, 0, OUT, 0, 1, 1, 1, OUT),
    ),
    "an API error of a step": (
        judged("t", C.INFRASTRUCTURE, 1.0, "api", step_error="APIError"),
        (OUT, OUT, OUT, 0, 1, 1, OUT, OUT),
    ),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", CASES)
def test_a_trial_counts_as_the_mode_says(name: str, case: str) -> None:
    trial, expected = CASES[case]
    assert score(name, trial) == expected[COLUMNS.index(name)]


def test_every_mode_has_a_column_here_and_a_rule_of_one_sentence() -> None:
    assert sorted(COLUMNS) == sorted(MODES) and DEFAULT in MODES
    for one_mode in MODES.values():
        assert one_mode.rule and "\n" not in one_mode.rule and not one_mode.rule.endswith(".")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("outcome", list(OutcomeClass))
def test_every_class_is_counted_or_left_out_under_its_own_name(name: str, outcome: OutcomeClass) -> None:
    error = "" if outcome is C.COMPLETED else "SomeError"
    found = count(mode(name), [one(judged("t", outcome, None, "why", error=error))])
    assert found.scores or found.excluded == {f"{outcome.value}/why": 1}
    assert not (found.scores and found.excluded)


@pytest.mark.parametrize("name", ["infra-excluded", "infra-excluded-strict", "clean-only", "training"])
@pytest.mark.parametrize("outcome", [C.AMBIGUOUS, C.UNREADABLE])
def test_modes_by_class_decide_nothing_that_is_ambiguous(name: str, outcome: OutcomeClass) -> None:
    assert treat(mode(name), one(judged("t", outcome, 1.0))) is Treat.UNDECIDED


def test_an_unknown_mode_is_told_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"unknown mode 'mean': use one of infra-excluded, "):
        mode("mean")


FOUR = ("circuit-fibsqrt", "feal-linear-cryptanalysis", "query-optimize", "schemelike-metacircular-eval")


@pytest.mark.parametrize("reward", [0.0, None])
def test_the_run_with_sixteen_timeouts(reward: float | None) -> None:
    """89 = 53 passes + 16 zeros + 16 timeouts + 4 infrastructure, whether the timeouts were verified or not."""
    trials = clean([1] * 53 + [0] * 16) + timeouts(16, reward) + sandbox_failures(FOUR)
    for name in ("infra-excluded", "infra-excluded-strict"):
        found = figures(name, trials)
        assert (found.numerator, found.denominator) == (53, 85)
        assert found.excluded == {"infrastructure/sandbox": 4}
        assert found.value == pytest.approx(0.62353, abs=5e-6)
        assert found.ci95 == pytest.approx((0.517, 0.719), abs=5e-4) and found.ci_method == "wilson"
    only = figures("clean-only", trials)
    assert (only.numerator, only.denominator) == (53, 69) and only.value == pytest.approx(0.7681, abs=5e-5)
    assert only.coverage == pytest.approx(69 / 89)
    old = figures("raw-old", trials)
    assert (old.numerator, old.denominator) == (53, 89) and old.value == pytest.approx(0.5955, abs=5e-5)


def test_a_timeout_that_passed_moves_only_the_modes_that_say_so() -> None:
    trials = clean([1] * 53 + [0] * 16) + timeouts(16, 1.0) + sandbox_failures(FOUR)
    assert figures("infra-excluded", trials).numerator == 69
    assert figures("infra-excluded-strict", trials).numerator == 53
    assert figures("error-aware", trials).value == pytest.approx(53 / 89)


def test_the_run_that_a_lingering_process_ended() -> None:
    """89 = 4 passes + 78 zeros + 3 timeouts + 4 infrastructure; Harbor printed a mean of 0.045."""
    trials = clean([1] * 4 + [0] * 78) + timeouts(3)
    trials += sandbox_failures(["a", "b"]) + sandbox_failures(["c"], "RemoteProtocolError")
    trials.append(judged("d", C.INFRASTRUCTURE, None, "runner", error="CancelledError"))
    found = figures("infra-excluded", trials)
    assert (found.numerator, found.denominator) == (4, 85) and found.value == pytest.approx(0.0471, abs=5e-5)
    assert found.excluded == {"infrastructure/runner": 1, "infrastructure/sandbox": 3}
    assert found.ci95 == pytest.approx((0.018, 0.115), abs=5e-4)
    old = figures("raw-old", trials)
    assert (old.numerator, old.denominator) == (4, 89) and old.value is not None and round(old.value, 3) == 0.045


def test_the_run_that_outgrew_the_window() -> None:
    """89 = 42 passes + 31 zeros + 7 overflows + 1 cut command + 3 infrastructure + 5 of which nothing is told."""
    trials = clean([1] * 42 + [0] * 31)
    trials += [judged(f"long-{i}", C.CONTEXT_OVERFLOW, 0.0, error="NonZeroAgentExitCodeError") for i in range(7)]
    trials.append(judged("query-optimize", C.AGENT_FAILURE, None, "exec_timeout", error="NonZeroAgentExitCodeError"))
    trials += sandbox_failures(["qemu-startup", "qemu-alpine-ssh", "make-doom-for-mips"], "NonZeroAgentExitCodeError")
    trials += [judged(f"odd-{i}", C.AMBIGUOUS, None, "killed", error="NonZeroAgentExitCodeError") for i in range(5)]
    found = figures("infra-excluded", trials)
    assert (found.numerator, found.denominator) == (42, 81) and found.value == pytest.approx(0.51852, abs=5e-6)
    assert found.ci95 == pytest.approx((0.411, 0.624), abs=5e-4)
    assert found.excluded == {"ambiguous/killed": 5, "infrastructure/sandbox": 3}
    assert found.undecided == {"ambiguous/killed": 5}
    assert found.bounds == pytest.approx((42 / 86, 47 / 86))
    assert any("48.84%" in text and "54.65%" in text for text in found.warnings)


def test_an_error_aware_evaluation_of_five_attempts() -> None:
    trials = [
        judged(f"task-{t}", C.COMPLETED, float(t * 5 + k < 169), at=t * 100 + k) for t in range(89) for k in range(5)
    ]
    found = figures("error-aware", trials)
    assert (found.numerator, found.denominator, found.tasks) == (169, 445, 89)
    assert found.value is not None and round(100 * found.value, 2) == 37.98
    assert found.ci_method == "bootstrap-bca" and sorted(found.pass_at) == [1, 2, 3, 4, 5]


def test_the_leaderboard_averages_the_means_of_the_tasks() -> None:
    trials = [judged("easy", C.COMPLETED, 1.0, at=i) for i in range(4)] + [judged("hard", C.COMPLETED, 0.0, at=9)]
    board, micro = figures("leaderboard", trials), figures("raw-old", trials)
    assert (board.numerator, board.denominator, board.per) == (4, 5, "task")
    assert board.value == 0.5 and micro.value == 0.8
    assert any("1 to 4 counted attempts" in text for text in board.warnings)


def test_nothing_that_counts_is_an_undefined_figure_with_its_reason() -> None:
    found = figures("infra-excluded", sandbox_failures(FOUR))
    assert (found.numerator, found.denominator, found.value, found.ci95) == (0, 0, None, None)
    assert found.undefined["value"] == "nothing is counted" and found.coverage == 0
    assert found.se_within is None and found.pass_at == {} and found.excluded == {"infrastructure/sandbox": 4}


def test_planned_trials_that_left_nothing_are_missing_and_lower_the_coverage() -> None:
    found = figures("infra-excluded", clean([1] * 6 + [0] * 2), missing=2)
    assert (found.value, found.missing, found.coverage) == (0.75, 2, 0.8)
    assert any("60.00% had they failed, 80.00% had they passed" in text for text in found.warnings)


def test_scores_beyond_zero_and_one_have_no_pass_at_k_and_no_bounds() -> None:
    trials = [judged("t", C.COMPLETED, reward, at=i) for i, reward in enumerate((0.5, 3.0))]
    found = figures("infra-excluded", [*trials, judged("u", C.UNREADABLE, None, "corrupt")])
    assert found.pass_at == {} and found.undefined["pass_at"] == "a score is neither 0 nor 1"
    assert found.value == 1.75 and found.bounds is None
    assert any("unknown" in text for text in found.warnings)


def test_unequal_attempts_are_told_and_leave_no_error_within_tasks() -> None:
    trials = [judged("a", C.COMPLETED, 1.0, at=0), judged("a", C.COMPLETED, 0.0, at=1), judged("b", C.COMPLETED, 1.0)]
    found = figures("infra-excluded", trials)
    assert found.se_within is None and found.undefined["se_within"] == "1 task of 2 has one attempt only"
    assert found.pass_at == {1: (0.75, 2), 2: (1.0, 1)} and found.pass_all[2] == (0.0, 1)
    assert any("below 30 it is unreliable" in text for text in found.warnings)


def test_a_task_that_no_attempt_could_score_is_told() -> None:
    found = figures("infra-excluded", [*clean([1, 0]), *sandbox_failures(["lost"])])
    assert any("1 task without a counted attempt is not in the figure" in text for text in found.warnings)
