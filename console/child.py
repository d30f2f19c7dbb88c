"""Modules of ours that run in processes of their own, started by their names."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def module_command(module: str) -> list[str]:
    """What starts a module; words of its own may follow."""
    # -P: whatever lies in the working directory, no file there is taken for a module of ours.
    return [sys.executable, "-P", "-m", module]


def importing_us(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables, with the directory that `console` is imported from, whatever the working directory is."""
    root, path = str(Path(__file__).resolve().parent.parent), variables.get("PYTHONPATH")
    return {**variables, "PYTHONPATH": f"{root}{os.pathsep}{path}" if path else root}
