"""Starting the engine of a benchmark run: as for training, a process of its own that answers once it listens."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from console.bench.running.options import BenchOptions
from console.errors import MissingExtraError, UsageError
from console.launching import Launch, start_engine


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
    told = f"run directory {run_dir}"
    return start_engine("console.engine.benchmark", run_dir, run_id, options.to_json(), owned=owned, told=told)
