"""Where a run's files of captured calls lie. Names are made of the engine's keys, never of what an agent said."""

from __future__ import annotations

import os
import re
from pathlib import Path

from console.records.capture_frames import PLAIN, SEALED, is_key, split_name, step_dir
from console.records.capture_streams import identity
from console.records.try_key import TryPlace, place_of

_STEP = re.compile(r"step-(\d{6,9})")
_EARLIER = re.compile(r"(.+)\.earlier-([1-9]\d{0,5})(?:\.zst)?")


def step_of(directory: str) -> int | None:
    """The step of a directory's name."""
    found = _STEP.fullmatch(directory)
    return int(found.group(1)) if found is not None else None


def earlier_files(plain: Path, number: int) -> tuple[Path, Path]:
    """The names under which the `number`th earlier file of a try is set aside, plain and sealed."""
    return plain.with_name(f"{plain.name}.earlier-{number}"), plain.with_name(f"{plain.name}.earlier-{number}.zst")


def find_trial_file(run_dir: Path | str, key: str) -> Path | None:
    """The file of a try, sealed or not; None when nothing was captured of it. Raises OSError."""
    if not is_key(key):
        return None
    place = place_of(key)
    steps = [step_dir(run_dir, place[0])] if place is not None else []
    for directory in [*steps, *_step_dirs(run_dir)]:
        for suffix in (SEALED, PLAIN):
            if identity(directory / (key + suffix)) is not None:
                return directory / (key + suffix)
    return None


def place_of_file(name: str) -> TryPlace | None:
    """Where in the run the try stands whose newest file has this name; None when the name does not say."""
    named = split_name(name)
    return place_of(named[0]) if named is not None else None


def trial_files(run_dir: Path | str, step: int | None = None) -> list[Path]:
    """The newest file of each try that calls were captured of, of one step or all, in order. Raises OSError."""
    directories = _step_dirs(run_dir) if step is None else [step_dir(run_dir, step)]
    found: list[Path] = []
    for directory in directories:
        keys: dict[str, str] = {}
        for name in _names(directory):
            split = split_name(name)
            if split is not None:
                keys[split[0]] = SEALED if SEALED in (split[1], keys.get(split[0])) else PLAIN
        found += [directory / (key + keys[key]) for key in sorted(keys, key=_natural)]
    return found


def earlier_trial_files(run_dir: Path | str, step: int | None = None) -> list[tuple[str, int, Path]]:
    """Key, number and path of the files that were set aside when their try was begun anew. Raises OSError."""
    found: dict[tuple[Path, str, int], Path] = {}
    for directory in _step_dirs(run_dir) if step is None else [step_dir(run_dir, step)]:
        for name in sorted(_names(directory)):  # of a try's two forms the sealed one is the last
            aside = _EARLIER.fullmatch(name)
            split = split_name(aside.group(1)) if aside is not None else None
            if aside is not None and split is not None and split[1] == PLAIN:
                found[directory, split[0], int(aside.group(2))] = directory / name
    return [(key, number, path) for (_, key, number), path in found.items()]


def _step_dirs(run_dir: Path | str) -> list[Path]:
    capture = Path(run_dir) / "capture"
    numbered = [(step, name) for name in _names(capture) if (step := step_of(name)) is not None]
    return [capture / name for _, name in sorted(numbered)]


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _natural(key: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d{1,9})", key)]
