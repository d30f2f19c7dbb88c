"""`quarterdeck bench resume-check` as a shell sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from harbor_jobs import HarborJob, put, tree_hash
from rich.cells import cell_len

from console.bench.resume.versions import habits_of
from console.cli import run

Shell = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    def call(*argv: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["bench", "resume-check", *map(str, argv)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def job(path: Path, version: str, **changes: object) -> Path:
    """Three trials, one of which fails; its configuration and lock are of one piece."""
    made = HarborJob(path, version, environment="console.trials.bwrap:BwrapEnvironment", agent="nop", model=None)
    made.trial("bench/good", 1.0)
    made.trial("bench/bad", 0.0)
    made.trial("bench/dead", error="SandboxError")
    made.write(config={"retry": {"max_retries": 0}, **changes})
    lock = json.loads((path / "lock.json").read_text())
    put(path / "lock.json", lock | {"retry": {"exclude_exceptions": list(habits_of(version).unretried)}})
    return path


def test_harbor_itself_is_asked(shell: Shell, tmp_path: Path) -> None:
    path = job(tmp_path / "jobs" / "one", "0.26.0")
    put(path / "notes" / "mine.txt", "x")
    before = tree_hash(path)
    code, out, err = shell(path, "-f", "SandboxError")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0] == "harbor job resume keeps 2 trials, deletes 2 directories and runs 1 trial"
    assert "told by            Harbor itself" in lines
    assert "not trials, and deleted with all they hold: notes; move them out first" in out
    assert all(cell_len(line) <= 80 for line in lines)
    assert tree_hash(path) == before


def test_what_to_do_stands_alone(shell: Shell, tmp_path: Path) -> None:
    path = job(tmp_path / "jobs" / "one", "0.26.0")
    _, out, _ = shell(path, "-f", "SandboxError")
    lines = out.splitlines()
    first = lines[lines.index("what to do") + 1]
    assert first.startswith("  without touching the directory, what is missing runs in a job of its own"), out


def test_side_by_side_when_versions_differ(shell: Shell, tmp_path: Path) -> None:
    path = job(tmp_path / "jobs" / "one", "0.22.0", jobs_dir="jobs")
    (tmp_path / "here").mkdir()
    code, out, _ = shell(path, "--cwd", tmp_path / "here")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith("harbor job resume of 0.22.0 (which wrote it) runs 3 trials in")
    assert any(line.startswith("harbor job resume of 0.26.0 refuses (FileExistsError)") for line in lines)
    assert any(line.split() == ["results", "go", "elsewhere", "here"] for line in lines), out
    assert "retry.exclude_exceptions" in out and "mop-up" in out


def test_json_has_everything(shell: Shell, tmp_path: Path) -> None:
    path = job(tmp_path / "jobs" / "one", "0.22.0", jobs_dir="jobs")
    code, out, _ = shell(path, "--harbor", "0.22.0", "--cwd", tmp_path / "jobs", "--json", "-f", "AgentTimeoutError")
    told = json.loads(out)
    assert (code, told["v"], told["wrote"], told["filter"]) == (0, 1, "0.22.0", ["AgentTimeoutError"])
    [one] = told["predictions"]
    assert (one["version"], one["safe"], one["to_run"], one["again"]) == ("0.22.0", False, 3, 3)
    assert one["elsewhere"] and one["output_dir"] == str(tmp_path / "jobs" / "jobs" / "one")
    assert "is a result" in told["advice"][0]


def test_escapes_of_others_are_not_painted(shell: Shell, tmp_path: Path) -> None:
    path = job(tmp_path / "jobs" / "one", "0.25.0")
    (path / "evil\x1b[31m\nname").mkdir()
    _, out, _ = shell(path, "--harbor", "0.25.0")
    assert "\x1b" not in out and "evil" in out


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "DIR"),
        (("",), "empty path"),
        (("none",), "no directory"),
        ((".", "--harbor", "latest"), "a version like 0.22.0"),
        ((".", "--cwd", "none"), "no directory"),
    ],
)
def test_bad_usage(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = shell(*argv)
    assert (code, out) == (2, "") and said in err and len(err.splitlines()) == 1


def test_help_teaches(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["bench", "resume-check", "--help"])
    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert "Before 0.25" in out and "CancelledError" in out and "mop-up" in out
