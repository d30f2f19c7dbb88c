"""What a benchmark's journal reduces to, and the figures that are read off it."""

from __future__ import annotations

import itertools
import math
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import msgspec
import pytest
from bench_journal import begin, begun, end
from made_bench import BenchPlan, make_bench

from console.bench.figures import modes
from console.bench.figures.intervals import wilson as wilson_of_scipy
from console.bench.model import Judged
from console.bench.rows import Row
from console.engine.benchmark.judging import finished
from console.journal import events as ev
from console.outcomes.classes import SCORED, OutcomeClass
from console.records.harbor.model import RecordedError, TrialRecord
from console.records.run_dir import RunRecord
from console.state import benchmark
from console.state.bench_model import BenchState
from console.state.bench_words import left_text, rough
from console.state.model import decode_state, encode_state
from console.state.reduce import RunView, apply, fold

# --- the state ---


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "run"
    make_bench(path, BenchPlan(ended=120))
    return path


def test_a_recording_is_counted_as_its_trials_stand(recorded: Path) -> None:
    view = fold(RunRecord(recorded).journal.events())
    b, ended = view.state.bench, [t for _, t in benchmark.trials(view.state) if t.phase == "done"]
    assert b.finished == Counter(t.outcome for t in ended) and b.done == len(ended) == 131
    finished = [e for e in RunRecord(recorded).journal.events() if isinstance(e, ev.TrialFinished)]
    assert len(finished) == 132  # one was tried again
    assert b.sampled_tokens == sum(e.sampled_tokens for e in finished)
    assert b.cached_tokens == sum(e.cached_tokens for e in finished)
    assert b.cost_usd == pytest.approx(math.fsum(e.cost_usd or 0.0 for e in finished))
    assert b.seconds == pytest.approx(math.fsum(e.seconds["total"] for e in finished))
    assert b.recent == [e.outcome for e in finished if not e.reused]
    assert (b.limit, b.concurrency, b.limited_by) == (4, 8, "policy") and "sandbox" not in b.why
    assert view.state.tunables == {"concurrency": 4}
    assert b.limit_since == next(e.ts for e in RunRecord(recorded).journal.events() if getattr(e, "limit", 8) == 4)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_snapshot_of_any_moment_goes_on_as_the_whole(recorded: Path, share: float) -> None:
    events = list(RunRecord(recorded).journal.events())
    cut = int(share * len(events))
    half = RunView(decode_state(encode_state(fold(events[:cut]).state)))
    whole = fold(events)
    fold(events[cut:], half)
    assert half.state == whole.state and whole.state.bench != BenchState()


def test_a_journal_of_before_is_a_training_and_an_unknown_field_no_harm() -> None:
    old = fold([ev.RunStarted(seq=1, run_id="r")]).state
    body = msgspec.json.decode(encode_state(old))
    del body["kind"], body["bench"]
    known = decode_state(msgspec.json.encode(body))
    assert known.kind == "training" and known.bench == BenchState()
    bench = msgspec.json.decode(encode_state(begun().state))
    bench["bench"]["of_a_later_version"] = 1
    assert decode_state(msgspec.json.encode(bench)).bench.tasks == 6


def test_a_try_that_is_done_again_is_one_trial_and_all_its_tokens() -> None:
    view = begun()
    begin(view, 0, 110)
    end(view, 0, 120, outcome="infrastructure", reward=None, sampled_tokens=5, cost_usd=0.5, retryable=True)
    assert view.state.bench.finished == {"infrastructure": 1}
    apply(view, ev.TrialRetried(ts=121, step=0, group=0, trial=0, try_=1))
    assert view.state.bench.done == 0
    begin(view, 0, 122, try_=1)
    end(view, 0, 130, try_=1, sampled_tokens=7, cost_usd=0.25)
    b = view.state.bench
    assert b.finished == {"completed": 1} and (b.sampled_tokens, b.cost_usd) == (12, 0.75)
    assert b.recent == ["infrastructure", "completed"] and b.seconds == 20.0


def test_what_is_told_twice_counts_once() -> None:
    view = begun()
    end(view, 0, 120, outcome="ambiguous", reward=None, sampled_tokens=5)
    end(view, 0, 121, sampled_tokens=6)
    b = view.state.bench
    assert b.finished == {"completed": 1} and b.sampled_tokens == 6 and b.seconds == 10.0


