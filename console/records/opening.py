"""Opens whatever a run left behind: a run directory, or a plain log directory of the cookbook."""

from __future__ import annotations

from pathlib import Path

from console.records.cookbook_log import is_cookbook_log
from console.records.cookbook_record import CookbookRecord
from console.records.run_dir import RunRecord


def is_plain_log(path: Path | str) -> bool:
    """Whether it is a cookbook log directory without a journal of ours."""
    directory = Path(path)
    try:
        return not (directory / "journal").is_dir() and directory.name != "journal" and is_cookbook_log(directory)
    except OSError:
        return False


def open_run(path: Path | str) -> RunRecord:
    """The recording in a directory. Raises RecordingError: there is none, or it cannot be read."""
    return CookbookRecord(path) if is_plain_log(path) else RunRecord(path)
