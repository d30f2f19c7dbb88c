"""What is said before a resume of the steps since the last checkpoint is what the resume then does."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_runs import INFRA, RUNNING, RecordedRun

from console.journal import events as ev
from console.training import foreseen
from console.training.options import parse
from console.training.resume_check import Standing, check, standing

PAIR = {0: 1.0, 1: 0.0}


@pytest.fixture
def run(tmp_path: Path) -> RecordedRun:
    """A run of three steps, killed in the fourth; the weights that it began with are saved. A group was dropped."""
    recorded = RecordedRun(tmp_path / "run")
    recorded.engine()
    recorded.save(0)
    for step in range(3):
        recorded.begin(step, size=2)
        keys = recorded.group(step, 0, {**PAIR, 2: INFRA, 3: 0.5})
        recorded.group(step, 1, PAIR, reason="dropped")
        recorded.finish(step, keys)
    recorded.begin(3)
    recorded.group(3, 0, {0: 1.0, 1: RUNNING}, ended=False)
    return recorded


def at(run: RecordedRun) -> Standing:
    """Where it stands; it promises what will come."""
    found = standing(run.run_dir)
    assert found is not None
    assert list(found.again) == run.plan().replayed
    assert [*found.again, *found.anew] == [0, 1, 2] and bool(found.lost) == bool(found.anew)
    return found


def warned(run: RecordedRun) -> list[str]:
    options = parse(
        [
            "config.model_name=Qwen/Qwen3-8B", "config.learning_rate=1e-3", "config.max_tokens=64",
            f"config.log_path={run.run_dir}", f"config.dataset_builder.tasks_dir={run.run_dir}",
            f"harbor.trial_config={run.run_dir / 'none.json'}",
        ]
    )  # fmt: skip
    return [f.line() for f in check(options, run.run_dir) if f.code in ("resume.again", "resume.journal")]


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 10)


def test_steps_that_are_wholly_there_are_promised(run: RecordedRun) -> None:
    run.close()
    assert at(run).line().endswith("; steps 0 to 2 are applied again from what was captured")
    assert warned(run) == []


@pytest.mark.parametrize(
    ("lose", "why"),
    [
        (Path.unlink, "the file of its captured calls is gone"),
        (cut, "s1.g0.t3.y0.calls.zst: a compressed block at byte 0 is damaged (it is not whole)"),
    ],
)
def test_captured_files_that_are_lost(run: RecordedRun, lose: Callable[[Path], object], why: str) -> None:
    run.close()
    lose(run.file("s1.g0.t3.y0"))
    found = at(run)
    assert (found.again, found.anew) == ((0,), (1, 2)) and found.lost.startswith(f"step 1: s1.g0.t3.y0: {why}")
    assert found.line().endswith("; step 0 is applied again from what was captured; steps 1 to 2 are begun again")
    (warning,) = warned(run)
    assert warning.startswith(f"{run.run_dir}: step 1 was trained, and is begun again: s1.g0.t3.y0: {why}")


def test_files_that_are_not_trained_may_be_lost(run: RecordedRun) -> None:
    run.close()
    run.file("s1.g1.t0.y0").unlink()
    (failed,) = run.run_dir.glob("capture/*/s1.g0.t2.y0.calls")
    failed.unlink()
    assert at(run).again == (0, 1, 2)


def test_of_large_files_it_is_only_asked_whether_they_are_there(
    run: RecordedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreseen, "LOOK_BYTES", run.file("s0.g0.t0.y0").stat().st_size)
    run.close()
    cut(run.file("s1.g0.t3.y0"))
    found = standing(run.run_dir)
    assert found is not None and found.again == (0, 1, 2)
    run.file("s1.g0.t3.y0").unlink()
    assert at(run).anew == (1, 2)


@pytest.mark.parametrize("index", [True, False])
def test_a_journal_that_lost_its_batches(run: RecordedRun, index: bool) -> None:
    """The side file still tells that the steps were trained."""
    run.emit(*(ev.Note(text="some words") for _ in range(9)))
    run.close()
    (chunk,) = (run.run_dir / "journal").glob("*.zst")
    cut(chunk)
    if not index:
        chunk.with_name(chunk.name.replace(".jsonl.zst", ".idx")).unlink()
        assert warned(run)[0].startswith(f"{run.run_dir}/journal: is damaged: events at its end are missing, ")
        return
    found = at(run)
    assert (found.again, found.anew, found.lost) == ((), (0, 1, 2), "step 0: the journal lacks its batch")
    assert found.line().endswith("(checkpoint 000000); steps 0 to 2 are begun again")
    damaged, again = warned(run)
    assert damaged.startswith(f"{run.run_dir}/journal: is damaged: events 2 to ")
    assert f"; put its files back from a copy; quarterdeck export {run.run_dir} tells more" in damaged
    assert again.startswith(f"{run.run_dir}: step 0 was trained, and is begun again: the journal lacks its batch; ")


def test_a_journal_of_which_only_the_side_file_is_left(run: RecordedRun) -> None:
    run.close()
    for chunk in (run.run_dir / "journal").glob("0*"):
        chunk.unlink()
    (warning,) = warned(run)
    assert warning.startswith(f"{run.run_dir}/journal: is damaged: events at its end are missing, ")


def test_a_journal_that_lost_lines_of_a_batch(run: RecordedRun) -> None:
    (chunk,) = (run.run_dir / "journal").glob("0*.jsonl")
    lines = chunk.read_bytes().splitlines(keepends=True)
    (lost,) = [
        n for n, one in enumerate(lines) if b'"trial.finished"' in one and b'"step":1,"group":0,"trial":3' in one
    ]
    chunk.write_bytes(b"".join([*lines[:lost], b"x" * (len(lines[lost]) - 1) + b"\n", *lines[lost + 1 :]]))
    found = at(run)
    assert (found.again, found.lost) == ((0,), "step 1: the journal lacks a part of its batch")
    assert warned(run)[0].startswith(f"{run.run_dir}/journal: is damaged: event {lost + 1} is missing, ")
    run.close()


def test_a_line_that_a_kill_has_torn_is_no_loss(run: RecordedRun) -> None:
    (chunk,) = (run.run_dir / "journal").glob("0*.jsonl")
    with chunk.open("ab") as file:
        file.write(b'{"type":"no')
    assert at(run).again == (0, 1, 2) and warned(run) == []
    run.close()


def test_without_a_checkpoint_random_adapters_are_others_after_the_first_step(run: RecordedRun) -> None:
    (run.run_dir / "checkpoints.jsonl").unlink()
    run.close()
    found = at(run)
    assert (found.again, found.anew) == ((0,), (1, 2)) and "began at random" in found.lost


def test_what_was_sampled_from_other_weights_is_not_promised(run: RecordedRun) -> None:
    run.save(1, named=True)  # of the weights after three steps
    run.close()
    found = standing(run.run_dir)
    assert found is not None and (found.again, found.anew) == ((), (1, 2)) and run.plan().replayed == []
    assert found.lost == "step 1: it was sampled from other weights, or the journal does not say from which"
