"""The configuration of a mop-up's job: its parent's, of whichever version, with other tasks and nothing else."""

from __future__ import annotations

import json
import warnings
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from harbor_jobs import HarborJob, put, tree_hash

from console.bench.lineage import FILE, Lineage, read_lineage
from console.bench.mop_up import known
from console.bench.mop_up.changes import Asked, change
from console.bench.mop_up.choice import Wish
from console.bench.mop_up.lenient import adapted
from console.bench.mop_up.plan import Plan, make_plan
from console.bench.mop_up.source import TaskRef, task_ref
from console.bench.mop_up.writing import alone, make_directory, withdraw
from console.errors import UsageError

DEAD = ("SandboxError", "the sandbox was not found")
VERSIONS = ("0.1.45", "0.6.3", "0.14.0", "0.18.0", "0.20.0", "0.26.0")


def planned(job: Path, asked: Asked | None = None, dataset_path: Path | None = None, **wish: Any) -> Plan:
    return make_plan([job], Wish(**wish), asked, dataset_path=dataset_path, cache=False)


def config_of(job: Path, **asked: Any) -> dict[str, Any]:
    (one,) = planned(job, Asked(**asked)).jobs
    return one.config


def dead_job(
    path: Path, *tasks: str, version: str = "0.26.0", config: dict[str, Any] | None = None, **more: Any
) -> Path:
    job = HarborJob(path, version, **more)
    for task in tasks or ("tb/a",):
        job.trial(task, error=DEAD)
    job.trial("tb/sound", 1.0)
    return job.write(config=config)


def local_set(root: Path, *names: str) -> Path:
    for name in names:
        put(root / name / "task.toml", "")
    return root


def relative_job(root: Path, jobs_dir: str = "jobs") -> Path:
    """A job that was run in `root`, on the dataset `set` there."""
    return dead_job(
        root / "jobs" / "job", "a", dataset="set", config={"jobs_dir": jobs_dir, "datasets": [{"path": "set"}]}
    )


def test_known_names_are_those_of_the_installed_harbor() -> None:
    from harbor.models.job.config import DatasetConfig, JobConfig, RetryConfig
    from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, VerifierConfig

    for names, model in (
        (known.JOB, JobConfig), (known.AGENT, AgentConfig), (known.ENVIRONMENT, EnvironmentConfig),
        (known.VERIFIER, VerifierConfig), (known.DATASET, DatasetConfig), (known.TASK, TaskConfig),
        (known.RETRY, RetryConfig),
    ):  # fmt: skip
        assert names == set(model.model_fields), model


@pytest.mark.parametrize("version", VERSIONS)
def test_harbor_takes_what_each_version_wrote(tmp_path: Path, version: str) -> None:
    from harbor.models.job.config import JobConfig

    config = config_of(dead_job(tmp_path / "job", "tb/a", "tb/b", version=version, concurrent=7))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        taken = JobConfig.model_validate(config)
    assert taken.n_concurrent_trials == 7 and taken.n_attempts == 1
    assert taken.agents[0].name == "terminus-2" and taken.agents[0].model_name == "openai/Qwen/Qwen3.8-27B-FP8"
    (dataset,) = taken.datasets
    assert dataset.name == "terminal-bench-2.1" and dataset.exclude_task_names is None and dataset.n_tasks is None
    if version == "0.1.45":
        assert dataset.registry_url == "https://registry.example/registry.json"
    if version == "0.6.3":
        assert taken.environment.mounts == [{"type": "bind", "source": "/data", "target": "/data", "read_only": True}]


def test_what_is_dropped_is_told() -> None:
    recorded = {
        "agents": [{"name": "codex", "flux": 3, "off": None}],
        "environment": {
            "mounts": ["/a:/b", "nonsense", {"type": "bind", "source": "/c", "target": "/d"}],
            "warp": True,
        },
        "plugins": ["x"],
        "unheard": {"of": 1},
    }
    config, notes = adapted(recorded)
    assert config == {
        "agents": [{"name": "codex"}],
        "environment": {
            "mounts": [
                {"type": "bind", "source": "/a", "target": "/b"},
                {"type": "bind", "source": "/c", "target": "/d"},
            ]
        },
    }
    assert sorted(note.split(":")[0] for note in notes) == [
        "agents.0.flux", "environment.mounts", "environment.warp", "unheard",
    ]  # fmt: skip
    assert recorded["plugins"] == ["x"], "the caller's is not touched"


