"""The options that a run was started with, read again from its directory."""

from __future__ import annotations

from pathlib import Path

import msgspec

from console.control.runs import find_run
from console.errors import UsageError
from console.launching import OPTIONS_FILE
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


def recorded_options(run_dir: Path) -> RunOptions:
    """The options of a run's last engine; the run directory is where it lies now.

    Raises:
        UsageError: they are missing or cannot be read.
    """
    path = run_dir / OPTIONS_FILE
    try:
        options = RunOptions.from_json(path.read_bytes())
    except (OSError, UsageError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is damaged"
        raise UsageError(
            f"{path}: the run's options cannot be read ({why}); give all of them with quarterdeck train"
        ) from None
    given = tuple(dict.fromkeys([*options.given, "config.log_path"]))
    return msgspec.structs.replace(options, config=options.config | {"log_path": str(run_dir)}, given=given)
