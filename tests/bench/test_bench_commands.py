"""`quarterdeck bench` as a shell sees it: what it answers, in which form, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harbor_jobs import HarborJob, put, tree_hash
from rich.cells import cell_len

from console.bench import looked
from console.bench.cache import DIRECTORY_VARIABLE
from console.bench.figures.modes import MODES
from console.cli import run
from console.commands import bench_options
from console.outcomes.classes import OutcomeClass

TIMEOUT = ("AgentTimeoutError", "Agent execution timed out after 3600.0 seconds")
DEAD = ("SandboxError", "the sandbox was not found")
WORK = {"agent/trajectory.json": '{"schema_version": "1", "steps": [{"tool_calls": [{"function_name": "bash"}]}]}'}
PASSED = {**WORK, "verifier/test-stdout.txt": "== 3 passed in 0.1s ==\n"}
NO_TOOLS = {
    **WORK,
    "verifier/test-stdout.txt": "curl: (28) timed out\n/tests/test.sh: line 5: uvx: command not found\n",
}

Shell = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Runs a command line of `bench`: exit code, standard output, standard error."""
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(looked, "SETTLED", -3600.0)

    def call(*argv: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["bench", *map(str, argv)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def notebook_run(
    path: Path, passed: int = 53, failed: int = 16, late: int = 16, dead: int = 4, **job: Any
) -> HarborJob:
    """89 tasks of one attempt, as a full run of Terminal-Bench 2.1 ended."""
    made = HarborJob(path, **job)
    kinds = ["passed"] * passed + ["failed"] * failed + ["late"] * late + ["dead"] * dead
    for at, kind in enumerate(kinds):
        task = f"terminal-bench/task-{at:02}"
        if kind in ("passed", "failed"):
            made.trial(task, float(kind == "passed"), files=PASSED)
        elif kind == "late":
            made.trial(task, 0.0, error=TIMEOUT, seconds={"agent": 3600}, tokens=(10, 0, 90_000), files=WORK)
        else:
            made.trial(task, error=DEAD, files=WORK)
    made.write()
    return made


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# --- triage -----------------------------------------------------------------------------------------------------------


def test_triage_gives_a_line_of_json_a_trial_with_the_keys_of_the_contract(shell: Shell, tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "jobs" / "a", attempts=2)
    job.trial("org/x", 1.0, files=PASSED)
    job.trial("org/x", 0.0, files=NO_TOOLS)
    job.trial("org/y", error=DEAD)
    job.write()
    before = tree_hash(tmp_path / "jobs")
    code, out, err = shell("triage", tmp_path / "jobs", "--json")
    found = rows(out)
    assert code == 0 and err == ""
    keys = [
        "v",
        "trial_dir",
        "task",
        "agent",
        "model",
        "attempt",
        "try",
        "class",
        "cause",
        "reward",
        "exception",
        "evidence",
        "confidence",
    ]
    assert all(list(row)[: len(keys)] == keys for row in found)
    assert {row["v"] for row in found} == {1} and list(found[0]["evidence"]) == ["file", "line", "text"]
    by_task = {(row["task"], row["attempt"], row["try"]): (row["class"], row["cause"]) for row in found}
    assert by_task == {
        ("org/x", 1, 1): ("completed", ""),
        ("org/x", 2, 1): ("bad_reward", "verifier_fault"),
        ("org/y", 1, 1): ("infrastructure", "sandbox"),
    }
    fault = next(row for row in found if row["class"] == "bad_reward")
    assert fault["evidence"] == {
        "file": "verifier/test-stdout.txt", "line": 2, "text": "/tests/test.sh: line 5: uvx: command not found",
    }  # fmt: skip
    assert tree_hash(tmp_path / "jobs") == before
    assert rows(shell("triage", tmp_path / "jobs", "--json", "--no-cache")[1]) == found
    assert rows(shell("triage", tmp_path / "jobs", "--json")[1]) == found


def test_triage_tells_a_person_what_failed_where_it_stands_and_what_to_do(shell: Shell, tmp_path: Path) -> None:
    job = notebook_run(tmp_path / "full", passed=20, dead=12, concurrent=8)
    code, out, _ = shell("triage", job.path)
    assert code == 0
    assert "64 of 64 planned trials, finished, Harbor 0.26.0" in out
    assert "infrastructure/sandbox: 12 trials of 12 tasks" in out
    assert "> SandboxError: the sandbox was not found" in out
    assert "exception.txt:2\n" in out
    assert "12 of 20 trials in a row failed for infrastructure's sake" in " ".join(out.split())
    assert "do: lower --n-concurrent from 8 to 3" in out
    assert all(cell_len(line) <= 80 for line in out.splitlines())
    again = shell("triage", job.path)
    assert again == (0, out, "")
    assert shell("triage", job.path, "--no-cache") == again
    put(job.trials[0] / "verifier" / "test-stdout.txt", NO_TOOLS["verifier/test-stdout.txt"])
    put(job.trials[25] / "verifier" / "test-stdout.txt", NO_TOOLS["verifier/test-stdout.txt"])
    assert "bad_reward/verifier_fault: 1 trial" in shell("triage", job.path)[1]  # a zero; a pass is believed


def test_triage_shows_only_what_was_asked_for(shell: Shell, tmp_path: Path) -> None:
    job = notebook_run(tmp_path / "full")
    _, out, _ = shell("triage", job.path, "--json", "--only", "infrastructure/sand*", "--only", "agent_timeout")
    assert [row["class"] for row in rows(out)].count("infrastructure") == 4 and len(rows(out)) == 20
    assert rows(shell("triage", job.path, "--json", "--only", "infrastructure/api")[1]) == []
    _, out, _ = shell("triage", job.path, "--json", "--task", "task-0?", "--task", "terminal-bench/task-88")
    assert len(rows(out)) == 11
    _, out, _ = shell("triage", job.path, "--only", "infrastructure")
    assert "agent_timeout" not in out and "findings" not in out and "task-85" in out
    assert "no trial is of this class" in shell("triage", job.path, "--only", "cancelled")[1]
    every = shell("triage", job.path, "--trials")[1].split("\ntrials\n")[1].splitlines()
    assert len(every) == 1 + 20 and all("completed" not in line for line in every)


def test_triage_as_csv_and_markdown_keeps_hostile_texts_in_their_cells(shell: Shell, tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "a")
    job.trial("org/a|b", error=("SandboxError", "=cmd|'/c'\x1b]0;owned\x07 gone"), name="x\x1b[2Jy\nz__abcdefg")
    job.write()
    _, out, _ = shell("triage", job.path, "--csv")
    found = list(csv.DictReader(io.StringIO(out)))
    assert len(found) == 1 and found[0]["class"] == "infrastructure" and found[0]["evidence_line"] == "2"
    assert "\x1b" not in out and "\x07" not in out
    _, out, _ = shell("triage", job.path, "--markdown")
    lines = out.splitlines()
    assert len(lines) == 3 and "org/a\\|b" in lines[2]
    assert {line.replace("\\|", "").count("|") for line in lines} == {10}


@pytest.mark.parametrize("options", [(), ("--trials",), ("--only", "infrastructure")])
def test_text_is_safe_and_fits_whatever_names_and_errors_hold(
    shell: Shell, tmp_path: Path, options: tuple[str, ...]
) -> None:
    job = HarborJob(tmp_path / ("ｗｉｄｅ" * 12))
    for at in range(5):
        nasty = "\x1b[31mred\x1b]8;;http://evil\x07\u202e" + "界" * 60 + "\r\n" + "x" * 300
        job.trial(f"org/{nasty[:50]}{at}", error=("SandboxError", nasty), name=f"n\x1b[2J\n{at}{'w' * 120}__abcdef{at}")
    job.trial("org/fine", 1.0, files=PASSED)
    job.trial("org/short", error=("VerifierTimeoutError", "x"), phase="verify", name="n\x1b[2J\nx__abcdefg")
    job.write()
    code, out, _ = shell("triage", job.path, *options)
    assert code == 0
    assert not [char for char in out if not char.isprintable() and char != "\n"]
    assert [line for line in out.splitlines() if cell_len(line) > 80] == []
    if not options:
        assert "".join(out.split()).count("界") >= 60 + 5 * 20  # nothing of a wide text is lost where it is wrapped
        assert "/n x__abcdefg/exception.txt:2" in out
    code, out, _ = shell("tally", job.path)
    assert code == 0 and "\x1b" not in out and [line for line in out.splitlines() if cell_len(line) > 80] == []


def test_a_users_rules_are_used_named_and_kept_apart(shell: Shell, tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "a")
    job.trial("org/x", 0.0, files={**PASSED, "agent/a.log": "upstream connect error\n"})
    job.write()
    file = put(
        tmp_path / "rules.toml",
        '[[rule]]\nname = "ours"\npattern = "upstream connect error"\nwhere = "agent"\n'
        'class = "infrastructure"\ncause = "api"\n',
    )
    plain = rows(shell("triage", job.path, "--json")[1])
    ruled = rows(shell("triage", job.path, "--json", "--rules", file)[1])
    other = put(tmp_path / "other.toml", file.read_text().replace('"api"', '"network"'))
    assert rows(shell("triage", job.path, "--json", "--rules", other)[1])[0]["cause"] == "network"
    assert plain[0]["class"] == "completed" and "+" not in plain[0]["rules"]
    assert (ruled[0]["class"], ruled[0]["cause"], ruled[0]["rule"]) == ("infrastructure", "api", "user.ours")
    assert ruled[0]["rules"].startswith(plain[0]["rules"] + "+")
    assert rows(shell("triage", job.path, "--json")[1]) == plain  # the cache does not mix them
    put(file, '[[rule]]\nname = "ours"\npattern = "("\nclass = "nonsense"\n')
    code, out, err = shell("triage", job.path, "--rules", file)
    assert code == 2 and out == "" and err.count("\n") == 1 and "rules.toml" in err


def test_one_bad_file_is_one_finding_and_the_command_answers(shell: Shell, tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "a")
    job.trial("org/x", 1.0, files=PASSED)
    put(job.trial("org/y", 1.0) / "result.json", '{"task_name": "org/y", ')
    job.write()
    put(job.path / "config.json", "no json")
    code, out, err = shell("triage", job.path, "--json")
    assert code == 0 and [(row["class"], row["cause"]) for row in rows(out)] == [
        ("completed", ""), ("unreadable", "corrupt"),
    ]  # fmt: skip
    assert err.count("\n") == 1 and "config.json" in err


def test_a_verdict_that_rests_on_the_jobs_state_changes_with_it(shell: Shell, tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "a")
    job.trial("org/x", 1.0, files=PASSED)
    cut = job.trial("org/y", error=("CancelledError", ""), files=WORK)
    job.write(finished=False)
    expected = [("completed", ""), ("cancelled", "operator")]
    for _ in range(2):
        found = rows(shell("triage", job.path, "--json")[1])
        assert [(row["class"], row["cause"]) for row in found] == expected
    result = json.loads((job.path / "result.json").read_text())
    end = json.loads((cut / "result.json").read_text())["finished_at"][:19]  # the job's has no zone
    put(job.path / "result.json", result | {"finished_at": end})
    found = rows(shell("triage", job.path, "--json")[1])
    assert [(row["class"], row["cause"]) for row in found] == [("completed", ""), ("infrastructure", "runner")]


# --- tally ------------------------------------------------------------------------------------------------------------


def test_the_tally_of_a_notebooks_runs_gives_its_figures_each_under_the_rule_that_it_follows(
    shell: Shell, tmp_path: Path
) -> None:
    job = notebook_run(tmp_path / "run1")
    code, out, _ = shell("tally", job.path, "--json")
    found = {one["mode"]: one for one in json.loads(out)["modes"]}
    assert code == 0 and list(found) == list(MODES)
    figures = {name: (one["numerator"], one["denominator"]) for name, one in found.items()}
    assert figures["clean-only"] == (53, 69) and figures["infra-excluded-strict"] == (53, 85)
    assert figures["raw-old"] == (53, 89)
    strict = found["infra-excluded-strict"]
    assert strict["excluded"] == {"infrastructure/sandbox": 4}
    assert strict["value"] == pytest.approx(0.62353, abs=1e-5)
    assert [round(100 * limit, 1) for limit in strict["ci95"]] == [51.7, 71.9]
    keys = ["mode", "numerator", "denominator", "value", "excluded", "se_within", "se_across", "ci95", "pass_at"]
    assert list(strict)[: len(keys)] == keys and strict["se_within"] is None
    run2 = notebook_run(tmp_path / "run2", passed=4, failed=78, late=3, dead=4)
    second = {one["mode"]: one for one in json.loads(shell("tally", run2.path, "--json")[1])["modes"]}
    assert second["infra-excluded-strict"]["value"] == pytest.approx(4 / 85)
    assert second["raw-old"]["value"] == pytest.approx(0.045, abs=5e-4)


def test_a_tally_is_the_same_from_the_cache_and_follows_what_changes(shell: Shell, tmp_path: Path) -> None:
    job = notebook_run(tmp_path / "run1", passed=6, failed=3, late=2, dead=1)
    before = tree_hash(job.path)
    first = shell("tally", job.path, "--json")
    assert shell("tally", job.path, "--json") == first == shell("tally", job.path, "--json", "--no-cache")
    text = shell("tally", job.path)
    assert shell("tally", job.path) == text == shell("tally", job.path, "--no-cache")
    assert tree_hash(job.path) == before
    assert shell("tally", job.path, "--json", "--merge", "latest")[1] != first[1]
    assert shell("tally", job.path, "--json", "--task", "task-00")[1] != first[1]
    (job.trials[0] / "result.json").unlink()
    changed = shell("tally", job.path, "--json")
    assert changed[1] != first[1] and changed == shell("tally", job.path, "--json", "--no-cache")
    job.write(planned=20)
    assert json.loads(shell("tally", job.path, "--json")[1])["groups"][0]["missing"] == 8
    result = json.loads((job.path / "result.json").read_text())
    put(job.path / "result.json", result | {"n_total_trials": 30})
    missing = shell("tally", job.path, "--json")
    assert json.loads(missing[1])["groups"][0]["missing"] == 18
    cached = tmp_path / "cache" / "bench"
    for path in cached.glob("*.answer"):
        path.write_bytes(path.read_bytes().replace(b"infra-excluded", b"infra-excludeX"))
    assert shell("tally", job.path, "--json") == missing
    put(cached / "junk.answer", "x")
    for path in cached.iterdir():
        path.write_bytes(path.read_bytes()[:-3])
    assert shell("tally", job.path, "--json") == missing


def test_a_run_and_its_re_run_are_one_attempt_a_task(shell: Shell, tmp_path: Path) -> None:
    notebook_run(tmp_path / "jobs" / "full", passed=5, failed=2, late=0, dead=3)
    again = HarborJob(tmp_path / "jobs" / "mop", began=1.79e9)
    for at in (7, 8):
        again.trial(f"terminal-bench/task-{at:02}", 1.0, files=PASSED)
    again.write()
    _, out, _ = shell("tally", tmp_path / "jobs", "--json", "--mode", "infra-excluded")
    (mode,) = json.loads(out)["modes"]
    assert (mode["numerator"], mode["denominator"]) == (7, 9) and mode["excluded"] == {"infrastructure/sandbox": 1}
    _, out, _ = shell("tally", tmp_path / "jobs", "--mode", "infra-excluded")
    assert "merge.inferred" in out and "merged by latest-valid: " in out
    found = rows(shell("triage", tmp_path / "jobs", "--json")[1])
    assert sorted((row["task"][-2:], row["try"]) for row in found if row["task"][-2:] in ("07", "08")) == [
        ("07", 1), ("07", 2), ("08", 1), ("08", 2),
    ]  # fmt: skip


def test_tables_by_name_and_as_csv_and_markdown(shell: Shell, tmp_path: Path) -> None:
    job = notebook_run(tmp_path / "a", passed=3, failed=2, late=1, dead=1)
    other = notebook_run(tmp_path / "b", passed=2, failed=2, late=1, dead=1, agent="codex")
    _, out, _ = shell("tally", job.path, other.path, "--csv", "--table", "tasks")
    found = list(csv.DictReader(io.StringIO(out)))
    assert len(found) == 13 and {row["agent"] for row in found} == {"terminus-2", "codex"}
    assert found[0]["task"] == "task-00" and found[0]["mean"] in ("0.0", "1.0")
    _, out, _ = shell("tally", job.path, "--table", "tasks", "--mode", "training")
    assert "Tasks, by the mode training" in out and "Standard errors" not in out
    _, out, _ = shell("tally", job.path, "--markdown", "--table", "excluded")
    assert "| infra-excluded | infrastructure/sandbox | 1 |" in out
    _, out, _ = shell("tally", job.path)
    assert "Attempts that are left out by infra-excluded" in out and "infrastructure/sandbox" in out


# --- compare ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path) -> tuple[HarborJob, HarborJob]:
    """Runs of two agents on 40 tasks: 24 and 14 passed, 4 and 2 lost."""
    a = notebook_run(tmp_path / "a", passed=24, failed=12, late=0, dead=4, concurrent=3)
    b = HarborJob(tmp_path / "b", agent="codex", concurrent=8)
    for at in range(40):
        lost = at in (0, 1)
        b.trial(
            f"terminal-bench/task-{at:02}",
            None if lost else float(at % 3 == 0),
            error=DEAD if lost else None,
            files=WORK,
        )
    b.write()
    return a, b


def test_compare_says_who_is_ahead_by_how_much_and_how_sure_that_is(
    shell: Shell, two: tuple[HarborJob, HarborJob]
) -> None:
    a, b = two
    code, out, err = shell("compare", a.path, b.path, "--flips", "2")
    said = " ".join(out.split())
    assert code == 0 and err == ""
    assert "A is ahead of B by 32.4 points on 34 tasks; 95 % interval " in said
    assert "exact McNemar test: p = " in said and "by infra-excluded: " in said
    assert "A: infrastructure/sandbox: 4 tasks: task-36, task-37, task-38, task-39" in said
    assert "B: infrastructure/sandbox: 2 tasks: task-00, task-01" in said
    assert "concurrency: A 3; B 8." in said
    assert "A is better: 15 tasks" in out and "and 13 more (--flips 15, --json has all)" in out
    assert [line for line in out.splitlines() if cell_len(line) > 80] == []
    found = json.loads(shell("compare", a.path, b.path, "--json")[1])
    assert (found["tasks"], found["only_a"], found["only_b"]) == (34, 15, 4)
    assert found["effect"] == pytest.approx(-11 / 34) and found["p"] == pytest.approx(0.0192, abs=1e-4)
    assert found["ci95"][1] < 0 and found["test"] == "mcnemar-exact" and found["distinguishable"]
    assert len(found["better_a"]) == 15 and Path(found["better_a"][0]["paths_b"][0]).is_dir()
    assert set(found["modes"]) == set(MODES) and found["modes"]["raw-old"]["tasks"] == 40
    assert found["a"]["groups"] == {"terminus-2 openai/Qwen/Qwen3.8-27B-FP8": 40}
    rows_ = list(csv.DictReader(io.StringIO(shell("compare", a.path, b.path, "--csv")[1])))
    assert len(rows_) == 19 and {row["ahead"] for row in rows_} == {"A", "B"}
    assert "| infra-excluded | 34 |" in shell("compare", a.path, b.path, "--markdown")[1]


def test_a_comparison_is_the_same_from_the_cache_and_follows_what_changes(shell: Shell, tmp_path: Path) -> None:
    a, b = (
        notebook_run(tmp_path / name, passed=passed, failed=9 - passed, late=1, dead=1)
        for name, passed in (("a", 7), ("b", 2))
    )
    first = shell("compare", a.path, b.path, "--json")
    assert (
        first == shell("compare", a.path, b.path, "--json") == shell("compare", a.path, b.path, "--json", "--no-cache")
    )
    text = shell("compare", a.path, b.path)
    assert text == shell("compare", a.path, b.path) == shell("compare", a.path, b.path, "--no-cache")
    kept = set((tmp_path / "cache" / "bench").glob("*.answer"))
    assert kept
    found = json.loads(first[1])
    for argv, key, value in (
        ((b.path, a.path), "effect", -found["effect"]),
        ((a.path, b.path, "--mode", "clean-only"), "tasks", 9),
        ((a.path, b.path, "--task", "task-0[0-4]"), "tasks", 5),
        (("--side", a.path, "--side", b.path), "tasks", found["tasks"]),
        ((a.path, b.path, "--merge", "latest"), "tasks", found["tasks"]),
    ):
        for _ in range(2):
            assert json.loads(shell("compare", *argv, "--json")[1])[key] == pytest.approx(value)
    assert shell("compare", a.path, b.path, "--agent", "nobody")[0] == 2
    (b.trials[0] / "result.json").unlink()
    changed = shell("compare", a.path, b.path, "--json")
    assert changed != first and changed == shell("compare", a.path, b.path, "--json", "--no-cache")


def test_the_agents_of_one_directory_are_compared_and_a_side_may_be_several_directories(
    shell: Shell, two: tuple[HarborJob, HarborJob], tmp_path: Path
) -> None:
    a, b = two
    together = json.loads(shell("compare", tmp_path, "--json")[1])
    apart = json.loads(shell("compare", b.path, a.path, "--json")[1])
    assert together["a"]["name"].startswith("codex") and together["effect"] == apart["effect"] == pytest.approx(11 / 34)
    mop = HarborJob(tmp_path / "mop", began=1.79e9)
    for at in (36, 37):
        mop.trial(f"terminal-bench/task-{at}", 1.0, files=PASSED)
    mop.write()
    found = json.loads(shell("compare", "--side", a.path, mop.path, "--side", b.path, "--json")[1])
    assert found["tasks"] == 36 and found["excluded"]["A: infrastructure/sandbox"] == ["task-38", "task-39"]
    code, _, err = shell("compare", tmp_path, b.path)
    assert code == 2 and "holds 2 agents, models or datasets" in err and "--agent" in err and err.count("\n") == 1
    narrowed = json.loads(shell("compare", tmp_path, a.path, "--agent", "terminus-*", "--json")[1])
    assert narrowed["a"]["groups"].keys() == narrowed["b"]["groups"].keys()
    three = json.loads(shell("compare", a.path, b.path, a.path, "--json")[1])
    assert len(three) == 3 and all(one["p_holm"] >= one["p"] for one in three)


# --- all of them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("nonsense",), "unknown command"),
        (("triage",), "DIR"),
        (("triage", "{missing}"), "does not exist"),
        (("triage", "{empty}"), "holds no trial"),
        (("tally", "{empty}"), "a job's directory holds"),
        (("triage", "{job}", "--only", "broken"), "no class"),
        (("triage", "{job}", "--only", "no_samples"), "no class"),
        (("triage", "{job}", "--json", "--csv"), "not allowed"),
        (("triage", "{job}", "--rules", "{missing}"), "rules"),
        (("tally", "{job}", "--mode", "best"), "leaderboard"),
        (("tally", "{job}", "--merge", "best"), "latest-valid"),
        (("tally", "{job}", "--table", "best"), "no such table"),
        (("tally", "{job}", "--csv", "--table", "tasks", "--table", "usage"), "one table"),
        (("tally", "{job}", "--json", "--table", "tasks"), "--table"),
        (("compare",), "two runs"),
        (("compare", "{job}"), "holds one run"),
        (("compare", "{job}", "{missing}"), "does not exist"),
        (("compare", "{job}", "{job}", "--mode", "best"), "leaderboard"),
        (("compare", "{job}", "{job}", "--merge", "best"), "latest-valid"),
        (("compare", "{job}", "{job}", "--agent", "nobody"), "no trial is left"),
        (("compare", "{job}", "{job}", "--flips", "-1"), "--flips"),
    ],
)
def test_a_mistake_is_one_line_that_names_it_and_exit_code_2(
    shell: Shell, tmp_path: Path, argv: tuple[str, ...], said: str
) -> None:
    (tmp_path / "empty").mkdir()
    job = HarborJob(tmp_path / "job")
    job.trial("org/x", 1.0)
    job.write()
    places = {"missing": tmp_path / "missing", "empty": tmp_path / "empty", "job": job.path}
    code, out, err = shell(*(part.format(**places) for part in argv))
    assert code == 2 and out == ""
    assert said in err and err.count("\n") == 1


