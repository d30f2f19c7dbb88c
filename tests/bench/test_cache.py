"""The cache of verdicts: it holds while nothing changed, and a damaged or foreign one is as good as none."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harbor_jobs import HarborJob, put, tree_hash

from console.bench import cache, looked
from console.bench.cache import JobCache
from console.bench.looked import look
from console.bench.model import Evidence, Judged
from console.cli import run
from console.commands import bench_triage_text
from console.outcomes.classes import OutcomeClass
from console.records.harbor.model import RecordedError, TrialRecord


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(cache.DIRECTORY_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(looked, "SETTLED", -3600.0)  # what a test has just written counts as left alone
    found = cache.cache_dir()
    assert found is not None
    return found


@pytest.fixture
def job(tmp_path: Path) -> HarborJob:
    made = HarborJob(tmp_path / "job")
    files = {"agent/sessions/log.txt": "one\n", "verifier/test-stdout.txt": "1 passed\n", "artifacts/a.bin": b"x"}
    made.trial("org/fix-git", 1.0, files=files)
    made.trial("org/other", 0.0, steps=[{"name": "one"}], files={"steps/one/agent/log.txt": "two\n"})
    made.write()
    return made


def judged(job: HarborJob, trial: Path) -> Judged:
    record = TrialRecord(
        job=job.path, path=trial, name=trial.name, task="org/fix-git", agent_kwargs={"a": [1, "ü", None]},
        errors=(RecordedError(type="X", message="m"),),
    )  # fmt: skip
    return Judged(trial=record, outcome=OutcomeClass.COMPLETED, evidence=Evidence(file="result.json", line=3, text="t"))


def keep(job: HarborJob, directory: Path, rules: str = "r") -> None:
    with JobCache(job.path, rules, directory) as kept:
        for trial in job.trials:
            kept.put(look(trial), judged(job, trial))


def known(job: HarborJob, directory: Path | None, rules: str = "r") -> list[Judged | None]:
    with JobCache(job.path, rules, directory) as kept:
        return [kept.get(trial) for trial in job.trials]


def test_what_was_kept_comes_back_as_it_was_and_the_job_stays_untouched(job: HarborJob, directory: Path) -> None:
    before = tree_hash(job.path)
    assert known(job, directory) == [None, None]
    keep(job, directory)
    assert known(job, directory) == [judged(job, trial) for trial in job.trials]
    assert known(job, directory, "other rules") == [None, None]
    assert known(job, None) == [None, None]
    assert tree_hash(job.path) == before


def _rewrite(path: Path) -> None:
    """The same size and the same times: only the clock of the inode tells."""
    seen = path.stat()
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    [
        lambda trial: _rewrite(trial / "result.json"),
        lambda trial: put(trial / "result.json", "{}"),
        lambda trial: put(trial / "exception.txt", "new"),
        lambda trial: put(trial / "agent" / "new.log", "new"),
        lambda trial: put(trial / "agent" / "sessions" / "log.txt", "two\n"),
        lambda trial: put(trial / "agent" / "sessions" / "new", "two\n"),
        lambda trial: (trial / "verifier" / "test-stdout.txt").unlink(),
        lambda trial: (trial / "config.json").rename(trial / "config.old"),
        lambda trial: (trial / "trial.log").chmod(0o600),
    ],
)
def test_any_change_below_a_trial_is_seen_and_concerns_only_that_trial(
    job: HarborJob, directory: Path, change: Callable[[Path], object]
) -> None:
    keep(job, directory)
    change(job.trials[0])
    assert known(job, directory) == [None, judged(job, job.trials[1])]


def test_a_change_within_a_step_is_seen_and_one_among_the_artifacts_does_not_matter(
    job: HarborJob, directory: Path
) -> None:
    keep(job, directory)
    put(job.trials[0] / "artifacts" / "b.bin", b"y")
    put(job.trials[1] / "steps" / "one" / "agent" / "log.txt", "three\n")
    assert known(job, directory) == [judged(job, job.trials[0]), None]


def test_what_changed_is_replaced_and_the_rest_is_carried_over(job: HarborJob, directory: Path) -> None:
    keep(job, directory)
    put(job.trials[0] / "exception.txt", "new")
    with JobCache(job.path, "r", directory) as kept:
        assert kept.get(job.trials[0]) is None
        kept.put(look(job.trials[0]), judged(job, job.trials[0]))
    assert None not in known(job, directory)
    (path,) = directory.iterdir()
    size = path.stat().st_size
    assert known(job, directory) and path.stat().st_size == size  # a look that finds everything writes nothing


def test_what_is_being_written_is_not_kept(job: HarborJob, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looked, "SETTLED", 3600.0)
    keep(job, directory)
    assert known(job, directory) == [None, None] and not list(directory.iterdir())
    monkeypatch.setattr(looked, "SETTLED", -3600.0)
    found = look(job.trials[0])
    put(job.trials[0] / "result.json", "{}")  # between the look and the verdict
    with JobCache(job.path, "r", directory) as kept:
        kept.put(found, judged(job, job.trials[0]))
    assert known(job, directory)[0] is None


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "foreign", "another version", "length"])
def test_a_damaged_or_foreign_file_is_ignored_and_written_anew(job: HarborJob, directory: Path, damage: str) -> None:
    keep(job, directory)
    (path,) = directory.iterdir()
    data = bytearray(path.read_bytes())
    match damage:
        case "cut":
            del data[-20:]
        case "flipped":
            data[-30] ^= 1
        case "emptied":
            data.clear()
        case "foreign":
            data[:] = b"SQLite format 3\0" * 100
        case "another version":
            data[:30] = data[:30].replace(b"cache 1", b"cache 9")
        case "length":
            data[-200:] = b"\xff" * 200
    path.write_bytes(data)
    assert known(job, directory) == [None, None]
    keep(job, directory)
    assert None not in known(job, directory)


def test_a_verdict_of_a_directory_that_was_replaced_is_forgotten(job: HarborJob, directory: Path) -> None:
    keep(job, directory)
    job.path.rename(job.path.with_name("moved"))
    again = HarborJob(job.path)
    again.trial("org/fix-git", 1.0, name=job.trials[0].name)
    assert known(again, directory) == [None]


def test_files_are_private_a_link_is_not_followed_and_others_files_stay(
    job: HarborJob, directory: Path, tmp_path: Path
) -> None:
    os.chmod(directory, 0o755)
    assert cache.cache_dir() == directory and stat.S_IMODE(directory.stat().st_mode) == 0o700
    keep(job, directory)
    (path,) = directory.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert known(job, directory) == [None, None]
    put(directory / "note.txt", "mine")
    assert cache.held()[0] == 1
    assert cache.clear()[0] == 1
    assert [one.name for one in directory.iterdir()] == ["note.txt"] and elsewhere.exists()
    assert cache.clear() == (0, 0)


def test_without_a_place_for_it_nothing_is_kept_and_nothing_fails(
    job: HarborJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "file", "no directory")
    monkeypatch.setenv(cache.DIRECTORY_VARIABLE, str(tmp_path / "file"))
    assert cache.cache_dir() is None
    keep(job, tmp_path / "gone")
    assert known(job, tmp_path / "gone") == [None, None]
    assert cache.clear() == (0, 0) and cache.held() == (0, 0)


def test_a_text_that_cannot_be_encoded_costs_only_its_own_entry(job: HarborJob, directory: Path) -> None:
    with JobCache(job.path, "r", directory) as kept:
        first = judged(job, job.trials[0])
        import msgspec

        kept.put(look(job.trials[0]), msgspec.structs.replace(first, cause="\udcff"))
        kept.put(look(job.trials[1]), judged(job, job.trials[1]))
    assert known(job, directory) == [None, judged(job, job.trials[1])]


def test_what_nobody_has_written_for_long_goes_when_something_is_written(job: HarborJob, directory: Path) -> None:
    old = put(directory / ("0" * 32 + ".trials"), "old")
    long_ago = time.time() - (cache.KEPT_DAYS + 1) * 86_400
    os.utime(old, (long_ago, long_ago))
    keep(job, directory)
    assert not old.exists()


def test_the_digest_of_the_code_names_the_code() -> None:
    assert cache.code_digest() == cache.code_digest() and len(cache.code_digest()) == 16
    parts = ["state/sanitize.py", "commands/bench_text.py", "bench/figures"]
    digests = [cache.code_digest(parts[:at]) for at in range(4)]
    assert len(set(digests)) == 4 and cache.code_digest() not in digests


def test_an_answer_in_words_goes_with_the_code_that_words_it(
    tmp_path: Path, job: HarborJob, directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The package is copied, so that its words can be changed beside its rules."""
    package = tmp_path / "copy" / "console"
    shutil.copytree(Path(cache.__file__).parents[1], package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(cache, "__file__", str(package / "bench" / "cache.py"))
    monkeypatch.setattr(looked, "SETTLED", -3600.0)

    def words() -> str:
        assert run(["bench", "triage", str(job.path)]) == 0
        return capsys.readouterr().out

    plain = words()
    assert words() == plain and list(directory.glob("*.answer"))
    monkeypatch.setattr(bench_triage_text, "class_meaning", lambda *of: "in other words")
    assert words() == plain, "the very same code has been asked"
    with (package / "commands" / "bench_triage_text.py").open("a") as file:
        file.write("# in other words\n")
    assert words() != plain


def test_a_link_in_a_trial_is_never_followed(job: HarborJob, directory: Path, tmp_path: Path) -> None:
    (job.trials[0] / "agent" / "loop").symlink_to(job.trials[0])
    put(tmp_path / "outside" / "a.txt", "x")
    (job.trials[0] / "verifier" / "out").symlink_to(tmp_path / "outside")
    keep(job, directory)
    put(tmp_path / "outside" / "a.txt", "changed")
    found = look(job.trials[0])
    assert found is not None and not [name for name in found.names if b"loop/" in name or b"out/" in name]
    assert None not in known(job, directory)