def test_what_stood_counts_but_is_not_recent() -> None:
    view = begun()
    end(view, 0, 120, reused=True, sampled_tokens=5)
    assert view.state.bench.done == 1 and view.state.bench.recent == [] == view.state.recent


def test_another_engine_begins_anew() -> None:
    view = begun()
    end(view, 0, 120)
    apply(view, ev.RunStarted(ts=200, run_id="b", kind="benchmark"))
    assert view.state.bench == BenchState()


def test_a_pause_is_no_new_limit() -> None:
    view = begun(limit=4)
    apply(view, ev.BenchLimited(ts=150, limit=2))
    apply(view, ev.BenchLimited(ts=160, limit=0, by="ada"))
    assert view.state.bench.limit == 0 and view.state.tunables["concurrency"] == 2
    apply(view, ev.BenchLimited(ts=170, limit=2, by="ada"))
    assert view.state.bench.limit_since == 150


def test_what_was_not_graded_is_told_once_by_its_trial() -> None:
    view = begun()
    end(view, 0, 120, outcome="infrastructure", cause="sandbox", reward=None, evidence="sandbox is gone")
    apply(view, ev.GroupFinished(ts=120, step=0, group=0, kept=False, reason="1 infrastructure"))
    apply(view, ev.StepFinished(ts=130, step=0, outcomes={"completed": 1, "infrastructure": 3}, reward_mean=0.5))
    texts = [line.text for line in view.state.lines]
    assert texts[-2:] == [
        "g1/t1 infrastructure sandbox: sandbox is gone", "all trials have ended: 3 infrastructure, 1 completed",
    ]  # fmt: skip


# --- what passed ---


def test_scores_are_those_of_the_modes_of_the_tally() -> None:
    blank = dict.fromkeys(Row.__struct_fields__ if hasattr(Row, "__struct_fields__") else Row._fields)
    for outcome, exception, reward, cause in itertools.product(
        OutcomeClass,
        ("", "AgentTimeoutError", "SandboxError"),
        (None, 0.0, 0.5, 1.0),
        ("", "missing", "verifier_fault"),
    ):
        row = _row(blank, outcome, exception, reward, cause)
        for name, score in (
            ("infra-excluded", benchmark.infra_excluded_score),
            ("error-aware", benchmark.error_aware_score),
        ):
            ours = score(str(outcome), exception or None, reward, cause)
            assert ours == modes.decide(modes.mode(name), row)[0], (name, outcome, exception, reward, cause)


def test_the_state_scores_a_trial_as_the_tally_does_of_its_verdict() -> None:
    """From the verdict through the event: 504 combinations, of which what the verifier wrote is one side."""
    blank = dict.fromkeys(Row.__struct_fields__)
    seen = 0
    for outcome, exception, reward, cause in itertools.product(
        OutcomeClass,
        ("", "AgentTimeoutError", "NonZeroAgentExitCodeError"),
        (None, 0.0, 0.5, 1.0),
        ("", "missing", "verifier_fault"),
    ):
        seen += 1
        if outcome in SCORED and reward is None:
            continue  # triage has no such verdict
        row = _row(blank, outcome, exception, reward, cause)
        errors = (RecordedError(type=exception),) if exception else ()
        record = TrialRecord(job=Path("j"), path=Path("j/t"), name="t", task="t", errors=errors)
        view = begun(trials=1)
        apply(view, finished(Judged(trial=record, outcome=outcome, cause=cause, reward=reward), 0, 0, 0))
        trial = view.state.groups[0].trials[0]
        case = (outcome, exception, reward, cause)
        score = modes.decide(modes.mode("infra-excluded"), row)[0]
        assert benchmark.score_of(trial) == score == view.state.groups[0].reward_mean, case
        assert benchmark.infra_excluded(view.state)[:2] == ((0.0, 0) if score is None else (score, 1)), case
        if exception or outcome in benchmark.VERIFIED:
            aware = modes.decide(modes.mode("error-aware"), row)[0]
            assert benchmark.error_aware(view.state)[:2] == ((0.0, 0) if aware is None else (aware, 1)), case
        assert trial.reward is None or outcome in benchmark.VERIFIED, case
    assert seen == 504


