"""Reading a job: a file in Harbor's own words (JobConfig, YAML or JSON), with some of its values replaced.

What comes out is plain data that names every path absolutely: the engine has a working directory of its own, and a job
that is resumed from elsewhere must find the same tasks. Whether Harbor takes the values is asked of Harbor itself, in
`harbor_view`; here only the form is looked at.
"""

from __future__ import annotations

import copy
import os
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from console.bench.running.yaml_text import LARGEST, TextError, read_json, read_text, scalar
from console.errors import UsageError
from console.resources import configs_dir

_TEXTS = frozenset(
    {"job_name", "model_name", "name", "import_path", "base_url", "api_base", "jobs_dir", "path", "repo"}
)
"""Keys whose value is text, whatever it looks like, but for `null`, which is none."""
_EVERY = {"agent": "agents", "dataset": "datasets", "task": "tasks"}
"""`agent.KEY=VALUE` sets it for each agent of the job."""
_LISTS = tuple(_EVERY.values())
_PATHS = {"datasets": ("path", "registry_path"), "tasks": ("path",)}
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")


def presets() -> dict[str, Path]:
    """The bundled job files by name, e.g. `local`."""
    folder = configs_dir() / "jobs"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))} if folder.is_dir() else {}


def find_job(word: str) -> Path:
    """The file that a command line names: a path, or the name of a bundled one.

    Raises:
        UsageError: there is no such file.
    """
    path = Path(word).expanduser()
    if path.is_file():
        return path
    bundled = presets()
    if word in bundled:
        return bundled[word]
    if path.is_dir():
        raise UsageError(f"{word}: is a directory; name a job file, or with bench triage the job directory")
    known = f"; bundled ones: {', '.join(bundled)}" if bundled else ""
    raise UsageError(f"{word}: there is no such job file{known}")


def read_job(path: str | Path, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """A job as Harbor takes it, as plain data.

    `jobs_dir` is absolute and `job_name` set. Paths of datasets and tasks are absolute: below the working directory, as
    Harbor takes them, or, if they are not there, below the file's own directory.

    Args:
        path: of the file; overrides: `KEY=VALUE` with dotted keys (`n_attempts=5`, `agents.0.kwargs.api_base=URL`;
            `agent.`, `dataset.` and `task.` stand for each one). The value is YAML; `null` is as if it were left out.

    Raises:
        UsageError: the file cannot be read, is none, or an override does not fit. One line, with the key.
    """
    path = Path(path)
    job = _read(path)
    for word in overrides:
        override(job, word)
    return settle(job, path.resolve().parent)


def settle(job: Mapping[str, Any], beside: Path | None = None, now: float | None = None) -> dict[str, Any]:
    """A copy with absolute paths and a name. `beside`: where the file lies; now: seconds since 1970, for the name.

    Raises:
        UsageError: `jobs_dir` or `job_name` cannot be one.
    """
    settled: dict[str, Any] = copy.deepcopy(dict(job))
    given = job.get("jobs_dir")
    if given is not None and (not isinstance(given, str) or not given.strip()):
        raise UsageError(f"jobs_dir={given!r}: must be the path of a directory")
    settled["jobs_dir"] = _absolute(given or "jobs")
    name = job.get("job_name")
    if name is None or name == "":
        settled["job_name"] = _new_name(job, now)
    elif not isinstance(name, str) or "/" in name or "\0" in name or name in (".", "..") or name != name.strip():
        raise UsageError(f"job_name={name!r}: must be the name of one directory, without / or blanks at its ends")
    for part, keys in _PATHS.items():
        for entry in settled[part] if isinstance(job.get(part), list) else []:
            if isinstance(entry, dict) and not entry.get("repo") and not entry.get("git_url"):
                for key in keys:
                    if isinstance(entry.get(key), str):
                        entry[key] = _found(entry[key], beside)
    return settled


def override(job: dict[str, Any], word: str) -> None:
    """Replace one value of the job in place.

    Raises:
        UsageError: the word is no KEY=VALUE, or the key leads nowhere.
    """
    key, equals, text = word.partition("=")
    parts = key.split(".")
    if not equals or not key or not all(parts):
        raise UsageError(f"{word!r}: is no KEY=VALUE, e.g. n_concurrent_trials=1 or agents.0.kwargs.api_base=URL")
    named = parts[-1] in _TEXTS and text != "null"
    value = text if named or "env" in parts[:-1] else scalar(text)
    if parts[0] in _EVERY and len(parts) > 1:
        every = job.setdefault(_EVERY[parts[0]], [{}] if parts[0] == "agent" else [])
        if not isinstance(every, list) or not every:
            raise UsageError(f"{key}: the job has no {_EVERY[parts[0]]}; write {_EVERY[parts[0]]} in the file")
        for index in range(len(every)):
            _put(every, [str(index), *parts[1:]], copy.deepcopy(value), key)
        return
    _put(job, parts, value, key)


def _put(within: Any, parts: list[str], value: Any, key: str) -> None:
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        where = ".".join(parts[:number]) or "the job"
        if isinstance(within, dict):
            if last:
                within[part] = value
            elif part in _LISTS and number == 0 and part not in within:
                raise UsageError(f"{key}: the job has no {part}; write {part} in the file")
            else:
                if within.get(part) is None:
                    within[part] = {}
                within = within[part]
        elif isinstance(within, list):
            if not part.isdecimal() or int(part) >= len(within):
                raise UsageError(f"{key}: {where} is a list of {len(within)}; name one by its number, from 0")
            if last:
                within[int(part)] = value
            else:
                within = within[int(part)]
        else:
            raise UsageError(f"{key}: {where} is a single value, it has nothing below it")


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(4 * LARGEST + 1)
        text = data.decode("utf-8-sig")
    except OSError as problem:
        raise UsageError(f"{path}: {problem.strerror or problem}; name a job file that can be read") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is no text in UTF-8; a job file is YAML or JSON") from None
    try:
        job = read_json(text) if path.suffix.lower() == ".json" else read_text(text)
    except TextError as problem:
        raise UsageError(f"{path}: {problem}") from None
    if not isinstance(job, dict):
        what = "is empty" if job is None else "holds no mapping"
        raise UsageError(f"{path}: {what}; a job file has Harbor's keys, such as agents, datasets and environment")
    return job


def _new_name(job: Mapping[str, Any], now: float | None) -> str:
    """Agent, model and time: what tells jobs apart in a listing. Harbor's own would be the time alone."""
    words = []
    agents = job.get("agents")
    first = agents[0] if isinstance(agents, list) and len(agents) == 1 and isinstance(agents[0], dict) else {}
    for key in ("name", "model_name"):
        word = first.get(key)
        if isinstance(word, str) and word:
            # Harbor cuts its own keys at "__".
            words.append(re.sub("_+", "_", _UNSAFE.sub("-", word.rsplit("/", 1)[-1])).strip("-_.")[:40])
    words.append(time.strftime("%Y%m%d-%H%M%S", time.localtime(now)))
    return "-".join(word for word in words if word)


def _absolute(text: str) -> str:
    """`..` is resolved by name alone: the directory may not exist yet."""
    return os.path.normpath(Path.cwd() / Path(text).expanduser())


def _found(text: str, beside: Path | None) -> str:
    here = Path(_absolute(text))
    if beside is None or here.exists():
        return str(here)
    there = Path(os.path.normpath(beside / Path(text).expanduser()))
    return str(there if there.exists() else here)
