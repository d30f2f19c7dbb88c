"""What shows only when all trials of a job are seen together, with the figures that it is said with."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from console.bench.advice import ADVICE, concurrency_advice
from console.bench.detectors import NAMED, Detectors, Finding, alike, detect
from console.bench.model import Evidence, Judged
from console.outcomes.classes import OutcomeClass
from console.records.harbor.model import JobRecord, Phase, TrialRecord

JOB = Path("/jobs/run")


class Made:
    """Verdicts of one job, one trial after the other."""

    def __init__(self, job: Path = JOB, every: float = 60.0) -> None:
        self.job, self.every = job, every
        self.verdicts: list[Judged] = []

    def add(self, count: int, kind: str, text: str = "", **rest: Any) -> Made:
        outcome, _, cause = kind.partition("/")
        for _ in range(count):
            number = len(self.verdicts)
            took = rest.get("seconds", 50.0 + number % 7 * 9)
            began = rest.get("began", 1e9 + number * self.every)
            task = rest.get("task") or f"task-{number}"
            self.verdicts.append(
                Judged(
                    trial=TrialRecord(
                        job=self.job,
                        path=self.job / f"{task}__x{number}",
                        name=f"{task}__x{number}",
                        task=f"tb/{task}",
                        began=began,
                        ended=began + took,
                        phases={"agent": Phase(began=began, ended=began + took)},
                    ),
                    outcome=OutcomeClass(outcome),
                    cause=cause,
                    rule=rest.get("rule", ""),
                    reward=0.0,
                    evidence=Evidence(file="exception.txt", line=1, text=text.format(number, task)),
                )
            )
        return self


def codes(made: Made | Sequence[Judged], **job: Any) -> dict[str, Finding]:
    """Findings by code, the same in whatever order the trials are read."""
    verdicts = list(made.verdicts if isinstance(made, Made) else made)
    record = JobRecord(path=JOB, name="run", **job)
    found = detect(verdicts, [record])
    random.Random(7).shuffle(verdicts)
    again = detect(verdicts, [record])
    assert sorted((one.code, one.count) for one in found) == sorted((one.code, one.count) for one in again)
    assert len({one.code for one in found}) == len(found)
    for one in found:
        assert one.consequence and one.remedy and 0 < len(one.trials) <= NAMED and one.count >= len(one.trials)
    return {one.code: one for one in found}


def test_a_job_that_went_well() -> None:
    assert codes(Made().add(60, "completed").add(9, "agent_timeout", seconds=3600.0)) == {}


def test_a_shell_that_no_agent_of_the_job_can_use() -> None:
    text = "/bin/sh: {0}: set: Illegal option -o pipefail"
    found = codes(Made(every=4.0).add(89, "infrastructure/setup", text, rule="text.shell"))
    assert set(found) == {"same_failure"}
    finding = found["same_failure"]
    assert finding.count == 89 and len(finding.trials) == NAMED and finding.job == JOB
    assert "89 of the 89 trials" in finding.text and "infrastructure/setup" in finding.text
    assert "dash" in finding.remedy
    assert "dash" not in codes(Made(every=4.0).add(9, "agent_failure/crash", "x"))["same_failure"].remedy


def test_tasks_are_not_named_again_for_what_the_whole_job_has() -> None:
    made = Made(every=4.0)
    for number in range(12):
        made.add(2, "infrastructure/setup", "pipefail", task=f"task-{number}")
    assert set(codes(made, concurrent=1)) == {"same_failure"}


def test_a_common_failure_needs_half_of_the_early_trials() -> None:
    half = Made(every=4.0).add(5, "infrastructure/setup", "no").add(5, "completed")
    assert "5 of the 10" in codes(half)["same_failure"].text
    assert "same_failure" not in codes(Made(every=4.0).add(5, "infrastructure/setup", "no").add(6, "completed"))
    assert "same_failure" not in codes(Made(every=4.0).add(3, "infrastructure/setup", "no"))
    assert "same_failure" not in codes(Made(every=4.0).add(9, "cancelled/operator", "no"))
    later = Made(every=4.0).add(9, "completed").add(9, "infrastructure/setup", "no", began=1e9 + 700)
    assert "same_failure" not in codes(later)
    different = Made(every=4.0)
    for word in "abcdefgh":
        different.add(1, "agent_failure/crash", word)
    assert codes(different) == {}


def test_too_many_at_a_time() -> None:
    crowded = Made().add(30, "completed")
    for _ in range(5):
        crowded.add(1, "infrastructure/sandbox", "gone {0}").add(3, "completed")
    finding = codes(crowded, concurrent=8)["infra_rate"]
    assert "5 of 20 trials in a row" in finding.text and "5 of 50 in the whole job" in finding.text
    assert "from 8 to 3" in finding.remedy and "70 %" in finding.remedy
    four = Made().add(30, "completed").add(4, "infrastructure/network", "x {0}").add(30, "completed")
    assert "infra_rate" not in codes(four)
    assert "infra_rate" not in codes(Made().add(19, "infrastructure/api", "{1}"))
    assert "infra_rate" not in codes(Made().add(30, "infrastructure/setup", "{1}", began=1e9 + 9_000))


def test_the_advice_is_below_what_there_was() -> None:
    assert all(
        f"to {fewer} " in concurrency_advice(given) for given, fewer in ((8, 3), (16, 6), (4, 2), (3, 1), (2, 1))
    )
    assert "--n-concurrent" in concurrency_advice(None) and "no crowd" in concurrency_advice(1)


def test_sandboxes_that_are_killed_when_idle() -> None:
    made = Made().add(40, "completed").add(3, "infrastructure/network", "lost {0}", seconds=601.0)
    assert "3 sandboxes" in codes(made)["idle_timeout"].text
    assert "job_timeout=2h" in codes(made)["idle_timeout"].remedy
    assert "idle_timeout" not in codes(Made().add(3, "infrastructure/network", "lost {0}", seconds=620.0))
    assert "idle_timeout" not in codes(Made().add(2, "infrastructure/network", "lost {0}", seconds=601.0))
    assert "idle_timeout" not in codes(Made().add(3, "agent_failure/crash", "lost {0}", seconds=601.0))
    told = Made().add(3, "infrastructure/sandbox", "idle", rule="bench.idle_killed", seconds=700.0)
    assert "3 of their logs" in codes(told)["idle_timeout"].text


def test_a_clock_that_nobody_set() -> None:
    made = Made().add(410, "completed")
    for number in range(35):
        made.add(1, "ambiguous/killed", "exit {0}", seconds=1003.0 + number % 5)
    finding = codes(made)["one_duration"]
    assert "35 of 35 failed trials" in finding.text and "1005" in finding.text
    spread = Made().add(10, "completed")
    for number in range(35):
        spread.add(1, "ambiguous/killed", "{1}", seconds=300.0 + 40 * number)
    assert "one_duration" not in codes(spread)
    assert "one_duration" not in codes(Made().add(9, "ambiguous/killed", "{1}", seconds=12.0))


def test_no_clock_ended_agents_whose_verifier_failed() -> None:
    made = Made().add(20, "completed").add(12, "bad_reward/verifier_fault", "no uvx {0}", seconds=300.0)
    assert "one_duration" not in codes(made)
    finding = codes(made.add(6, "ambiguous/killed", "exit {0}", seconds=300.0))["one_duration"]
    assert "6 of 6 failed trials" in finding.text and finding.count == 6


def test_an_exit_code_tells_failures_apart() -> None:
    made = (
        Made().add(3, "agent_failure/crash", "exited 1: lost {0}").add(3, "agent_failure/crash", "exited 137: lost {0}")
    )
    assert len({alike(verdict) for verdict in made.verdicts}) == 2


def test_wrong_credentials() -> None:
    made = Made().add(20, "completed").add(7, "configuration/key", "401 Unauthorized {0}")
    found = codes(made)
    assert set(found) == {"credentials"}
    assert "7 of 27 trials" in found["credentials"].text and "after 20 trials" in found["credentials"].text
    all_of_them = codes(Made(every=4.0).add(6, "configuration/key", "401 Unauthorized"))
    assert set(all_of_them) == {"credentials"} and "after" not in all_of_them["credentials"].text
    assert set(codes(Made().add(2, "configuration/key", "401"))) == {"credentials"}
    assert "credentials" not in codes(Made().add(9, "completed").add(2, "configuration/key", "401"))
    assert set(codes(Made().add(3, "configuration/quota", "402 {1}"))) == {"quota"}


def test_verifiers_that_fail_all_over_the_job() -> None:
    made = Made().add(15, "completed").add(5, "bad_reward/verifier_fault", "uvx: command not found")
    assert "5 of 20 trials, of 5 tasks" in codes(made)["verifier_faults"].text
    assert "verifier_faults" not in codes(Made().add(16, "completed").add(5, "bad_reward/verifier_fault", "x"))
    one = Made().add(5, "bad_reward/verifier_fault", "uvx", task="qemu-startup")
    assert set(codes(one, concurrent=1)) == {"same_failure", "unscorable"}


def test_tasks_that_no_verifier_can_score() -> None:
    made = Made(every=700.0).add(9, "completed").add(2, "bad_reward/verifier_fault", "404", task="qemu-startup")
    finding = codes(made)["unscorable"]
    assert "1 task: qemu-startup (2)" in finding.text and finding.count == 2 and finding.job is None
    made.add(1, "completed", task="qemu-startup")
    assert "unscorable" not in codes(made)
    assert "unscorable" not in codes(Made().add(9, "completed").add(1, "bad_reward/verifier_fault", "x", task="a"))


def test_a_task_that_always_fails_the_same_way() -> None:
    text = "{1}: error: unknown option '- {0}'"
    first = Made(every=700.0).add(9, "completed").add(1, "agent_failure/agent_bug", text, task="pytorch")
    second = Made(Path("/jobs/other"), every=700.0).add(9, "completed")
    second.add(1, "agent_failure/agent_bug", text, task="pytorch")
    assert "deterministic" not in codes(first)
    finding = codes(first.verdicts + second.verdicts)["deterministic"]
    assert "pytorch (2)" in finding.text and finding.count == 2 and "hyphen" in finding.remedy
    other = Made(Path("/jobs/other")).add(1, "infrastructure/api", "504", task="pytorch")
    assert "deterministic" not in codes(first.verdicts + other.verdicts)
    passed = Made(Path("/jobs/other")).add(1, "completed", task="pytorch")
    assert "deterministic" not in codes(first.verdicts + second.verdicts + passed.verdicts)
    attempts = Made(every=700.0).add(9, "completed").add(3, "agent_failure/crash", "same", task="t")
    assert "t (3)" in codes(attempts)["deterministic"].text


def test_a_running_job_is_asked_at_any_time() -> None:
    made = Made(every=4.0).add(3, "infrastructure/setup", "no").add(1, "infrastructure/setup", "no")
    detectors = Detectors()
    for verdict in made.verdicts[:3]:
        detectors.add(verdict)
    assert detectors.findings() == []
    detectors.add(made.verdicts[3])
    assert [finding.code for finding in detectors.findings()] == ["same_failure"]


def test_every_code_has_advice() -> None:
    assert all(advice.consequence for advice in ADVICE.values())
    assert {code for code, advice in ADVICE.items() if not advice.remedy} == {"infra_rate"}
