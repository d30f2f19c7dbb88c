"""What Harbor would do with a job directory, told without touching it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from console.bench.resume.model import DEFAULT_FILTER, Prediction


def predict(
    job_dir: Path,
    *,
    version: str | None = None,
    filter_types: Sequence[str] = DEFAULT_FILTER,
    cwd: Path | None = None,
    config: dict[str, Any] | None = None,
) -> Prediction:
    """What one version of Harbor would do with a job directory. Nothing is written into it.

    Args:
        job_dir: the job's directory.
        version: of Harbor, like "0.22.0"; None: the one that is installed here.
        filter_types: exception types whose trials are deleted first; empty: none. A run has no such filter.
        cwd: where the command would be typed; None: here.
        config: the job as `harbor run -c` would be given it; None: `harbor job resume -p DIR`.

    Raises:
        UsageError: no such directory, or one that is no job's.
    """
    raise NotImplementedError
