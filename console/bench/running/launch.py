"""Starting the engine of a benchmark run: as for training, a process of its own that answers once it listens."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

from console.bench.running.options import BenchOptions
from console.errors import MissingExtraError, UsageError
from console.launching import Launch


def require_harbor() -> None:
    """Raises `MissingExtraError` when Harbor, which the extra `engine` brings, is not installed."""
    if importlib.util.find_spec("harbor") is None:
        raise MissingExtraError(
            "this command needs the extra `engine` (harbor missing): pip install 'quarterdeck[engine]'"
        )


def begin_benchmark(options: BenchOptions, run_id: str, *, owned: bool) -> Launch:
    """Tell an engine to run this job.

    Harbor runs where this process is, so that relative paths in the job mean what they mean for `harbor run`.

    Args:
        owned: the run ends when this process does.

    Raises:
        MissingExtraError: Harbor is not installed; UsageError: the run directory cannot be used.
    """
    require_harbor()
    run_dir = Path(options.run_dir)
    if run_dir == Path(options.job_dir) or Path(options.job_dir) in run_dir.parents:
        raise UsageError(
            f"run directory {run_dir}: lies inside Harbor's job directory, where a resume deletes it; move it"
        )
    options_file = run_dir / f"options.{run_id}.{os.getpid()}.json"
    with _prepared(run_dir, options, options_file) as log:
        announce_read, announce_write = os.pipe()
        owner_read, owner_write = os.pipe() if owned else (None, None)
        # -P: whatever lies where the user is, no file there is taken for a module of ours.
        command = [sys.executable, "-P", "-m", "console.engine.benchmark", "--run-dir", str(run_dir)]
        command += ["--run-id", run_id, "--options", str(options_file), "--announce-fd", str(announce_write)]
        passed = [announce_write]
        if owner_read is not None:
            command += ["--owner-fd", str(owner_read)]
            passed.append(owner_read)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=passed,
            env=_environment(),
        )
    for fd in passed:
        os.close(fd)
    return Launch(process, announce_read, owner_write, options_file, run_dir, run_id)


def _prepared(run_dir: Path, options: BenchOptions, options_file: Path) -> IO[bytes]:
    """The directory with the options in it, and the engine's open log. Raises `UsageError` when it is not possible."""
    try:
        run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(options_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(options.to_json())
        return os.fdopen(os.open(run_dir / "engine.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
    except OSError as error:
        raise UsageError(
            f"run directory {run_dir}: cannot be written ({error.strerror or error}); choose another one"
        ) from None


def _environment() -> dict[str, str]:
    """Ours, with the directory that `console` is imported from, whatever the working directory is."""
    root = str(Path(__file__).resolve().parents[3])
    path = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{path}" if path else root}