def test_help_teaches_classes_modes_rules_and_the_published_figures(shell: Shell) -> None:
    code, out, _ = shell()
    assert code == 2 and "triage" in out and "compare" in out
    assert shell("--help")[:2] == (0, out)
    texts = {}
    for name in ("triage", "tally", "compare", "cache"):
        with pytest.raises(SystemExit) as ended:
            shell(name, "--help")
        assert ended.value.code == 0
    capture = {name: _help(name) for name in ("triage", "tally", "compare", "cache")}
    texts = {name: " ".join(text.split()) for name, text in capture.items()}
    here = set(OutcomeClass) - {OutcomeClass.CAPTURE_LOSS, OutcomeClass.NO_LOGPROBS, OutcomeClass.NO_SAMPLES}
    assert all(f"{outcome.value} " in texts["triage"] for outcome in here)
    assert "atrx-vep-crispr" in texts["triage"] and "3 h 6 min" in texts["triage"]
    assert all(mode.rule in texts[name] for mode in MODES.values() for name in ("tally", "compare"))
    assert all(
        part in texts["tally"] for part in ("169/445", "not comparable", "24.6 %", "latest-valid", "first-graded")
    )
    assert "p = 0.17" in texts["compare"] and "does not mean that they are equal" in texts["compare"]
    for text in capture.values():
        assert "example" in text and [line for line in text.splitlines() if len(line) > 80] == []


