"""The directories of Harbor tasks, found without any heavy import."""

from __future__ import annotations

from pathlib import Path

from console.errors import UsageError


def find_tasks(tasks_dir: str | Path) -> list[Path]:
    """Every direct child directory that holds a `task.toml`, sorted by name.

    Raises:
        UsageError: the directory does not exist, or holds no task.
    """
    root = Path(tasks_dir).expanduser()
    if not root.is_dir():
        raise UsageError(f"config.dataset_builder.tasks_dir={tasks_dir}: no such directory")
    tasks = sorted(path for path in root.iterdir() if path.is_dir() and (path / "task.toml").is_file())
    if not tasks:
        raise UsageError(
            f"config.dataset_builder.tasks_dir={tasks_dir}: no task in it; each task is a directory with a task.toml"
        )
    return tasks
