"""The checkpoints that a resume can take, whatever a kill or an editor left of their file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from console.errors import RecordingError
from console.records.checkpoint_list import list_checkpoints
from console.records.cookbook import checkpoint_rows, last_checkpoint, last_checkpoint_batch

FIRST: dict[str, Any] = {"name": "000002", "batch": 2, "state_path": "tinker://m/weights/000002", "weights": "w"}
LAST: dict[str, Any] = {"name": "000004", "batch": 4, "state_path": "tinker://m/weights/000004", "rolling": True}


def write(run_dir: Path, *lines: str) -> Path:
    (run_dir / "checkpoints.jsonl").write_text("\n".join([json.dumps(FIRST), json.dumps(LAST), *lines]))
    return run_dir


@pytest.mark.parametrize(
    "line",
    [
        '{"name": "0000', "", "null", "[1]", "7", "\x00" * 40, "[" * 100_000,
        json.dumps(LAST | {"state_path": None}), json.dumps(LAST | {"state_path": ""}),
        json.dumps(LAST | {"state_path": 5}), json.dumps(LAST | {"batch": True}), json.dumps(LAST | {"batch": "5"}),
        json.dumps({"name": "000005", "batch": 5, "sampler_path": "tinker://m/sampler_weights/000005"}),
        json.dumps({"name": "old", "state_path": "tinker://m/weights/old"}),
    ],
    ids=lambda line: line[:60],
)  # fmt: skip
def test_a_line_that_no_resume_can_take_is_passed_over(tmp_path: Path, line: str) -> None:
    assert checkpoint_rows(write(tmp_path, line)) == [FIRST, LAST]
    assert last_checkpoint(tmp_path) == LAST and last_checkpoint_batch(tmp_path) == 4
    listed = [(c.name, c.step, c.kind) for c in list_checkpoints(tmp_path)]
    assert listed == [("000002", 2, ""), ("000004", 4, "rolling")]


def test_a_run_begins_at_the_last_line_whatever_its_step(tmp_path: Path) -> None:
    assert last_checkpoint(write(tmp_path, json.dumps(FIRST))) == FIRST


def test_a_run_without_the_file_has_none(tmp_path: Path) -> None:
    for run_dir in (tmp_path, tmp_path / "gone"):
        assert (checkpoint_rows(run_dir), last_checkpoint(run_dir), last_checkpoint_batch(run_dir)) == ([], None, None)


@pytest.mark.parametrize("read", [checkpoint_rows, last_checkpoint, last_checkpoint_batch, list_checkpoints])
def test_a_file_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path, read: Any) -> None:
    (tmp_path / "checkpoints.jsonl").mkdir()
    with pytest.raises(RecordingError, match=r"checkpoints\.jsonl: cannot be read"):
        read(tmp_path)
