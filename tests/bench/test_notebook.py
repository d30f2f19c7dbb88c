"""Three full runs of Terminal-Bench 2.1 as somebody's notebook tells them, rebuilt as directories: the commands give
what was worked out by hand. And published pairs of runs, of which the same."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harbor_jobs import BEGAN, HarborJob, put, tree_hash

from console.bench.cache import DIRECTORY_VARIABLE
from console.cli import run

QWEN, OSS = "openai/Qwen/Qwen3.8-27B-FP8", "openai/openai/gpt-oss-20b"
FINAL = ("circuit-fibsqrt", "feal-linear-cryptanalysis", "query-optimize", "schemelike-metacircular-eval")
EXIT = "NonZeroAgentExitCodeError"
LATE = ("AgentTimeoutError", "Agent execution timed out after 3600.0 seconds")
WORK = {"agent/trajectory.json": '{"schema_version": "1", "steps": [{"source": "agent", "tool_calls": [{"a": 1}]}]}'}
JUDGED = {**WORK, "verifier/test-stdout.txt": "== 3 passed in 0.1s ==\n"}
TASKS = (
    *FINAL,
    "qemu-startup",
    "qemu-alpine-ssh",
    "make-doom-for-mips",
    *(f"task-{at:02}" for at in range(82)),
)
"""89 of them."""
Shell = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Runs a command line of `bench`: exit code, standard output, standard error."""
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "cache"))

    def call(*argv: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["bench", *map(str, argv)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def exited(stderr: str) -> tuple[str, str]:
    return EXIT, f"Command failed (exit 1): mini-swe-agent --task x\nstdout: \nstderr: {stderr}"


CONTEXT = exited("litellm.ContextWindowExceededError: This model's maximum context length is 262144 tokens.")
MIRROR = exited(
    "Err:5 http://security.debian.org bullseye-security\n  404  Not Found [IP: 1.1.1.1 80]\nE: Failed to fetch"
)


def graded(job: HarborJob, tasks: tuple[str, ...], passed: int, kwargs: dict[str, Any] | None = None) -> None:
    for at, task in enumerate(tasks):
        job.trial(f"terminal-bench/{task}", float(at < passed), files=JUDGED, kwargs=kwargs)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`first`, with three passes of mop-up; `second`, whose process lingered; `third`, by another agent."""
    root = tmp_path_factory.mktemp("runs")
    low = {"reasoning_effort": "low", "api_base": "https://one--30000.hf.jobs/v1"}
    first = HarborJob(
        root / "first" / "full", "0.22.0", model=QWEN, agent_timeout_multiplier=4.0, environment="hf-sandbox"
    )
    clean = tuple(task for task in TASKS if task not in FINAL)
    graded(first, clean[:69], 53, low)
    for task in clean[69:]:
        first.trial(f"terminal-bench/{task}", 0.0, error=LATE, seconds={"agent": 3600}, files=WORK, kwargs=low)
    for task in FINAL:
        first.trial(f"terminal-bench/{task}", error=("SandboxError", "HF Sandbox is gone"), files=WORK, kwargs=low)
    first.write()
    # Harbor's own summary after several passes counts a trial that it ran again once more.
    summary = json.loads((first.path / "result.json").read_text())
    summary["stats"] |= {"n_completed_trials": 101, "n_errored_trials": 32}
    put(first.path / "result.json", summary)
    for number in (1, 2, 3):
        again = HarborJob(
            root / "first" / f"pass-{number}", "0.22.0", model=QWEN, agent_timeout_multiplier=4.0,
            environment="hf-sandbox", began=BEGAN + 1e6 * number,
        )  # fmt: skip
        for task in FINAL:
            elsewhere = low | {"api_base": "https://two--30000.hf.jobs/v1"}
            gone = ("RemoteProtocolError", "Server disconnected without sending a response")
            again.trial(f"terminal-bench/{task}", error=gone, files=WORK, kwargs=elsewhere)
        again.write()
    second = HarborJob(root / "second", "0.22.0", model=OSS, agent_timeout_multiplier=4.0, environment="hf-sandbox")
    graded(second, TASKS[:82], 4)
    for task in TASKS[82:85]:
        second.trial(f"terminal-bench/{task}", 0.0, error=LATE, seconds={"agent": 3600}, files=WORK)
    for task, kind in zip(TASKS[85:], ("SandboxError", "SandboxError", "RemoteProtocolError", "CancelledError")):
        second.trial(f"terminal-bench/{task}", error=(kind, ""), files=WORK)
    second.write()
    third = HarborJob(
        root / "third",
        "0.22.0",
        agent="mini-swe-agent",
        model=QWEN,
        agent_timeout_multiplier=4.0,
        environment="hf-sandbox",
    )
    third.trial("terminal-bench/qemu-startup", 0.0, error=MIRROR, files=WORK)
    third.trial("terminal-bench/qemu-alpine-ssh", 0.0, error=MIRROR, files=WORK)
    third.trial("terminal-bench/make-doom-for-mips", 0.0, error=exited("/bin/sh: 1: ps: not found"), files=WORK)
    cut = (EXIT, "Command timed out after 7200 seconds")
    third.trial("terminal-bench/query-optimize", 0.0, error=cut, files=WORK)
    rest = (*TASKS[7:42], *TASKS[57:64], *TASKS[42:57], *TASKS[64:])
    for task in rest[42:49]:
        third.trial(f"terminal-bench/{task}", 0.0, error=CONTEXT, files=WORK)
    lost = (*FINAL[:2], FINAL[3], *rest[80:])
    for task in lost:
        third.trial(f"terminal-bench/{task}", error=("SandboxError", "HF Sandbox is gone"), files=WORK)
    graded(third, (*rest[:42], *rest[49:80]), 42)
    third.write()
    return root


def figures(shell: Shell, *argv: object) -> dict[str, dict[str, Any]]:
    code, out, _ = shell("tally", *argv, "--json")
    assert code == 0
    return {one["mode"]: one for one in json.loads(out)["modes"]}


def test_the_first_run(runs: Path, shell: Shell) -> None:
    """89 = 53 passes + 16 zeros + 16 timeouts + 4 infrastructure, of which each of three passes failed again."""
    before = tree_hash(runs / "first")
    found = figures(shell, runs / "first")
    strict, clean = found["infra-excluded-strict"], found["clean-only"]
    assert (clean["numerator"], clean["denominator"]) == (53, 69) and round(100 * clean["value"], 1) == 76.8
    assert (strict["numerator"], strict["denominator"]) == (53, 85) and round(100 * strict["value"], 2) == 62.35
    assert strict["excluded"] == {"infrastructure/network": 4} and strict["missing"] == 0
    code, out, _ = shell("tally", runs / "first")
    assert code == 0 and "89 attempts of 89 planned, 0 missing; 101 trials on disk" in out
    assert "infra-excluded-strict     53  85  62.35 %" in out and "clean-only                53  69  76.81 %" in out
    code, out, _ = shell("tally", runs / "first", "--csv", "--table", "tasks", "--mode", "infra-excluded")
    lines = [line.split(",") for line in out.splitlines()]
    undecided = [row[3] for row in lines[1:] if row[lines[0].index("counted")] == "0"]
    assert sorted(undecided) == sorted(FINAL)
    assert tree_hash(runs / "first") == before


def test_the_second_run(runs: Path, shell: Shell) -> None:
    """4 of 85; its four exclusions are infrastructure's, a trial that was cancelled after the job's end among them."""
    found = figures(shell, runs / "second")
    strict = found["infra-excluded-strict"]
    assert (strict["numerator"], strict["denominator"]) == (4, 85) and round(100 * strict["value"], 2) == 4.71
    assert [round(100 * limit, 1) for limit in strict["ci95"]] == [1.8, 11.5]
    assert strict["excluded"] == {
        "infrastructure/network": 1, "infrastructure/runner": 1, "infrastructure/sandbox": 2,
    }  # fmt: skip
    assert round(found["raw-old"]["value"], 3) == 0.045 and found["raw-old"]["denominator"] == 89
    code, out, _ = shell("triage", runs / "second")
    assert code == 0 and "89 of 89 planned trials, finished" in out
    assert "agent_timeout        3" in out and "infrastructure/runner: 1 trial of 1 task" in out


def test_a_job_whose_process_was_killed_after_its_last_trial_is_complete(shell: Shell, tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "job")
    graded(job, TASKS[:3], 1)
    job.trial("terminal-bench/last", error=("CancelledError", ""), files=WORK)
    job.write(finished=False)
    code, out, _ = shell("triage", job.path)
    said = " ".join(out.split())
    assert code == 0 and "4 of 4 planned trials, complete, though its end was not recorded" in said
    assert "cancelled/operator: 1 trial" in said, "who killed it is not known"
    job.write(finished=True)
    said = " ".join(shell("triage", job.path)[1].split())
    assert "4 of 4 planned trials, finished" in said and "infrastructure/runner: 1 trial" in said
    (job.trials[0] / "result.json").unlink()
    job.write(finished=False)
    assert "4 of 4 planned trials, not finished" in " ".join(shell("triage", job.path)[1].split())


def test_the_third_run(runs: Path, shell: Shell) -> None:
    """42 of 81: of 11 exit codes three were the sandbox's, seven an overflow, one a command that took too long."""
    found = figures(shell, runs / "third")["infra-excluded"]
    assert (found["numerator"], found["denominator"]) == (42, 81) and round(100 * found["value"], 1) == 51.9
    assert found["excluded"] == {"infrastructure/sandbox": 5, "infrastructure/setup": 3}
    code, out, _ = shell("triage", runs / "third", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    exits = [row for row in rows if row["exception"] == EXIT]
    assert code == 0 and Counter(f"{row['class']}/{row['cause']}" for row in exits) == {
        "infrastructure/setup": 3, "agent_failure/context_overflow": 7, "agent_failure/exec_timeout": 1,
    }  # fmt: skip
    by_task = {row["task"].rsplit("/", 1)[-1]: row for row in exits}
    for task, said in (
        ("qemu-startup", "E: Failed to fetch"),
        ("make-doom-for-mips", "ps: not found"),
        ("query-optimize", "timed out after 7200"),
    ):
        row = by_task[task]
        evidence = row["evidence"]
        line = (Path(row["trial_dir"]) / evidence["file"]).read_text().splitlines()[evidence["line"] - 1]
        assert said in evidence["text"] and said in line
    assert "262144" in by_task["task-35"]["evidence"]["text"]


def test_the_first_and_the_third_run_are_not_told_apart_by_ten_points(runs: Path, shell: Shell) -> None:
    argv = ("compare", runs / "first", runs / "third", "--mode", "infra-excluded-strict")
    code, out, _ = shell(*argv, "--json")
    found = json.loads(out)
    sizes = (found["both"], found["only_a"], found["only_b"], found["neither"])
    assert code == 0 and found["test"] == "mcnemar-exact" and sum(sizes) == found["tasks"]
    a = figures(shell, runs / "first")["infra-excluded-strict"]["value"]
    b = figures(shell, runs / "third")["infra-excluded-strict"]["value"]
    assert round(100 * (a - b), 1) == 10.5
    left = {task for reasons in found["excluded"].values() for task in reasons}
    assert {"circuit-fibsqrt", "qemu-startup"} <= left and found["tasks"] == 89 - len(left)
    assert not found["distinguishable"] and found["p"] > 0.05
    text = shell(*argv)[1]
    assert "not distinguishable at 5 %" in " ".join(text.split()) and "reasoning_effort" in text
    assert "outperform" not in text


# --- what a tally of several directories must not guess ---------------------------------------------------------------


def test_ties_missing_ends_and_unreadable_results_are_reported(shell: Shell, tmp_path: Path) -> None:
    """The notebook's rule, latest by its end, where that says nothing."""
    old = HarborJob(tmp_path / "old")
    for at, task in enumerate(("plain", "tie", "no-end", "torn")):
        old.trial(f"org/{task}", 0.0, files=JUDGED, began=BEGAN + 100 + at)
    old.write()
    new = HarborJob(tmp_path / "new", began=BEGAN + 1)
    new.trial("org/tie", 1.0, files=JUDGED, began=BEGAN + 101)
    new.trial("org/no-end", 1.0, files=JUDGED, ended=False, began=BEGAN + 1e5)
    torn = new.trial("org/torn", 1.0, files=JUDGED, began=BEGAN + 1e5)
    put(torn / "result.json", (torn / "result.json").read_text()[:-50])
    new.trial("org/plain", 1.0, files=JUDGED, began=BEGAN + 1e5)
    new.write()
    code, out, _ = shell("tally", old.path, new.path, "--merge", "latest", "--json", "--mode", "raw-old")
    found = json.loads(out)
    notices = {one["code"]: one for one in [*found["notices"], *found["groups"][0]["notices"]]}
    assert code == 0 and "merge.tie" in notices and "merge.unsure_end" in notices
    assert notices["merge.tie"]["text"].startswith("1 attempt with tries that ended at the same time")
    assert notices["merge.unsure_end"]["text"].startswith("2 attempts with a try whose end no result tells")
    scores = {task["task"]: task["scores"]["raw-old"] for task in found["groups"][0]["tasks"]}
    assert {task: score[0] for task, score in scores.items()} == {"tie": 1.0, "no-end": 0.0, "torn": 0.0, "plain": 1.0}
    assert found["groups"][0]["trials"] == 8


# --- published pairs --------------------------------------------------------------------------------------------------


def pair(root: Path, *kinds: tuple[int, str, str]) -> tuple[Path, Path]:
    """Two runs of the same tasks: how many of them ended so in A and so in B: pass, fail, or late, which is a pass that
    came with the agent's timeout."""
    jobs = [HarborJob(root / name, agent=name, agent_version="1") for name in ("one", "other")]
    at = 0
    for number, *ends in kinds:
        for _ in range(number):
            at += 1
            for job, end in zip(jobs, ends):
                job.trial(
                    f"org/task-{at:02}",
                    float(end != "fail"),
                    error=LATE if end == "late" else None,
                    files=WORK if end == "late" else JUDGED,
                )
    for job in jobs:
        job.write()
    return jobs[0].path, jobs[1].path


@pytest.mark.parametrize(
    ("kinds", "raw", "strict"),
    [
        # (passes of A, of B, only A, only B, p) by the raw reward, and where a pass with an exception is none.
        (
            (
                (26, "pass", "pass"), (3, "late", "pass"), (2, "pass", "late"), (1, "late", "late"),
                (4, "pass", "fail"), (1, "late", "fail"), (17, "fail", "pass"), (1, "fail", "late"),
                (34, "fail", "fail"),
            ),
            (37, 50, 5, 18, 0.0106),
            (32, 46, 6, 20, 0.0094),
        ),
        (
            (
                (18, "pass", "pass"), (12, "late", "pass"), (3, "pass", "late"), (3, "late", "late"),
                (6, "pass", "fail"), (16, "late", "fail"), (6, "fail", "pass"), (2, "fail", "late"),
                (23, "fail", "fail"),
            ),
            (58, 44, 22, 8, 0.0161),
            (27, 36, 9, 18, 0.1221),
        ),
    ],
)  # fmt: skip
def test_a_published_pair_by_two_rules(
    shell: Shell,
    tmp_path: Path,
    kinds: tuple[tuple[int, str, str], ...],
    raw: tuple[float, ...],
    strict: tuple[float, ...],
) -> None:
    a, b = pair(tmp_path, *kinds)
    for mode, expected in (("raw-old", raw), ("error-aware", strict)):
        passes = [figures(shell, path)[mode] for path in (a, b)]
        found = json.loads(shell("compare", a, b, "--mode", mode, "--json")[1])
        assert [one["numerator"] for one in passes] == list(expected[:2]) and found["tasks"] == 89
        assert (found["only_a"], found["only_b"]) == expected[2:4]
        assert found["p"] == pytest.approx(expected[4], abs=5e-5)
        assert found["distinguishable"] == (expected[4] < 0.05)
    flipped = (raw[0] - raw[1]) * (strict[0] - strict[1]) < 0
    assert ("who is ahead depends on the rule" in found["disagreement"]) == flipped


@pytest.mark.parametrize(
    ("only_a", "only_b", "p"), [(13, 5, 0.0963), (17, 7, 0.0639), (17, 4, 0.0072), (19, 4, 0.0026), (15, 13, 0.8506)]
)
def test_published_tables_of_four_runs(shell: Shell, tmp_path: Path, only_a: int, only_b: int, p: float) -> None:
    a, b = pair(tmp_path, (5, "pass", "pass"), (only_a, "pass", "fail"), (only_b, "fail", "pass"), (4, "fail", "fail"))
    shutil.rmtree(next(path for path in b.iterdir() if path.name.startswith("task-05__")))
    code, out, _ = shell("compare", a, b, "--json")
    found = json.loads(out)
    assert code == 0 and (found["only_a"], found["only_b"], found["both"]) == (only_a, only_b, 4)
    assert found["p"] == pytest.approx(p, abs=5e-5) and found["excluded"] == {"B: no trial of it": ["task-05"]}
    assert f"only A {only_a}, only B {only_b}" in shell("compare", a, b)[1]