def test_the_mean_of_a_task_is_of_the_attempts_that_count() -> None:
    view = begun(trials=1, attempts=4)
    end(view, 0, 110)
    end(view, 0, 111, trial=1, outcome="agent_failure", reward=None, exception="NonZeroAgentExitCodeError")
    end(view, 0, 112, trial=2, outcome="bad_reward", cause="verifier_fault", reward=0.0)
    end(view, 0, 113, trial=3, outcome="infrastructure", reward=None, exception="SandboxError")
    assert view.state.groups[0].reward_mean == 0.5 == benchmark.infra_excluded(view.state).value


def _row(blank, outcome, exception, reward, cause) -> Row:
    fields = blank | {
        "outcome": outcome, "error": exception, "errors": (exception,) if exception else (), "reward": reward,
        "cause": cause, "recorded": True,
    }  # fmt: skip
    return Row(**fields)


def test_passed_so_far_has_its_numerator_and_what_it_leaves_out() -> None:
    view = begun(trials=6)
    end(view, 0, 110)
    end(view, 1, 111, reward=0.0)
    end(view, 2, 112, outcome="infrastructure", reward=None, exception="SandboxError")
    end(view, 3, 113, outcome="agent_timeout", reward=1.0, exception="AgentTimeoutError")
    excluded, aware = benchmark.infra_excluded(view.state), benchmark.error_aware(view.state)
    assert (excluded.sum, excluded.of, excluded.left_out) == (2.0, 3, 1) and excluded.value == pytest.approx(2 / 3)
    assert (aware.sum, aware.of, aware.left_out) == (1.0, 4, 0)
    assert (excluded.low, excluded.high) == pytest.approx(wilson_of_scipy(2, 3)[:2])
    assert benchmark.infra_excluded(begun().state).value is None


def test_several_attempts_or_half_a_reward_have_no_such_interval() -> None:
    several, half = begun(attempts=2), begun()
    end(several, 0, 110)
    end(half, 0, 110, reward=0.5)
    assert benchmark.infra_excluded(several.state).low is None is benchmark.infra_excluded(half.state).high


@pytest.mark.parametrize(("passes", "of"), [(0, 1), (1, 1), (53, 85), (4, 85), (42, 81), (0, 30), (30, 30)])
def test_wilson_is_that_of_scipy(passes: int, of: int) -> None:
    assert benchmark.wilson(passes, of) == pytest.approx(wilson_of_scipy(passes, of)[:2], abs=1e-9)


def test_the_window_is_of_the_last_tries() -> None:
    view = begun(trials=40)
    for n in range(30):
        end(view, n, 110 + n, outcome="infrastructure" if n < 5 or n in (20, 21) else "completed")
    end(view, 30, 150, outcome="cancelled", reward=None)
    assert benchmark.infra_window(view.state) == (2, 20) and benchmark.infra_window(view.state, 30) == (7, 30)


# --- time left ---


def test_time_left_needs_three_trials_that_ended() -> None:
    view = begun(trials=10)
    for n in range(3):
        assert benchmark.seconds_left(view.state, 200.0) is None
        begin(view, n, 100)
        end(view, n, 200, took=100.0)
    assert benchmark.seconds_left(view.state, 200.0) == pytest.approx((350.0, 350.0, 350.0))  # 7 of 100 s, two at once


def test_trials_under_way_count_with_what_is_left_of_them() -> None:
    view = begun(trials=6)
    for n in range(4):
        begin(view, n, 100 + n)
        end(view, n, 200, took=100.0)
    begin(view, 4, 200)
    begin(view, 5, 200)
    assert benchmark.seconds_left(view.state, 260.0).likely == pytest.approx(40.0)
    late = benchmark.seconds_left(view.state, 900.0)  # older than any that ended: nobody knows, and no time is negative
    assert late is not None and 0 <= late.low <= late.likely <= late.high and late.likely > 0


def test_the_longest_that_is_left_bounds_the_end() -> None:
    view = begun(trials=6)
    for n in range(4):
        end(view, n, 400 + n, took=300.0)
    begin(view, 4, 201)
    begin(view, 5, 500)
    assert benchmark.seconds_left(view.state, 500.0).likely == pytest.approx(300.0)  # not half of 1 + 300


def test_no_bound_is_below_zero() -> None:
    view = begun(trials=4)
    for n, took in enumerate((1.0, 1.0, 1000.0)):
        end(view, n, 400 + n, took=took)
    begin(view, 3, 500)
    found = benchmark.seconds_left(view.state, 500.0)
    assert found.low == 0.0 < found.likely < found.high


