"""The options that a run was started with, read again from its directory."""

from __future__ import annotations

from pathlib import Path

from console.control.runs import find_run
from console.errors import UsageError
from console.launching import OPTIONS_FILE, recorded_options
from console.training.options import RunOptions


def run_dir_of(query: str) -> Path:
    """The directory of the run that is meant: by id, name, or directory. Raises `UsageError`, `RecordingError`."""
    path = Path(query).expanduser()
    if (path / OPTIONS_FILE).is_file():  # one that never began is no run yet
        return path.resolve()
    return Path(find_run(query).run_dir).resolve()


def options_of(query: str, words: list[str]) -> RunOptions:
    """The options of the run that `--resume` names, in the directory where it lies now.

    Args:
        words: the other words of the command line, which change them.

    Raises:
        UsageError: there is no such run, its options cannot be read, or a word does not go with `--resume`.
    """
    for word in words:
        if word.endswith(".toml") and "=" not in word:
            raise UsageError(f"{word}: --resume takes the run's own options; give what changes as key=value")
        if word.startswith("config.log_path="):
            raise UsageError(f"{word}: --resume goes on where the run lies; quarterdeck fork starts another one")
    return recorded_options(run_dir_of(query))
