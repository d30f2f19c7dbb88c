"""`quarterdeck bench mop-up` as a shell sees it: what it shows, asks and refuses. It starts nothing here."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harbor_jobs import HarborJob, put, tree_hash
from rich.cells import cell_len

from console.bench.lineage import FILE
from console.cli import run
from console.commands import bench_mop_up

BWRAP = "console.trials.bwrap:BwrapEnvironment"
DEAD = ("SandboxError", "the sandbox was not found")
Shell = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Runs `bench mop-up`: exit code, standard output, standard error."""
    monkeypatch.setenv("QUARTERDECK_CACHE_DIR", str(tmp_path / "cache"))

    def call(*argv: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["bench", "mop-up", *map(str, argv)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def job(tmp_path: Path) -> Path:
    made = HarborJob(tmp_path / "jobs" / "run", attempts=2, agent="nop", model=None, environment=BWRAP)
    for _ in range(2):
        made.trial("tb/dead", error=DEAD)
        made.trial("tb/sound", 1.0)
    made.trial("tb/late", 0.0, error=("AgentTimeoutError", "Agent execution timed out after 60.0 seconds"))
    return made.write()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_it_shows(shell: Shell, job: Path) -> None:
    code, out, err = shell(job, "--dry-run", "--n-concurrent", 1)
    assert code == 0 and not err
    lines = out.splitlines()
    assert any(line.split()[:3] == ["dead", "2", "infrastructure/sandbox"] and "was not" in line for line in lines)
    assert any(line.split()[:3] == ["late", "1", "agent_timeout"] for line in lines)
    assert "  2 attempts completed: stands, and is not run again" in lines
    assert f"  {job}-mop-up-1"[-70:] in out.replace("..", "") and "2 trials: 1 task, 2 attempts of each" in out
    assert "changed: n_concurrent_trials: 3 -> 1" in out
    assert all(cell_len(line) <= 80 for line in lines)


@pytest.mark.parametrize("width", [46, 62, 80, 120])
def test_why_an_attempt_is_left_out_is_there_to_its_end(
    shell: Shell, job: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(bench_mop_up, "columns", lambda: width)
    made = HarborJob(job.parent / "other", agent="nop", model=None, environment=BWRAP)
    made.trial("tb/a-task-whose-name-is-rather-long", error=("AgentLoopError", "it went round in circles"))
    made.trial("tb/dead", error=("SandboxError", "the sandbox was not found where " + "it had been left, " * 40))
    _, out, _ = shell(made.write(), "--dry-run")
    lines = out.splitlines()
    assert all(cell_len(line) <= width for line in lines), out
    left = " ".join(" ".join(lines[next(n for n, line in enumerate(lines) if line.startswith("left out")) :]).split())
    for word in ("--class", "takes", "it"):
        assert word in left.split("new job")[0].split(), out
    assert "AGENT" not in out.split(), "one agent needs no column"
    again = out.split("left out")[0]
    assert again.count("it had been") < 12, "a text of others is not told to its end"


def test_the_plan_as_json(shell: Shell, job: Path) -> None:
    before = tree_hash(job.parent)
    code, out, err = shell(job, "--dry-run", "--json")
    found = json.loads(out)
    assert code == 0 and not err and found["v"] == 1 and found["job"] == str(job)
    assert [(one["task"], one["class"], one["cause"]) for one in found["run"]] == [
        ("tb/dead", "infrastructure", "sandbox")
    ] * 2
    assert found["run"][0]["evidence"]["text"].startswith("SandboxError")
    assert [one["class"] for one in found["left"]] == ["agent_timeout"]
    (planned,) = found["jobs"]
    assert (planned["dir"], planned["tasks"], planned["attempts"], planned["trials"]) == (
        f"{job}-mop-up-1", ["tb/dead"], 2, 2,
    )  # fmt: skip
    assert tree_hash(job.parent) == before, "a dry run writes nothing"


def test_it_asks(shell: Shell, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = shell(job)
    assert code == 2 and "--yes" in err
    begun: list[Any] = []
    monkeypatch.setattr(bench_mop_up, "_run", lambda args, plan, watch: begun.append(plan) or 0)
    for answer, number, ended in (("\n", 0, 2), ("no\n", 0, 2), ("", 0, 2), ("y\n", 1, 0), ("YES\n", 2, 0)):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        code, out, err = shell(job)
        assert code == ended and not out and len(begun) == number
        assert "run these 2 trials? [y/N]" in err and ("nothing was started" in err) is (answer.lower()[:1] != "y")
    assert shell(job, "--yes")[0] == 0 and len(begun) == 3


def test_nothing_to_do(shell: Shell, tmp_path: Path) -> None:
    made = HarborJob(tmp_path / "run")
    made.trial("tb/a", 1.0)
    path = made.write()
    code, out, err = shell(path, "--yes", "--headless")
    assert code == 0 and "nothing to run again: 1 attempt completed" in err
    last = json.loads(out.splitlines()[-1])
    assert (last["type"], last["status"], last["exit_code"]) == ("done", "completed", 0)
    assert shell(path, "--dry-run")[:2][0] == 0


def test_a_dry_run_refuses_what_the_start_would_in_words_of_a_mop_up(shell: Shell, job: Path) -> None:
    before = tree_hash(job.parent)
    words = (job, "--api-base", "http://127.0.0.1:1/v1")
    code, out, _ = shell(*words, "--dry-run")
    said = " ".join(out.split())
    assert code == 2 and "changed: agents.0.base_url: not set -> http://127.0.0.1:1/v1" in said
    assert "error: agents.0.kwargs: nop of Harbor" in said and "does not support base_url" in said
    code, out, _ = shell(*words, "--dry-run", "--json")
    assert code == 2 and json.loads(out)["findings"][0]["code"] == "bench.kwargs"
    code, out, err = shell(*words, "--yes", "--plain")
    last = err.splitlines()[-1]
    assert (code, out) == (2, "") and "leave out what changes it (--api-base" in last and "job file" not in last
    assert tree_hash(job.parent) == before


def test_hostile_names_are_made_safe(shell: Shell, tmp_path: Path) -> None:
    made = HarborJob(tmp_path / "jo\x1b[31mb", agent="nop", model=None, environment=BWRAP)
    made.trial("tb/a\x1b]0;x\x07\nb\u202e", error=("SandboxError", "gone \x1b[2J"))
    path = made.write()
    put(tmp_path / "bad\x1b[1m" / FILE, "{")
    code, out, err = shell(path, "--dry-run")
    assert code == 0 and "infrastructure" in out
    assert not {"\x1b", "\x07", "\u202e"} & set(out + err)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--class", "strange"], "no class"),
        (["--class", "completed"], "--task NAME --force"),
        (["--class", "configuration"], "--mended"),
        (["--force"], "--task"),
        (["--ceiling", "0"], "at least 1"),
        (["--json", "--yes"], "--dry-run"),
        (["--key-name", "sk-this-is-a-key"], "never a key"),
        (["--agent-env", "A=b"], "${VARIABLE}"),
        (["--set", "agent.model_name=x"], "--force-change"),
        (["--headless", "--plain"], "not allowed"),
    ],
)
def test_refused(shell: Shell, job: Path, argv: list[str], said: str) -> None:
    before = tree_hash(job.parent)
    code, out, err = shell(job, *argv, *([] if "--json" in argv else ["--dry-run"]))
    assert code == 2 and not out and said in err and err.count("\n") == 1
    assert "this-is-a-key" not in err
    assert tree_hash(job.parent) == before


def test_no_job(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "nowhere"):
        code, _, err = shell(path, "--dry-run")
        assert code == 2 and "job directory" in err


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["bench", "mop-up", "--help"])
    said = capsys.readouterr().out
    for word in ("--class", "agent_timeout", "--mended", "accepted as final", "lineage", "--api-base", "examples"):
        assert word in said
