"""Where themes, configs, tasks and the bundled model are: plain folders in a checkout, package data in a wheel."""

from __future__ import annotations

from pathlib import Path

from console.errors import UsageError

BUNDLED_MODEL = "midshipman"
"""Folder of the tiny terminal model."""
BUNDLED_OWNER = "quarterdeck"
BUNDLED_NAME = f"{BUNDLED_OWNER}/{BUNDLED_MODEL}"
"""The name that our gateways serve it under."""


def data_dir(name: str) -> Path:
    """The folder `themes` or `configs`. Raises `UsageError` when the installation is incomplete."""
    package = Path(__file__).resolve().parent
    for candidate in (package / "_data" / name, package.parent / name):
        if candidate.is_dir():
            return candidate
    raise UsageError(f"the folder {name!r} is missing from this installation: install quarterdeck again")


def configs_dir() -> Path:
    """Run configurations, trial files, bundled tasks and models."""
    return data_dir("configs")


def themes_dir() -> Path:
    """Theme files, one YAML a theme."""
    return data_dir("themes")


def models_dir() -> Path:
    """Bundled models, one Hugging Face directory each."""
    return configs_dir() / "models"


def tasks_dir() -> Path:
    """Bundled Harbor tasks."""
    return configs_dir() / "tasks"
