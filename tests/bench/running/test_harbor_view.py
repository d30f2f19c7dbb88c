"""What Harbor says of a job: the bundled ones are right, unknown words and tasks are told by their key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from console.bench.running.harbor_view import HarborView, ask_harbor
from console.bench.running.job_file import presets, read_job
from console.bench.running.plan import plan_of
from console.bench.running.preflight import Examination, examine
from console.bench.running.preflight.case import read_tasks
from console.errors import QuarterdeckError
from console.resources import tasks_dir

BWRAP = {"import_path": "console.trials.bwrap:BwrapEnvironment"}


def check(job: dict[str, Any]) -> HarborView:
    """As the process answers, asked in this one: Harbor is imported once."""
    import msgspec

    from console.trials.job_check import check_job

    return msgspec.convert(msgspec.json.decode(msgspec.json.encode(check_job(job))), HarborView)


def local(**job: Any) -> dict[str, Any]:
    return {"environment": BWRAP, "datasets": [{"path": str(tasks_dir())}], **job}


def codes(view: HarborView) -> list[tuple[str, str]]:
    return [(finding.code, finding.object) for finding in view.findings]


ELSEWHERE = {"bench.environment", "bench.agent_credential", "bench.agent_variable"}
"""Findings about the machine that the tests run on."""


@pytest.mark.parametrize("name", sorted(presets()))
def test_harbor_takes_each_bundled_job(name: str) -> None:
    view = check(read_job(presets()[name]))
    assert view.valid
    assert [found for found in codes(view) if found[0] not in ELSEWHERE] == []


def test_the_bundled_jobs_are_wired_as_they_say() -> None:
    views = {name: check(read_job(path)).agents[0] for name, path in presets().items()}
    assert {name: view.side for name, view in views.items()} == {
        "local": "none",
        "smoke": "host",
        "terminus-2-hf": "host",
        "gpt-oss-hf": "host",
        "e2b": "host",
        "mini-swe-agent-hf": "sandbox",
    }
    assert {name for name, view in views.items() if "REPLACE-ME" in view.endpoint} == set(views) - {"local"}
    assert (views["gpt-oss-hf"].provider, views["gpt-oss-hf"].model_id) == ("openai", "openai/gpt-oss-20b")


def test_the_process_answers_and_tasks_are_known() -> None:
    view = ask_harbor(local(n_attempts=3, agents=[{"name": "oracle"}, {"name": "nop"}]), os.environ)
    assert view.valid and view.harbor and codes(view) == []
    assert view.tasks is not None and len(view.tasks) == len(list(tasks_dir().glob("*/task.toml")))
    found = Examination(options=_options(), findings=[], view=view, tasks=read_tasks(view))
    plan = plan_of(found)
    assert plan["trials"] == len(view.tasks) * 2 * 3
    assert plan["longest_hours"] == round(len(view.tasks) * 2 * 3 * 60 / 4 / 3600, 2)


def test_a_harbor_that_does_not_load_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "harbor").mkdir()
    (tmp_path / "harbor/__init__.py").write_text("raise ImportError('broken on purpose')")
    with pytest.raises(QuarterdeckError, match="broken on purpose"):
        ask_harbor({}, os.environ | {"PYTHONPATH": str(tmp_path)})
    found = examine(_options(), os.environ | {"PYTHONPATH": str(tmp_path)}, live=False)
    assert "bench.harbor" in {finding.code for finding in found.findings}


def _options() -> Any:
    from console.bench.running.options import BenchOptions

    return BenchOptions(job={"jobs_dir": "/tmp/none", "job_name": "j"}, run_dir="/tmp/none/j.run")


@pytest.mark.parametrize(
    ("job", "code", "where"),
    [
        (local(n_concurrent=1), "bench.unknown_field", "n_concurrent"),
        (local(n_attempts=0), "bench.invalid", "n_attempts"),
        (local(n_attempts="x"), "bench.invalid", "n_attempts"),
        (local(retry={"max_retry": 1}), "bench.unknown_field", "retry.max_retry"),
        (local(plugins=["x"]), "bench.plugins", "plugins"),
        (local(agents=[{"name": "terminus"}]), "bench.agent", "agents.0.name"),
        (local(agents=[{"name": "oracle", "modle_name": "x"}]), "bench.unknown_field", "agents.0.modle_name"),
        (local(agents=[{"name": "oracle"}, {"name": "mini-swe-agent", "model_name": "openai/x",
                                            "kwargs": {"api_base": "http://h"}}]),
         "bench.unknown_kwarg", "agents.1.kwargs.api_base"),
        (local(agents=[{"import_path": "no.such:Agent"}]), "bench.agent", "agents.0.import_path"),
        (local(environment={"type": "hf-sandbx"}), "bench.invalid", "environment.type"),
        (local(environment={**BWRAP, "kwargs": {"relay": "no url"}}), "bench.kwargs", "environment.kwargs"),
        (local(environment={**BWRAP, "kwarg": {}}), "bench.unknown_field", "environment.kwarg"),
        (local(datasets=[{"path": "/no/such"}]), "bench.dataset", "datasets.0.path"),
        (local(datasets=[{"path": str(tasks_dir()), "task_names": ["note-*", "note-wriet"]}]), "bench.glob",
         "datasets.0.task_names.1"),
        (local(datasets=[{"path": str(tasks_dir()), "task_names": ["note-*"], "exclude_task_names": ["*"]}]),
         "bench.no_tasks", "datasets.0"),
        (local(datasets=[{"pth": "x"}]), "bench.unknown_field", "datasets.0.pth"),
        (local(tasks=[{"path": "/no/such"}]), "bench.no_task", "tasks.0.path"),
        (local(agents=[{"name": "mini-swe-agent", "model_name": "openai/x", "env": {"A": "${NO_SUCH_VARIABLE}"}}]),
         "bench.agent_variable", "agents.0"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_by_its_key(job: dict[str, Any], code: str, where: str) -> None:
    view = check(job)
    assert (code, where) in codes(view)
    assert not any("\n" in finding.line() for finding in view.findings)


def test_a_close_name_is_offered() -> None:
    view = check(local(n_concurrent=1, datasets=[{"path": str(tasks_dir()), "task_names": ["note-wriet"]}]))
    remedies = {finding.object: finding.remedy for finding in view.findings}
    assert remedies["n_concurrent"] == "did you mean n_concurrent_trials?"
    assert remedies["datasets.0.task_names.0"] == "did you mean note-write?"


def test_directories_that_harbor_passes_over_are_told(tmp_path: Path) -> None:
    (tmp_path / "whole").symlink_to(tasks_dir() / "note-write")
    (tmp_path / "no-tests").mkdir()
    (tmp_path / "no-tests/task.toml").write_text("")
    view = check(local(datasets=[{"path": str(tmp_path)}]))
    assert codes(view) == [("bench.passed_over", "datasets.0.path")]
    assert "no-tests" in view.findings[0].message


def test_a_repository_leaves_the_tasks_unknown() -> None:
    assert check({"environment": BWRAP, "datasets": [{"repo": "https://host/set"}]}).tasks is None
