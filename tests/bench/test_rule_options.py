"""`--rules` and the paths beside it: what is no file, what is empty, and overrides that concern nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from harbor_jobs import HarborJob

from console.bench import looked
from console.bench.cache import DIRECTORY_VARIABLE
from console.cli import run

OVERRIDE = '[[override]]\ntrial = "{}"\nclass = "infrastructure"\ncause = "sandbox"\nwhy = "power cut"\n'


@pytest.fixture(autouse=True)
def cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "cache"))


def made(path: Path, *tasks: str) -> str:
    job = HarborJob(path)
    for task in tasks:
        job.trial(f"org/{task}", 1.0, name=f"{task}__x")
    job.write()
    return str(path)


def call(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    code = run(["bench", *map(str, argv)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_rule_file_that_is_no_regular_file_is_called_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = made(tmp_path / "a", "one")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    for name, said in (
        ("a", "no regular file"),
        ("pipe", "no regular file"),
        ("link", "no regular file"),
        ("broken", "there is no such file"),
        ("nothing", "there is no such file"),
    ):
        code, out, err = call(capsys, "triage", job, "--rules", tmp_path / name)
        assert (code, out, err.count("\n")) == (2, "", 1) and said in err and str(tmp_path / name) in err


@pytest.mark.parametrize(
    "argv",
    [
        ("triage", ""),
        ("triage", "{job}", ""),
        ("tally", ""),
        ("compare", "{job}", ""),
        ("compare", "--side", "{job}", "", "--side", "{job}"),
        ("triage", "{job}", "--rules", ""),
    ],
)
def test_an_empty_path_is_refused_and_is_not_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]
) -> None:
    job = made(tmp_path / "a", "one")
    monkeypatch.chdir(job)
    code, out, err = call(capsys, *(part.format(job=job) for part in argv))
    assert (code, out) == (2, "") and "an empty path" in err and err.count("\n") == 1
    assert call(capsys, "triage", ".")[0] == 0


@pytest.mark.parametrize("command", ["triage", "tally", "compare"])
def test_an_override_that_concerns_no_trial_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    paths = [made(tmp_path / "a", "one", "two"), made(tmp_path / "b", "one", "three")]
    rules = tmp_path / "rules.toml"
    rules.write_text("".join(OVERRIDE.format(glob) for glob in ("two__*", "b/three__?", "tow__*", "*__x", "c/one__x")))
    for form in ([], ["--json"], ["--no-cache", "--task", "one"]):
        code, out, err = call(capsys, command, *paths, "--rules", rules, *form)
        assert code == 0 and out
        assert err == (
            "quarterdeck: override 3 (tow__*) matched no trial\nquarterdeck: override 5 (c/one__x) matched no trial\n"
        )
    assert call(capsys, "compare", "--rules", rules)[2].count("\n") == 1


RULE = '[[rule]]\nname = "{}"\npattern = "{}"\nclass = "{}"\nwhere = ["exception", "trial.log"]\norder = "{}"\n'


@pytest.mark.parametrize("command", ["triage", "tally", "compare"])
def test_a_rule_that_decides_on_no_trial_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setattr(looked, "SETTLED", -3600.0)
    paths = [made(tmp_path / "a", "one", "two"), made(tmp_path / "b", "one", "three")]
    (tmp_path / "b" / "three__x" / "trial.log").write_text("a power cut\n")
    rules = tmp_path / "rules.toml"
    rules.write_text(
        RULE.format("cut", "power cut", "infrastructure", "before")
        + RULE.format("typo", "powre cut", "infrastructure", "before")
        + RULE.format("late", "power", "infrastructure", "before")
        + OVERRIDE.format("two__x")
    )
    said = "decided on no trial: its pattern is in no exception and no trial.log, or another rule decides first\n"
    for form in (["--json"], [], [], ["--task", "one"], ["--no-cache"], ["--json"]):
        code, out, err = call(capsys, command, *paths, "--rules", rules, *form)
        assert code == 0 and out
        assert err == f"quarterdeck: rule 2 (typo) {said}quarterdeck: rule 3 (late) {said}"
    assert call(capsys, command, *paths)[2] == ""


def test_a_rule_that_would_score_a_trial_without_a_reward_has_matched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = HarborJob(tmp_path / "a")
    job.trial("org/x", error=("SandboxError", "gone"))
    job.write()
    rules = tmp_path / "rules.toml"
    rules.write_text(RULE.format("ours", "gone", "completed", "before"))
    code, out, err = call(capsys, "triage", job.path, "--rules", rules)
    assert (code, err) == (0, "") and "infrastructure/sandbox" in out


def test_a_rule_file_that_was_moved_is_the_evidence_where_it_lies_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(looked, "SETTLED", -3600.0)
    job = made(tmp_path / "a", "one")
    old, new = tmp_path / "old.toml", tmp_path / "new.toml"
    old.write_text(OVERRIDE.format("one__x"))
    for form in (["--json"], [], ["--json"]):
        assert "old.toml" in call(capsys, "triage", job, "--rules", old, *form)[1]
    old.rename(new)
    for form in (["--json"], [], ["--json"]):
        out = call(capsys, "triage", job, "--rules", new, *form)[1]
        assert "new.toml" in out and "old.toml" not in out
