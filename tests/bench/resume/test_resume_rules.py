"""The rules by which versions of Harbor go on with a job, told from constructed directories without any Harbor."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harbor_jobs import HarborJob, put, tree_hash

from console.bench.resume import Prediction, predict
from console.bench.resume.advice import advice_of, alike, is_safe, verdict_of
from console.bench.resume.comparing import differences, plain
from console.bench.resume.versions import habits_of, numbers
from console.errors import UsageError

TASKS = ("bench/a", "bench/b", "bench/c")
PLAIN = {"retry": {"max_retries": 0}}


@pytest.fixture(autouse=True)
def no_harbor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.bench.resume.predicting.installed_version", lambda: "")


Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A job of three graded trials in `jobs/base`, resumed with its own version unless it is changed."""

    def build(version: str = "0.22.0", *, relative: bool = True, **config: Any) -> Path:
        job = HarborJob(tmp_path / "jobs" / "base", version)
        for task in TASKS:
            job.trial(task, 1.0)
        where = {"jobs_dir": "jobs"} if relative else {}
        path = job.write(config=PLAIN | where | config)
        if job.since("0.6.0"):
            retry = {"max_retries": 0, "exclude_exceptions": list(habits_of(version).unretried)}
            edit(path / "lock.json", lambda value: value.update(retry=retry))
        for trial in job.trials:
            if relative:
                edit(trial / "config.json", lambda value: value.update(trials_dir="jobs/base"))
        return path

    return build


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads(path.read_text())
    change(value)
    put(path, value)


def trial(job: Path, task: str) -> Path:
    return next(path for path in sorted(job.iterdir()) if path.is_dir() and path.name.startswith(f"{task}__"))


def told(job: Path, version: str, **more: Any) -> Prediction:
    return predict(job, version=version, cwd=more.pop("cwd", job.parents[1]), **more)


@pytest.mark.parametrize("version", ["0.6.4", "0.14.0", "0.18.0", "0.20.0", "0.22.0", "0.24.0", "0.25.0"])
def test_unchanged(make: Make, version: str) -> None:
    # Mounts as texts are no matter for the version that wrote them.
    job = make(version)
    before = tree_hash(job)
    prediction = told(job, version)
    assert verdict_of(prediction) == "keeps 3 trials and runs nothing", prediction
    assert is_safe(prediction) and tree_hash(job) == before


@pytest.mark.parametrize(
    ("wrote", "reads"),
    [("0.14.0", "0.18.0"), ("0.18.0", "0.22.0"), ("0.22.0", "0.18.0"), ("0.24.0", "0.25.0"), ("0.25.0", "0.26.0")],
)
def test_another_release_expects_another_lock(make: Make, wrote: str, reads: str) -> None:
    """By its schema, or by the exceptions that it does not try again."""
    prediction = told(make(wrote), reads)
    assert prediction.refusal is not None and prediction.refusal.stage == "run"
    assert prediction.refusal.error == "FileExistsError" and len(prediction.kept) == 3


def test_what_differs_is_named(make: Make) -> None:
    job = make("0.25.0")
    edit(job / "lock.json", lambda lock: lock.update(retry={"max_retries": 0, "exclude_exceptions": ["XError"]}))
    edit(job / "lock.json", lambda lock: lock.update(schema_version=2))
    prediction = told(job, "0.25.0")
    assert prediction.refusal is not None
    lines = prediction.refusal.differs
    assert "schema_version: 2 -> 3" in lines
    assert any(line.startswith('retry.exclude_exceptions: without "XError" and with "Agent') for line in lines), lines


@pytest.mark.parametrize(("version", "again"), [("0.24.0", True), ("0.24.1.dev3", True), ("0.25.0", False)])
def test_from_another_directory(make: Make, tmp_path: Path, version: str, again: bool) -> None:
    job = make("0.24.0" if again else "0.25.0")
    edit(trial(job, "a") / "result.json", lambda result: result.update(exception_info={"exception_type": "XError"}))
    (tmp_path / "here").mkdir()
    prediction = told(job, version, cwd=tmp_path / "here", filter_types=["XError"])
    assert prediction.elsewhere == again
    assert [each.reason for each in prediction.deleted] == ["filtered"]
    assert prediction.to_run == (3 if again else 1)
    assert {each.task.rsplit("/", 1)[-1] for each in prediction.again} == ({"b", "c"} if again else set())
    if again:
        assert prediction.output_dir == str(tmp_path / "here" / "jobs" / "base")
        assert f"type it in {tmp_path}" in advice_of([prediction])[0]


