"""Job directories as people leave them: copies of one real job, each changed in one way, and what is typed then."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

TASKS = ("alpha", "beta", "gamma")
ATTEMPTS = 2
TOML = """schema_version = "1.4"
[agent]
timeout_sec = 30
[verifier]
timeout_sec = 30
[environment]
network_mode = "public"
"""
OLD_TOML = 'version = "1.0"\n[agent]\ntimeout_sec = 30\n[verifier]\ntimeout_sec = 30\n'


def job_config(environment: str) -> dict[str, Any]:
    """A job of six trials, of which those of gamma fail."""
    return {
        "job_name": "base",
        "jobs_dir": "jobs",
        "n_attempts": ATTEMPTS,
        "n_concurrent_trials": 2,
        "environment": {"import_path": environment},
        "agents": [
            {
                "import_path": "resume_parts:Still",
                "model_name": "openai/m",
                "kwargs": {"api_base": "http://one"},
            }
        ],
        "datasets": [{"path": "tasks"}],
    }


def write_tasks(root: Path, toml: str = TOML, names: tuple[str, ...] = TASKS) -> None:
    """Tasks whose verifier passes everything."""
    for name in names:
        task = root / "tasks" / name
        (task / "tests").mkdir(parents=True)
        (task / "environment").mkdir()
        (task / "environment" / "Dockerfile").write_text("FROM scratch\n")
        (task / "task.toml").write_text(toml)
        (task / "instruction.md").write_text("fail\n" if name == "gamma" else f"do {name}\n")
        (task / "tests" / "test.sh").write_text("echo 1 > /logs/verifier/reward.txt\n")


class Site:
    """A copy of the job and its tasks: `job` may be moved, `cwd` and `types` are what the command is typed with."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.job = root / "jobs" / "base"
        self.cwd = root
        self.types: list[str] | None = None
        self.run: dict[str, Any] | None = None

    def trials(self, task: str = "") -> list[Path]:
        return sorted(path for path in self.job.iterdir() if path.is_dir() and path.name.startswith(task))

    def edit(self, path: Path, change: Callable[[dict[str, Any]], None]) -> None:
        value = json.loads(path.read_text())
        change(value)
        path.write_text(json.dumps(value, indent=4))

    def raised(self, trial: Path, kind: str) -> None:
        def change(result: dict[str, Any]) -> None:
            info = {"exception_type": kind, "exception_message": "", "exception_traceback": "", "occurred_at": NOW}
            result["exception_info"] = info

        self.edit(trial / "result.json", change)


NOW = "2026-01-01T00:00:00"
Scene = Callable[[Site], None]


def endpoint(*where: str) -> Scene:
    """The model's address edited in the job's configuration, those of its trials, its lock."""

    def change(site: Site) -> None:
        files = {
            "job": [site.job / "config.json"],
            "trials": [trial / "config.json" for trial in site.trials()],
            "lock": [site.job / "lock.json"],
        }
        for name in where:
            for path in files[name]:
                path.write_text(path.read_text().replace("http://one", "http://two"))

    return change


def unchanged(site: Site) -> None:
    pass


def renamed(site: Site) -> None:
    site.job = site.job.rename(site.root / "jobs" / "other")


def moved(site: Site) -> None:
    target = site.root / "flat"
    site.job.rename(target)
    site.job = target


def copied_beside(site: Site) -> None:
    site.job = Path(shutil.copytree(site.job, site.root / "copy"))


def other_cwd(site: Site) -> None:
    site.cwd = site.root / "elsewhere"
    site.cwd.mkdir()
    shutil.rmtree(site.trials("alpha")[0])


def other_cwd_with_tasks(site: Site) -> None:
    other_cwd(site)
    shutil.copytree(site.root / "tasks", site.cwd / "tasks")


