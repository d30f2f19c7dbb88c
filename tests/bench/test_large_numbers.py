"""Numbers that nothing counted: a trial that records them has unknown figures, and every answer stands."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from harbor_jobs import HarborJob

from console.bench import answers, cache, looked
from console.bench.cache import JobCache
from console.bench.looked import look
from console.bench.model import Evidence, Judged
from console.bench.session import Session
from console.cli import run
from console.outcomes.classes import OutcomeClass
from console.records.harbor.jobs import read_job
from console.records.harbor.model import TrialRecord
from console.records.harbor.trials import read_trial

VALUES = {"minus": -1, "int64": 2**63, "uint64": 2**64, "float": 10**30, "below": -(2**63) - 1, "digits": 10**400}


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(cache.DIRECTORY_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(looked, "SETTLED", -3600.0)
    found = cache.cache_dir()
    assert found is not None
    return found


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def made(path: Path, value: int) -> HarborJob:
    """A job of which one trial holds `value` wherever a number may stand."""
    job = HarborJob(path)
    job.trial("org/other", 1.0)
    trial = job.trial("org/fix-git", 0.0)
    job.write()

    def change(document: dict[str, Any]) -> None:
        names = ("n_input_tokens", "n_cache_tokens", "n_output_tokens", "cost_usd")
        document["agent_result"] = dict.fromkeys(names, value)
        document["verifier_result"] = {"rewards": {"reward": value, "speed": -value}}
        document["config"]["agent"] |= {
            "kwargs": {"seed": value, "deep": [{"n": value}]},
            "override_timeout_sec": value,
        }
        document["config"]["environment"] |= {"override_memory_mb": value}

    rewrite(trial / "result.json", change)
    rewrite(path / "result.json", lambda document: document.update(n_total_trials=value))
    rewrite(path / "config.json", lambda document: document.update(n_attempts=value, n_concurrent_trials=value))
    return job


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_number_that_nothing_counted_is_read_as_unknown_or_kept_bounded(tmp_path: Path, value: int) -> None:
    job = made(tmp_path / "job", value)
    record = read_trial(job.path, job.trials[1])
    assert record.problem == ""
    assert (record.input_tokens, record.cached_tokens, record.output_tokens) == (None, None, None)
    assert record.rewards is not None and set(record.rewards) == {"reward", "speed"}
    expected = ("inf", "-inf") if value == 10**400 else (float(value), -float(value))
    assert (record.rewards["reward"], record.rewards["speed"]) == expected
    if value != -1:
        if value == 10**400:
            assert set(map(type, record.agent_kwargs.values())) == {str, list}
        else:
            assert record.agent_kwargs == {"seed": str(value), "deep": [{"n": str(value)}]}
            assert record.sandbox["memory_mb"] == str(value)
    msgspec.msgpack.encode(record, enc_hook=os.fspath)
    found = read_job(job.path)
    assert (found.attempts, found.concurrent) == (None, 3)  # the lock has it, too


def test_the_largest_number_is_kept_to_its_last_digit(tmp_path: Path) -> None:
    job = made(tmp_path / "job", 2**63 - 1)
    record = read_trial(job.path, job.trials[1])
    assert read_job(job.path).attempts is None  # a plan that nobody can have
    assert record.input_tokens == 2**63 - 1 and record.agent_kwargs["seed"] == 2**63 - 1


def test_tokens_of_steps_that_add_up_to_too_many_are_unknown(tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "job")
    trial = job.trial("org/a", 1.0, steps=[{"name": "one"}, {"name": "two"}])

    def change(document: dict[str, Any]) -> None:
        document["agent_result"] = None
        for step in document["step_results"]:
            step["agent_result"] = {"n_input_tokens": 2**62, "cost_usd": 1e308}

    rewrite(trial / "result.json", change)
    record = read_trial(job.path, trial)
    assert (record.input_tokens, record.cost_usd) == (None, None)


@pytest.mark.parametrize("value", [2**63 - 1, *VALUES.values()], ids=["largest", *VALUES])
def test_every_command_answers_for_a_job_with_such_a_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: int
) -> None:
    paths = [str(made(tmp_path / name, value).path) for name in "ab"]
    for argv in (["triage", *paths], ["triage", *paths, "--trials"], ["tally", *paths], ["compare", *paths]):
        for form in ([], ["--json"], ["--csv"], ["--markdown"]):
            for _ in range(2):  # the second time out of the cache
                assert run(["bench", *argv, *form]) == 0, argv + form
                said = capsys.readouterr()
                assert said.out and ("fix-git" in said.out or argv[0] != "triage" or not form), argv + form
                assert said.err == ""


def test_a_verdict_that_cannot_be_kept_is_given_all_the_same(tmp_path: Path, directory: Path) -> None:
    job = HarborJob(tmp_path / "job")
    for name in ("a", "b"):
        job.trial(f"org/{name}", 1.0)
    job.write()
    verdicts = [
        Judged(
            trial=TrialRecord(job=job.path, path=trial, name=trial.name, input_tokens=tokens),
            outcome=OutcomeClass.COMPLETED,
            evidence=Evidence(file="result.json"),
        )
        for trial, tokens in zip(job.trials, (2**64, 1))
    ]
    with JobCache(job.path, "r", directory) as kept:
        for verdict in verdicts:
            kept.put(look(verdict.trial.path), verdict)
    with JobCache(job.path, "r", directory) as kept:
        assert [kept.get(trial) for trial in job.trials] == [None, verdicts[1]]
    session = Session([job.path], cache=False)
    session.judged = lambda: iter(verdicts)  # type: ignore[method-assign]
    assert [one.trial.input_tokens for one in session.numbered()] == [2**64, 1]
    answers.keep(directory, "k", {"n": 2**64})
    assert answers.recall(directory, "k", dict) is None