def test_hidden_keys_come_from_the_environment() -> None:
    agent = {"env": {"OPENAI_API_KEY": "sk-p****xyz", "PLAIN": "a****b", "TOKEN": "****", "KEPT": "${OTHER}"}}
    config, notes = adapted({"agents": [agent]})
    assert config["agents"][0]["env"] == {
        "OPENAI_API_KEY": "${OPENAI_API_KEY}", "PLAIN": "a****b", "TOKEN": "${TOKEN}", "KEPT": "${OTHER}",
    }  # fmt: skip
    assert len(notes) == 2


@pytest.mark.parametrize("name", ["a[b]c", "a*", "we?rd", "[!x]", "plain", "a]b"])
def test_a_pattern_matches_its_task_alone(name: str) -> None:
    pattern = TaskRef(path=f"/set/{name}").pattern
    assert fnmatch(name, pattern)
    assert not any(fnmatch(other, pattern) for other in ("abc", "ab", "weird", "y", "plainer") if other != name)
    whole = task_ref({"name": f"org/{name}", "path": None, "ref": "sha256:0"})
    assert fnmatch(f"org/{name}", whole.pattern)


def test_packages_and_directories(tmp_path: Path) -> None:
    """A package is filtered by its whole name, a directory by its own, whatever name is in its task.toml."""
    job = dead_job(tmp_path / "job", "tb/a")
    assert config_of(job)["datasets"][0]["task_names"] == ["tb/a"]
    trial = next(path for path in job.glob("a__*"))
    put(
        trial / "config.json",
        json.loads((trial / "config.json").read_text())
        | {"task": {"path": "/x/dir-a", "source": "terminal-bench-2.1"}},
    )
    assert config_of(job)["datasets"][0]["task_names"] == ["dir-a"]


def test_several_datasets_and_lone_tasks(tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "job")
    job.trial("tb/a", error=DEAD)
    job.dataset = "second"
    job.trial("tb/b", error=DEAD)
    job.dataset = None
    job.trial("lone", error=DEAD)
    datasets = [
        {"name": "terminal-bench-2.1", "n_tasks": 3},
        {"name": "second", "exclude_task_names": ["z"]},
        {"name": "third"},
    ]
    tasks = [{"path": "/tasks/lone"}, {"path": "/tasks/other"}]
    config = config_of(job.write(config={"datasets": datasets, "tasks": tasks}))
    assert config["datasets"] == [
        {"name": "terminal-bench-2.1", "task_names": ["tb/a"]}, {"name": "second", "task_names": ["tb/b"]},
    ]  # fmt: skip
    assert config["tasks"] == [{"path": "/tasks/lone"}]


def test_a_repository_is_of_the_commit_that_it_was(tmp_path: Path) -> None:
    job = dead_job(tmp_path / "job", "a", config={"datasets": [{"repo": "org/set"}]})
    for trial in job.glob("*__*"):
        document = json.loads((trial / "config.json").read_text())
        document["task"] |= {"path": "tasks/a", "git_url": "https://host/org/set", "git_commit_id": "c" * 40}
        put(trial / "config.json", document)
    assert config_of(job)["datasets"] == [{"repo": f"org/set@{'c' * 40}", "task_names": ["a"]}]
    put(job / "config.json", json.loads((job / "config.json").read_text()) | {"datasets": [{"repo": "org/set@v2"}]})
    assert config_of(job)["datasets"][0]["repo"] == "org/set@v2"


def test_relative_paths(tmp_path: Path) -> None:
    job = relative_job(tmp_path)
    with pytest.raises(UsageError, match="--dataset-path"):
        planned(job)  # there is no such dataset there
    found = local_set(tmp_path / "set", "a")
    assert config_of(job)["datasets"] == [{"path": str(found), "task_names": ["a"]}]
    assert any("for the job was run in" in note for note in planned(job).notes)
    other = local_set(tmp_path / "elsewhere" / "set", "a")
    assert planned(job, dataset_path=other).jobs[0].config["datasets"][0]["path"] == str(other)
    with pytest.raises(UsageError, match="called set"):
        planned(job, dataset_path=local_set(tmp_path / "misnamed", "a"))
    moved = tmp_path / "moved"
    job.rename(moved)
    with pytest.raises(UsageError, match="--dataset-path"):
        planned(moved)  # where it was run, nothing tells any more