def _help(name: str) -> str:
    argv = [sys.executable, "-m", "console", "bench", name, "--help"]
    return subprocess.run(
        argv, capture_output=True, text=True, check=True, env={"COLUMNS": "80", "HOME": "/tmp"}
    ).stdout


def test_triage_and_answers_that_were_kept_load_no_statistics(shell: Shell, tmp_path: Path) -> None:
    job = notebook_run(tmp_path / "a", passed=2, failed=1, late=0, dead=0)
    other = notebook_run(tmp_path / "b", passed=1, failed=2, late=0, dead=0)
    assert shell("tally", job.path)[0] == shell("compare", job.path, other.path)[0] == 0
    program = (
        "import sys; from console.bench import looked; looked.SETTLED = -3600; from console.cli import run; "
        "run(sys.argv[1:]); sys.stderr.write(' '.join({'scipy', 'numpy', 'textual', 'harbor'} & set(sys.modules)))"
    )
    env = {DIRECTORY_VARIABLE: str(tmp_path / "cache"), "HOME": str(tmp_path)}
    for command, *more in (("triage",), ("tally",), ("compare", str(other.path))):
        argv = [sys.executable, "-c", program, "bench", command, str(job.path), *more]
        found = subprocess.run(argv, capture_output=True, text=True, check=True, env=env)
        assert found.stderr == "" and "2" in found.stdout