def test_a_job_that_is_there_already_goes_on_instead(make: Make, tmp_path: Path) -> None:
    job = make("0.22.0")
    copy = Path(shutil.copytree(job, tmp_path / "copy"))
    (trial(job, "b") / "result.json").unlink()
    prediction = predict(copy, version="0.22.0", cwd=tmp_path)
    assert prediction.elsewhere and prediction.to_run == 1
    assert any("already" in note for note in prediction.notes)


def test_a_job_without_a_name_gets_a_new_one(make: Make) -> None:
    job = make("0.22.0")
    edit(job / "config.json", lambda config: config.pop("job_name"))
    assert told(job, "0.22.0").elsewhere
    assert not told(job, "0.25.0").elsewhere


def test_before_016_it_stops_at_the_first_broken_result(make: Make) -> None:
    job = make("0.14.0")
    (trial(job, "b") / "result.json").write_text("{")
    (trial(job, "c") / "result.json").unlink()
    old, new = told(job, "0.14.0"), told(job, "0.16.0")
    assert old.refusal is not None and (old.refusal.stage, old.refusal.error) == ("start", "ValidationError")
    assert old.deleted == ()
    # Without a filter the broken result is met later, when the directories before it may be deleted.
    late = told(job, "0.14.0", filter_types=[])
    assert late.refusal is not None and late.refusal.stage == "plan"
    assert [each.reason for each in new.deleted] == ["no_result"]
    assert [each.reason for each in new.left] == ["corrupt_result"]


def test_old_locks_are_compared_whole_or_not_at_all(make: Make) -> None:
    job = make("0.1.45")
    for name in ("a", "b", "c"):
        (job.parents[1] / "tasks" / name).mkdir(parents=True)
    assert told(job, "0.5.0").refusal is None
    assert (
        habits_of("0.5.0").lock_schema is None and habits_of("0.7.0").lock_exact and not habits_of("0.8.0").lock_exact
    )


def test_legacy_places_of_options(make: Make) -> None:
    """Concurrency below `orchestrator` is the same concurrency."""
    job = make("0.6.4")

    def move(config: dict[str, Any]) -> None:
        config["orchestrator"] = {
            "n_concurrent_trials": config.pop("n_concurrent_trials"),
            "retry": config.pop("retry"),
        }

    edit(job / "config.json", move)
    assert told(job, "0.6.4").refusal is None
    edit(job / "config.json", lambda config: config["orchestrator"].update(n_concurrent_trials=9))
    refusal = told(job, "0.6.4").refusal
    assert refusal is not None and refusal.differs == ("n_concurrent_trials: 3 -> 9",)


def test_a_filter_names_types_and_a_run_has_none(make: Make) -> None:
    job = make("0.25.0")
    for task, kind in (("a", "CancelledError"), ("b", "ReadTimeout")):
        info = {"exception_type": kind}
        edit(trial(job, task) / "result.json", lambda result, info=info: result.update(exception_info=info))
    assert [each.exception for each in told(job, "0.25.0").deleted] == ["CancelledError"]
    assert [each.exception for each in told(job, "0.25.0", filter_types=["ReadTimeout"]).deleted] == ["ReadTimeout"]
    config = json.loads((job / "config.json").read_text())
    assert told(job, "0.25.0", config=config).deleted == ()


