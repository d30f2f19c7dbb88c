"""What of a running benchmark is told as an alarm, and what is not."""

from __future__ import annotations

import inspect
import re

import pytest
from bench_journal import begin, begun, end

from console.journal import events as ev
from console.state import alarms as tables
from console.state import rules_bench
from console.state.alarms import alarms
from console.state.findings import Finding
from console.state.reduce import RunView, apply
from console.state.thresholds import BENCH_MEANINGS, OF_BENCHMARKS

GONE = {
    "outcome": "infrastructure", "cause": "sandbox", "rule": "type.sandbox", "reward": None,
    "exception": "SandboxError", "evidence": "SandboxError: sandbox 4711 is gone",
}  # fmt: skip


def told(view: RunView, now: float = 200.0) -> dict[str, Finding]:
    return alarms(view, now)


def crowded(failed: int, of: int = 20, limit: int = 8, **fields) -> RunView:
    view = begun(trials=60, limit=limit)
    for n in range(of):
        end(view, n, 110 + n, **({**GONE, **fields} if n % of < failed and n != of - 1 else {}))
    return view


def test_a_crowd_is_advised_to_halve() -> None:
    found = told(crowded(14))["bench.infrastructure"]
    assert found.text == "70 % of the last 20 trials are infrastructure failures (SandboxError 14)"
    assert found.remedy == "lower concurrency to 4: `set concurrency=4`"
    assert (found.level, found.action) == ("critical", "set")


@pytest.mark.parametrize(("failed", "of", "is_told"), [(4, 20, False), (5, 20, True), (6, 7, False), (7, 8, True)])
def test_a_quarter_of_at_least_eight_is_a_crowd(failed: int, of: int, is_told: bool) -> None:
    assert ("bench.infrastructure" in told(crowded(failed, of))) is is_told


def test_advice_fits_what_failed() -> None:
    assert "one trial at a time is no crowd" in told(crowded(14, limit=1))["bench.infrastructure"].remedy
    setup = told(crowded(14, cause="setup", exception="AgentSetupError"))["bench.infrastructure"]
    assert "does not cure" in setup.remedy and not setup.action


def test_after_another_limit_only_what_ended_since_is_judged() -> None:
    view = crowded(14)
    apply(view, ev.BenchLimited(ts=140, limit=4, why="so many failed"))
    assert "bench.infrastructure" not in told(view)
    for n in range(20, 28):
        end(view, n, 141 + n, **(GONE if n % 2 else {}))
    assert "concurrency=2" in told(view)["bench.infrastructure"].remedy


def test_thresholds_of_the_run_are_heeded() -> None:
    view = crowded(6)
    view.state.thresholds = {"bench_infra_share": 0.5}
    assert "bench.infrastructure" not in told(view)
    view.state.thresholds = {"bench_infra_window": 10, "bench_infra_share": 0.05}
    assert "bench.infrastructure" not in told(view)  # the last ten were good


def test_one_failure_everywhere_is_the_jobs() -> None:
    view = begun(trials=30)
    for n in range(3):
        end(view, n, 110 + n, **GONE | {"evidence": f"set: Illegal option -o pipefail in task-{n} at {n}"})
    assert "bench.same_failure" not in told(view)
    end(view, 3, 113, **GONE | {"evidence": "set: Illegal option -o pipefail in task-3 at 3"})
    found = told(view)["bench.same_failure"]
    assert found.level == "critical" and found.action == "stop_now" and "Illegal option -o pipefail" in found.text


@pytest.mark.parametrize("fields", [{}, {"reward": 0.0}, {"reward": 0.0, "outcome": "agent_timeout"}])
def test_genuine_zeros_are_no_failure_of_the_job(fields: dict) -> None:
    view = begun(trials=30)
    for n in range(20):
        end(view, n, 110 + n, **fields)
    assert "bench.same_failure" not in told(view)


def test_different_failures_and_those_of_one_task_are_not_everywhere() -> None:
    view = begun(trials=30)
    for n in range(8):
        end(view, n, 110 + n, **GONE | {"evidence": "one" if n % 2 else "other"})
    assert "bench.same_failure" not in told(view)
    one = begun(trials=2, attempts=8)
    for n in range(8):
        end(one, 0, 110 + n, trial=n, **GONE)
    assert "bench.same_failure" not in told(one)


def test_a_key_that_expired_later_is_told_with_its_remedy() -> None:
    view = begun(trials=40)
    for n in range(10):
        end(view, n, 110 + n)
    for n in range(10, 18):
        end(
            view, n, 110 + n, outcome="configuration", cause="key", reward=None, exception="AuthenticationError",
            evidence="401",
        )  # fmt: skip
    assert "renew the key" in told(view)["bench.same_failure"].remedy