def test_progress_is_one_line_of_a_terminals_stderr_that_goes_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    said = Terminal()
    monkeypatch.setattr(sys, "stderr", said)
    progress = bench_options.Progress()
    progress(1, tmp_path)
    progress.end()
    assert said.getvalue() == ""  # less than a second
    monkeypatch.setattr(bench_options, "PROGRESS_AFTER", -1.0)
    progress = bench_options.Progress()
    progress(1234, tmp_path / "evil\x1b[2J\nname")
    assert said.getvalue().startswith("\r\x1b[K1,234 trials read, ") and said.getvalue().count("\x1b") == 1
    assert "\n" not in said.getvalue()
    progress.end()
    assert said.getvalue().endswith("\r\x1b[K")
    progress = bench_options.Progress()
    progress(1, tmp_path)
    assert said.getvalue().rpartition("\x1b[K")[2].startswith("1 trial read, ")
    progress.end()
    quiet = io.StringIO()
    monkeypatch.setattr(sys, "stderr", quiet)
    progress = bench_options.Progress()
    progress(1234, tmp_path)
    progress.end()
    assert quiet.getvalue() == ""


def test_the_cache_command_tells_and_clears(shell: Shell, tmp_path: Path) -> None:
    job = notebook_run(tmp_path / "a", passed=2, failed=1, late=0, dead=0)
    assert shell("cache", "--json")[1] == json.dumps(
        {"place": str(tmp_path / "cache" / "bench"), "files": 0, "bytes": 0, "cleared": False}
    ) + "\n"  # fmt: skip
    shell("triage", job.path)
    held = json.loads(shell("cache", "--json")[1])
    assert held["files"] == 2 and held["bytes"] > 1000
    code, out, _ = shell("cache", "--clear")
    assert code == 0 and out.startswith("deleted: ") and json.loads(shell("cache", "--json")[1])["files"] == 0
    shell("triage", job.path, "--no-cache")
    assert json.loads(shell("cache", "--json")[1])["files"] == 0


def test_the_same_directory_twice_counts_once_and_is_told(shell: Shell, tmp_path: Path) -> None:
    job = notebook_run(tmp_path / "a", passed=2, failed=1, late=0, dead=0)
    code, out, err = shell("triage", job.path, tmp_path / "a" / ".." / "a", "--json")
    assert code == 0 and len(rows(out)) == 3 and "named twice" in err and err.count("\n") == 1