def test_a_second_run_with_another_configuration(make: Make) -> None:
    job = make("0.25.0")
    config = json.loads((job / "config.json").read_text())
    (trial(job, "a") / "result.json").unlink()
    same = told(job, "0.25.0", config=config)
    assert (same.way, same.to_run, same.refusal) == ("run", 1, None)
    config["agents"][0]["kwargs"] = {"api_base": "http://two"}
    other = told(job, "0.25.0", config=config)
    assert other.refusal is not None and other.refusal.error == "FileExistsError"
    assert other.refusal.differs == ('agents.0.kwargs: not set -> {"api_base": "http://two"}',)
    # It stops before any directory is deleted.
    assert other.deleted == ()


def test_no_secret_is_told(make: Make) -> None:
    job = make("0.25.0")

    def change(config: dict[str, Any]) -> None:
        config["agents"][0]["kwargs"] = {"api_key": "sk-abcdefghijklmnop", "header": "Bearer abcdefghijkl"}
        config["agents"][0]["env"] = {"PLAIN": "hunter2hunter2", "OPENAI_API_KEY": "sk-a****nop"}

    edit(job / "config.json", change)
    prediction = told(job, "0.25.0")
    assert prediction.refusal is not None and prediction.refusal.differs
    said = repr(prediction)
    assert not any(secret in said for secret in ("abcdefgh", "hunter2"))
    assert any("agents.0.env.OPENAI_API_KEY was written masked" in note for note in prediction.notes)


def test_directories_with_any_name(make: Make, tmp_path: Path) -> None:
    job = make("0.25.0")
    (job / "evil\x1b]0;x\x07\nname").mkdir()
    (job / "loop").symlink_to(job / "loop")
    (job / "file").write_text("x")
    prediction = told(job, "0.25.0")
    assert [each.reason for each in prediction.deleted] == ["not_a_trial"]
    assert not is_safe(prediction)
    assert not any("\x1b" in line or "\n" in line for line in advice_of([prediction]))


def test_a_link_to_a_trial_counts_and_to_a_directory_stops(make: Make, tmp_path: Path) -> None:
    job = make("0.25.0")
    target = tmp_path / "kept"
    found = trial(job, "a")
    found.rename(target)
    found.symlink_to(target)
    assert len(told(job, "0.25.0").kept) == 3
    (target / "result.json").unlink()
    refusal = told(job, "0.25.0").refusal
    assert refusal is not None and refusal.error == "OSError"


def test_what_cannot_be_read_whole_is_said(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.bench.resume.reading.RESULT_LIMIT", 100)
    prediction = told(make("0.25.0"), "0.25.0")
    assert any("more than the 100" in line for line in prediction.unsure)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"datasets": 7, "agents": "x", "n_attempts": "many"}', "null", "\ufeff{}"]
)
def test_a_broken_configuration_is_an_answer(make: Make, text: str) -> None:
    job = make("0.25.0")
    (job / "config.json").write_text(text)
    assert told(job, "0.25.0").refusal is not None


def test_what_is_no_job(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no directory"):
        predict(tmp_path / "none")
    (tmp_path / "mine").mkdir()
    with pytest.raises(UsageError, match=r"no config\.json"):
        predict(tmp_path)


def test_agreement_of_versions(make: Make) -> None:
    job = make("0.22.0")
    assert alike(told(job, "0.22.0"), told(job, "0.24.0"))
    assert not alike(told(job, "0.22.0"), told(job, "0.25.0"))


def test_versions() -> None:
    assert numbers("0.22.1.dev202609020403") == (0, 22, 1) and numbers("x") == ()
    assert [habits_of(each).lock_schema for each in ("0.16.9", "0.17.0", "0.20.9", "0.21.0")] == [1, 2, 2, 3]
    assert habits_of("9.9").rebinds and not habits_of("0.24.9").rebinds
    assert len(habits_of("0.14.0").unretried) == 5 and len(habits_of("0.24.0").unretried) == 9


def test_defaults_and_what_is_none() -> None:
    assert plain({"delete": True, "env": {}, "kwargs": {"a": None}, "x": 1.0}) == {"kwargs": {"a": None}, "x": 1.0}
    assert plain({"delete": False}) == {"delete": False}
    assert differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == ["a.1.b: 2 -> 3"]
    assert differences({"a": 1}, {}) == ["a: 1 -> not set"]
