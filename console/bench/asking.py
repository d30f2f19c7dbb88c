"""Asking the installed Harbor something, in a process of its own: its import is heavy, and may fail."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from console.child import importing_us, module_command
from console.errors import QuarterdeckError


def ask_module(
    module: str, question: bytes, seconds: float, variables: Mapping[str, str] = os.environ, cwd: Path | None = None
) -> bytes:
    """What the module, which reads the question from its standard input, writes to its standard output.

    Args:
        seconds: how long it may take; variables: of the environment that it has; cwd: where it works, None for here.

    Raises:
        QuarterdeckError: Harbor is not there, cannot be loaded, or did not answer; one line.
    """
    quiet = {"HARBOR_TELEMETRY": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    try:
        done = subprocess.run(
            module_command(module),
            input=question,
            capture_output=True,
            cwd=cwd,
            env=importing_us(variables) | quiet,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise QuarterdeckError(f"Harbor did not answer within {seconds:.0f} s") from None
    except OSError as error:
        raise QuarterdeckError(f"Harbor cannot be asked: {error.strerror}") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise QuarterdeckError(f"Harbor cannot be asked: {said[-1][:300]}")
    return done.stdout