def test_jobs_that_cannot_be_repeated(tmp_path: Path) -> None:
    job = dead_job(tmp_path / "job", config={"source_jobs": [{"action": "regrade", "type": "local", "path": "/x"}]})
    with pytest.raises(UsageError, match="grades the trials of another job"):
        planned(job)
    put(job / "config.json", "{")
    with pytest.raises(UsageError, match="nobody knows how the job was run"):
        planned(job)
    (job / "config.json").unlink()
    with pytest.raises(UsageError, match="is not there"):
        planned(job)


def test_what_may_change() -> None:
    agents = [{"name": "terminus-2", "kwargs": {"api_base": "http://old"}, "env": {"OPENAI_API_KEY": "${OLD}"}}]
    config = {"agents": agents, "n_concurrent_trials": 8}
    asked = Asked(api_base="https://new/v1", key_name="NEW", concurrent=2, sets=("retry.max_retries=1",))
    found = {each.key: (each.before, each.after, each.measured) for each in change(config, asked)}
    assert found == {
        "agents.0.env.OPENAI_API_KEY": ("${OLD}", "${NEW}", False),
        "agents.0.kwargs.api_base": ("http://old", "https://new/v1", False),
        "n_concurrent_trials": ("8", "2", False),
        "retry.max_retries": ("", "1", False),
    }
    bare: dict[str, Any] = {"agents": [{"name": "codex"}]}
    change(bare, Asked(api_base="http://new", key_name="NEW"))
    assert bare["agents"] == [{"name": "codex", "base_url": "http://new", "model_api_key_name": "NEW"}]


@pytest.mark.parametrize(
    "word",
    ["agent.model_name=other", "agent.kwargs.reasoning_effort=low", "agent_timeout_multiplier=4", "dataset.version=2",
     "environment.type=docker", "agent.override_timeout_sec=1"],
)  # fmt: skip
def test_what_is_measured_does_not_change(word: str) -> None:
    def config() -> dict[str, Any]:
        return {"agents": [{"name": "codex"}], "datasets": [{"name": "tb"}], "environment": {"type": "e2b"}}

    with pytest.raises(UsageError, match="--force-change"):
        change(config(), Asked(sets=(word,)))
    (forced,) = change(config(), Asked(sets=(word,), force=True))
    assert forced.measured


@pytest.mark.parametrize(
    "asked",
    [{"sets": ("n_attempts=3",)}, {"sets": ("job_name=x",)}, {"sets": ("dataset.task_names.0=*",), "force": True},
     {"agent_env": ("KEY=sk-secret",)}, {"agent_env": ("KEY",)}, {"key_name": "sk-a-key"}, {"api_base": "host:80"},
     {"api_base": "http://me:secret@host"}, {"concurrent": 0}],
)  # fmt: skip
def test_what_is_refused(asked: dict[str, Any]) -> None:
    config = {"agents": [{"name": "codex"}], "datasets": [{"name": "tb", "task_names": ["a"]}]}
    with pytest.raises(UsageError) as refused:
        change(config, Asked(**asked))
    assert "secret" not in str(refused.value).replace("a secret", "")


def test_secrets_are_in_no_change() -> None:
    config = {"agents": [{"env": {"OPENAI_API_KEY": "sk-old-old-old-old-old", "MODE": "another word"}}]}
    asked = Asked(agent_env=("OPENAI_API_KEY=${NEW}",), sets=("agent.env.MODE=a plain word",))
    said = repr(change(config, asked))
    assert "sk-" not in said and "word" not in said and "${NEW}" in said


def test_the_directory_of_a_job(tmp_path: Path) -> None:
    job = dead_job(tmp_path / "job")
    before = tree_hash(job)
    plan = planned(job, Asked(sets=("agent.model_name=x",), force=True))
    (one,) = plan.jobs
    make_directory(plan, one)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job", "job-mop-up-1"]
    lineage = read_lineage(one.path)
    assert isinstance(lineage, Lineage)
    assert (lineage.parent.path, lineage.tasks, lineage.attempts, lineage.number) == (
        str(job),
        ("tb/a",),
        {"tb/a": 1},
        1,
    )
    assert json.loads((one.path / FILE).read_text())["changes"][0]["measured"] is True
    with pytest.raises(UsageError, match="already"):
        make_directory(plan, one)
    assert withdraw(one) and not one.path.exists()
    make_directory(plan, one)
    put(one.path / "config.json", "{}")
    assert not withdraw(one) and (one.path / FILE).exists()
    assert tree_hash(job) == before


def test_one_command_at_a_time(tmp_path: Path) -> None:
    with alone(tmp_path), pytest.raises(UsageError, match="another mop-up"), alone(tmp_path):
        pass
    with alone(tmp_path):
        pass