def broken_results(site: Site) -> None:
    one, two = site.trials("alpha")[0], site.trials("beta")[0]
    (one / "result.json").write_text("")
    text = (two / "result.json").read_text()
    (two / "result.json").write_text(text[: len(text) // 2])


def strange_results(site: Site) -> None:
    one, two = site.trials("alpha")[0], site.trials("beta")[0]
    (one / "result.json").write_bytes(b"\xff\xfe{}")
    site.edit(two / "result.json", lambda result: result.pop("task_checksum"))


def half_written(site: Site) -> None:
    (site.trials("beta")[1] / "result.json").unlink()


def user_directory(site: Site) -> None:
    (site.job / "notes").mkdir()
    (site.job / "notes" / "thoughts.txt").write_text("three days of work")


def duplicate(site: Site) -> None:
    shutil.copytree(site.trials("alpha")[0], site.job / "alpha__kept")


def concurrency(site: Site) -> None:
    site.edit(site.job / "config.json", lambda config: config.update(n_concurrent_trials=1))


def concurrency_and_lock(site: Site) -> None:
    concurrency(site)
    site.edit(site.job / "lock.json", lambda lock: lock.update(n_concurrent_trials=1))


def cancelled(site: Site) -> None:
    site.raised(site.trials("alpha")[0], "CancelledError")


def filtered(site: Site) -> None:
    cancelled(site)
    site.types = ["SandboxError"]


def filtered_and_refused(site: Site) -> None:
    filtered(site)
    endpoint("job")(site)


def no_config(site: Site) -> None:
    (site.job / "config.json").unlink()


def broken_config(site: Site) -> None:
    (site.job / "config.json").write_text('{"job_name": ')


def task_changed(site: Site) -> None:
    half_written(site)
    (site.root / "tasks" / "beta" / "instruction.md").write_text("do beta better\n")


def task_added(site: Site) -> None:
    shutil.copytree(site.root / "tasks" / "alpha", site.root / "tasks" / "delta")


def task_added_without_lock(site: Site) -> None:
    task_added(site)
    (site.job / "lock.json").unlink()


def task_removed(site: Site) -> None:
    shutil.rmtree(site.root / "tasks" / "alpha")


def dataset_gone(site: Site) -> None:
    shutil.rmtree(site.root / "tasks")
    half_written(site)


def attempts(site: Site) -> None:
    site.edit(site.job / "config.json", lambda config: config.update(n_attempts=3))
    (site.job / "lock.json").unlink()


def fewer_attempts(site: Site) -> None:
    site.edit(site.job / "config.json", lambda config: config.update(n_attempts=1))


def broken_lock(site: Site) -> None:
    (site.job / "lock.json").write_text("{}")


def broken_job_result(site: Site) -> None:
    half_written(site)
    (site.job / "result.json").write_text("")


def no_job_result(site: Site) -> None:
    half_written(site)
    (site.job / "result.json").unlink()


def no_trial_config(site: Site) -> None:
    (site.trials("beta")[0] / "config.json").unlink()


def other_schema(site: Site) -> None:
    site.edit(site.job / "lock.json", lambda lock: lock.update(schema_version=lock["schema_version"] + 1))


def linked_directory(site: Site) -> None:
    (site.root / "data").mkdir()
    (site.job / "data").symlink_to(site.root / "data")


def timeouts(site: Site) -> None:
    site.edit(site.job / "config.json", lambda config: config.update(agent_timeout_multiplier=4.0))


def empty_job(site: Site) -> None:
    for trial in site.trials():
        (trial / "result.json").unlink()


def run_again(site: Site, **changes: Any) -> None:
    """The job is started a second time, with a configuration that names its directory."""
    config = json.loads((site.root / "job.json").read_text())
    site.run = {**config, "jobs_dir": str(site.root / "jobs"), **changes}


def run_half_written(site: Site) -> None:
    half_written(site)
    cancelled(site)
    run_again(site)


def run_concurrency(site: Site) -> None:
    half_written(site)
    run_again(site, n_concurrent_trials=1)


def run_endpoint(site: Site) -> None:
    half_written(site)
    run_again(site)
    assert site.run is not None
    site.run["agents"][0]["kwargs"]["api_base"] = "http://two"


def run_no_config(site: Site) -> None:
    (site.job / "config.json").unlink()
    half_written(site)
    run_again(site)


SCENES: dict[str, Scene] = {
    "run again": run_again,
    "run again, half-written": run_half_written,
    "run again, concurrency": run_concurrency,
    "run again, endpoint": run_endpoint,
    "run again, no config.json": run_no_config,
    "unchanged": unchanged,
    "endpoint in the job's configuration": endpoint("job"),
    "endpoint in all configurations": endpoint("job", "trials"),
    "endpoint everywhere": endpoint("job", "trials", "lock"),
    "renamed": renamed,
    "moved": moved,
    "copied beside": copied_beside,
    "another cwd": other_cwd,
    "another cwd with tasks": other_cwd_with_tasks,
    "empty and truncated results": broken_results,
    "strange results": strange_results,
    "half-written": half_written,
    "a user's directory": user_directory,
    "duplicate": duplicate,
    "concurrency": concurrency,
    "concurrency and lock": concurrency_and_lock,
    "cancelled": cancelled,
    "filtered": filtered,
    "filtered and refused": filtered_and_refused,
    "no config.json": no_config,
    "broken config.json": broken_config,
    "task changed": task_changed,
    "task added": task_added,
    "task added, no lock": task_added_without_lock,
    "task removed": task_removed,
    "dataset gone": dataset_gone,
    "more attempts": attempts,
    "fewer attempts": fewer_attempts,
    "broken lock": broken_lock,
    "broken result of the job": broken_job_result,
    "no result of the job": no_job_result,
    "no configuration of a trial": no_trial_config,
    "lock of another schema": other_schema,
    "a link to a directory": linked_directory,
    "time-outs": timeouts,
    "nothing finished": empty_job,
}


class Said(NamedTuple):
    """What a prediction and an outcome have in common."""

    error: str
    deleted: tuple[str, ...]
    stayed: tuple[str, ...]
    runs: tuple[str, ...]
    where: str


def outcome_of(site: Site, told: dict[str, Any]) -> Said:
    """`where`: the directory that got new trials, "" without any."""
    where = {str(Path(path).parent) for path, _ in told["new"]}
    return Said(
        error=told["error"],
        deleted=tuple(told["deleted"]),
        stayed=tuple(told["stayed"]),
        runs=tuple(sorted(task for _, task in told["new"])),
        where=", ".join(sorted(where)),
    )


def prediction_of(prediction: Any) -> Said:
    """The same of a `Prediction`."""
    runs = [run.task for run in prediction.runs for _ in range(run.trials)]
    return Said(
        error=prediction.refusal.error if prediction.refusal else "",
        deleted=tuple(each.name for each in prediction.deleted),
        stayed=tuple(sorted(each.name for each in (*prediction.kept, *prediction.left))),
        runs=tuple(sorted(runs)),
        where=prediction.output_dir if runs else "",
    )