def test_time_left_is_counted_in_one_pass_however_many_are_at_work() -> None:
    """It is painted up to four times a second: 800 that ended times 200 at work would take longer than a paint may."""
    view = begun(trials=1000, limit=200)
    for n in range(800):
        end(view, n, 1000.0, took=100.0 + n)
    for n in range(800, 1000):
        begin(view, n, 1000.0 - (n - 800) * 3)
    lines = 0

    def count(frame: FrameType, event: str, arg: object) -> object:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        found = benchmark.seconds_left(view.state, 1000.0)
    finally:
        sys.settrace(before)
    assert found is not None and found.likely > 0 and 0 < lines < 60 * 1000


def test_short_trials_that_end_first_promise_no_more_than_is_so() -> None:
    """Half of the trials take 10 s, half 1000 s: after 20 s only short ones have ended."""
    view = begun(trials=40, limit=20)
    for n in range(20):
        begin(view, n, 100)
    for n in range(0, 20, 2):
        end(view, n, 110, took=10.0)
    likely = benchmark.seconds_left(view.state, 120.0).likely
    assert likely > 3 * 20 * 10.0 / 20, likely  # a mean of those that ended would say 10 to 15 s


def test_bounds_are_wider_the_more_trials_differ() -> None:
    def spread(*took: float) -> float:
        view = begun(trials=30)
        for n, seconds in enumerate(took):
            end(view, n, 200 + n, took=seconds)
        found = benchmark.seconds_left(view.state, 300.0)
        assert 0 <= found.low <= found.likely <= found.high
        return (found.high - found.low) / found.likely

    assert spread(100, 100, 100) == pytest.approx(0) and spread(10, 100, 500) > spread(90, 100, 110) > 0


@pytest.mark.parametrize(
    "event",
    [
        ev.DispatchPaused(ts=300, paused=True),
        ev.BenchLimited(ts=300, limit=0),
        ev.StopRequested(ts=300, when="now"),
        ev.RunFinished(ts=300, status="completed", exit_code=0),
    ],
)
def test_no_time_is_left_while_nothing_begins(event: ev.Event) -> None:
    view = begun(trials=10)
    for n in range(3):
        end(view, n, 200)
    assert benchmark.seconds_left(view.state, 300.0) is not None
    apply(view, event)
    assert benchmark.seconds_left(view.state, 300.0) is None


def test_a_stop_after_those_at_work_leaves_their_time_only() -> None:
    view = begun(trials=100)
    for n in range(3):
        end(view, n, 200, took=100.0)
    begin(view, 3, 200)
    apply(view, ev.StopRequested(ts=210, when="after_step"))
    assert benchmark.seconds_left(view.state, 230.0).likely == pytest.approx(70.0)


def test_tokens_a_second_are_those_of_all_trials_at_work() -> None:
    view = begun(trials=10)
    assert benchmark.tokens_per_second(view.state) is None
    end(view, 0, 200, took=100.0, sampled_tokens=500)
    begin(view, 1, 200)
    begin(view, 2, 200)
    assert benchmark.tokens_per_second(view.state) == pytest.approx(10.0)
    apply(view, ev.RunFinished(ts=300, status="completed", exit_code=0))
    assert benchmark.tokens_per_second(view.state) is None


# --- in words ---


def test_an_estimate_is_told_no_finer_than_it_is() -> None:
    told = {
        0.0: "<10 s", 9.9: "<10 s", 10.0: "10 s", 77.0: "75 s", 97.4: "95 s", 98.0: "2 min", 5900.0: "98 min",
        6000.0: "1.7 h", 35_000.0: "9.7 h", 200_000.0: "2.3 d",
    }  # fmt: skip
    assert {seconds: rough(seconds) for seconds in told} == told


def test_time_left_is_never_nothing_while_a_trial_is_at_work() -> None:
    assert left_text(benchmark.TimeLeft(0.0, 0.004, 290.0)) == "<10 s (<10 s to 5 min)"
    assert left_text(benchmark.TimeLeft(0.0, 20.0, 45.0)) == "20 s (<10 to 45 s)"
    assert left_text(benchmark.TimeLeft(8.0, 140.0, 288.0), bounds=False) == "2 min"
    assert left_text(benchmark.TimeLeft(0.0, 0.0, 0.0)) == left_text(None) == ""