def test_idle_killed_sandboxes_by_their_log_or_by_their_time() -> None:
    view = begun(trials=40)
    end(view, 0, 110, **GONE | {"rule": "bench.idle_killed"})
    assert "their logs say" in told(view)["bench.idle_killed"].text
    view = begun(trials=40)
    for n in range(3):
        assert ("bench.idle_killed" in told(view)) is (n == 2)
        end(view, n, 110 + n, **GONE | {"seconds": {"agent": 598.0 + 5 * n}})
    assert "job_timeout" in told(view)["bench.idle_killed"].remedy
    view = begun(trials=40)
    for n in range(3):
        end(view, n, 110 + n, **GONE | {"seconds": {"agent": 300.0 + 5 * n}})
    assert "bench.idle_killed" not in told(view)


def test_time_outs_with_hardly_a_token_may_be_endless_thought() -> None:
    view = begun(trials=40)
    slow = {"outcome": "agent_timeout", "reward": 0.0, "exception": "AgentTimeoutError", "seconds": {"agent": 3600.0}}
    end(view, 0, 110, **slow, sampled_tokens=650)
    end(view, 1, 111, **slow, sampled_tokens=90_000)
    end(view, 2, 112, **slow)  # no count is no evidence
    assert "bench.runaway" not in told(view)
    end(view, 3, 113, **slow, sampled_tokens=650)
    assert "650 tokens in 60 min" in told(view)["bench.runaway"].text


def test_an_endpoint_that_misses_one_answer_is_not_gone() -> None:
    view = begun()
    begin(view, 0, 150)
    apply(view, ev.GatewayHealth(ts=160, reachable=False, detail="connection refused"))
    assert "gateway.unreachable" not in told(view, 175.0)
    found = told(view, 191.0)["gateway.unreachable"]
    assert found.text.startswith("model endpoint unreachable since 00:02 UTC: connection refused")
    assert found.action == "pause"


def test_a_long_agent_is_silent_and_well_and_an_idle_job_is_not() -> None:
    view = begun(trials=10)
    begin(view, 0, 150)
    assert not told(view, 150 + 3500.0)
    assert told(view, 150 + 3700.0).keys() == {"run.no_progress"}
    end(view, 0, 3000, took=2800.0)
    begin(view, 1, 3001)
    assert not told(view, 3001 + 8000.0)  # three times as long as the longest is still to come
    idle = begun(trials=10)
    found = told(idle, 100 + 700.0)["run.no_progress"]
    assert found.level == "warning" and "no trial is at work" in found.text
    assert told(idle, 100 + 2000.0)["run.no_progress"].level == "critical"


def test_a_phase_of_the_sandbox_that_lasts_is_told() -> None:
    view = begun(trials=10)
    apply(view, ev.TrialPhase(ts=150, step=0, group=2, trial=0, phase="verify"))
    assert "stalled.g3/t1" not in told(view, 150 + 1700.0)
    assert "g3/t1 (verify)" in told(view, 150 + 1900.0)["stalled.g3/t1"].text


def test_what_only_a_training_has_is_silent() -> None:
    """A whole job of zeros, alike in everything: in a training nothing would be learnt from it."""
    view = begun(trials=60)
    for n in range(50):
        end(view, n, 110 + n, reward=0.0)
    apply(view, ev.StepFinished(ts=190, step=0, reward_mean=0.0, reward_std=0.0, groups_kept=60,
                                groups_zero_variance=60, nonfinite=["kl"]))  # fmt: skip
    assert not told(view)


def test_what_ends_at_the_time_out_is_told_unless_sandboxes_explain_it() -> None:
    view = begun(trials=60)
    for n in range(24):
        end(view, n, 110 + n, **({"outcome": "agent_timeout", "reward": 0.0} if n % 2 == 0 else {}))
    assert "12 of the last 24" in told(view)["limit.agent_timeout"].text
    for n in range(24, 34):
        end(view, n, 110 + n, **GONE)
    assert "bench.infrastructure" in told(view) and "limit.agent_timeout" not in told(view)


def test_text_of_a_sandbox_is_clean() -> None:
    view = begun(trials=30)
    for n in range(8):
        end(view, n, 110 + n, **GONE | {"exception": "\x1b[2JError", "evidence": "\x1b]0;x\x07y\n"})
    texts = [finding.text for finding in told(view).values()]
    assert texts and not any("\x1b" in text or "\x07" in text or "\n" in text for text in texts)


def test_the_thresholds_of_benchmarks_are_those_that_their_rules_read() -> None:
    rules = tables.BENCH_RULES + tables.BENCH_RULES_WHILE_LIVE
    others = [rule for rule in rules if rule.__module__ != rules_bench.__name__]
    source = "".join(map(inspect.getsource, (rules_bench, *others)))
    assert set(re.findall(r"limits\.(\w+)", source)) == OF_BENCHMARKS
    assert set(re.findall(r"thresholds\.get\(\"(\w+)\"", source)) == BENCH_MEANINGS.keys()
