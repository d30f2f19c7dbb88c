"""Each mistake that can be told before a benchmark runs is told once, with its object; what is right is not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from console.bench.running.harbor_view import AgentView, HarborView
from console.bench.running.options import BenchOptions
from console.bench.running.preflight import places
from console.bench.running.preflight.agents import rewired, variable_findings, wiring_findings
from console.bench.running.preflight.case import Case, Task
from console.bench.running.preflight.datasets import POINTER, dataset_findings
from console.bench.running.preflight.examine import CHECKS, with_endpoint
from console.bench.running.preflight.rules import rule_findings
from console.bench.running.preflight.sandboxes import idle_seconds, sandbox_findings
from console.bench.running.preflight.twice import twice_findings
from console.findings import Finding

URL = "https://job--30000.hf.jobs/v1"
TERMINUS = AgentView(
    name="terminus-2", model="openai/Llama", side="host", endpoint=URL, key_name="OPENAI_API_KEY", key=True,
    wanted=["OPENAI_API_KEY"], provider="openai", model_id="Llama", options=["api_base", "reasoning_effort"],
)  # fmt: skip
MINI = AgentView(
    name="mini-swe-agent", model="openai/Llama", side="sandbox", endpoint=URL, endpoint_from="OPENAI_BASE_URL",
    key_name="OPENAI_API_KEY", key=True, wanted=["OPENAI_API_KEY"], provider="openai", model_id="Llama",
)  # fmt: skip
CLAUDE = AgentView(
    name="claude-code", model="anthropic/x", side="sandbox", format="anthropic_messages", key=True,
    key_name="ANTHROPIC_API_KEY", wanted=["ANTHROPIC_API_KEY"], provider="anthropic", model_id="x",
)  # fmt: skip
ORACLE = AgentView(name="oracle", side="none")
MINI_ENV = {"OPENAI_BASE_URL": URL, "OPENAI_API_KEY": "${OPENAI_API_KEY}"}


def change(view: AgentView, **values: Any) -> AgentView:
    import msgspec

    return msgspec.structs.replace(view, **values)


def case(
    view: AgentView = TERMINUS,
    *,
    part: Mapping[str, Any] | None = None,
    tasks: list[Task] | None = None,
    env: Mapping[str, str] | None = None,
    cores: int = 4,
    found: list[Finding] | None = None,
    harbor: str = "0.26.0",
    **job: Any,
) -> Case:
    """A job of one agent, two trials at once, in Docker, unless told otherwise."""
    job = {"n_concurrent_trials": 2, "environment": {"type": "docker"}, "agents": [part or {}], **job}
    job |= {"jobs_dir": "/jobs", "job_name": "j"}
    return Case(
        options=BenchOptions(job=job, run_dir="/jobs/j.run", endpoint=view.endpoint),
        view=HarborView(harbor=harbor, valid=True, job=job, agents=[view], findings=found or []),
        environment={"OPENAI_API_KEY": "k"} if env is None else env,
        tasks=tasks,
        cores=cores,
    )


def task(name: str = "fix-git", seconds: float | None = 900.0, **environment: Any) -> Task:
    config: dict[str, Any] = {"environment": environment, "agent": {}}
    if seconds is not None:
        config["agent"]["timeout_sec"] = seconds
    return Task(name=name, path=Path("/nowhere"), config=config)


def told(given: Case) -> dict[str, tuple[str, str]]:
    """Code to level and object, of all checks that ask nobody."""
    findings = [finding for check in CHECKS for finding in check(given)]
    assert all("\n" not in finding.line() and finding.message for finding in findings)
    return {finding.code: (finding.level, finding.object) for finding in findings}


HF = {"type": "hf-sandbox"}
FIELD = "agents.0."
THINKER = change(TERMINUS, model="openai/Qwen/Qwen3.8-27B-FP8", model_id="Qwen/Qwen3.8-27B-FP8")


@pytest.mark.parametrize(
    ("given", "code", "level", "where"),
    [
        # who calls the model, and from where
        (case(change(TERMINUS, key=False, key_name=""), env={}), "bench.key", "error", "OPENAI_API_KEY"),
        (case(change(MINI, key=False, key_name=""), env={}), "bench.key", "error", "OPENAI_API_KEY"),
        (case(change(CLAUDE, key=False, key_name=""), env={}), "bench.key", "warning", "ANTHROPIC_API_KEY"),
        (case(part={"env": {"OPENAI_API_KEY": "${K}"}}, env={"K": "k"}), "bench.key_place", "warning",
         FIELD + "env.OPENAI_API_KEY"),
        (case(MINI, part={"env": MINI_ENV}, env={}), "bench.variable", "error", FIELD + "env.OPENAI_API_KEY"),
        (case(MINI, part={"env": {"URL": "https://${HOST}/v1"}}), "bench.template", "error", FIELD + "env.URL"),
        (case(environment={"type": "docker", "env": {"A": "${NO}"}}), "bench.variable", "error", "environment.env.A"),
        (case(verifier={"env": {"A": "${NO}"}}), "bench.variable", "error", "verifier.env.A"),
        (case(CLAUDE, part={"env": {"OPENAI_BASE_URL": URL}}), "bench.messages", "error",
         FIELD + "env.OPENAI_BASE_URL"),
        (case(change(CLAUDE, endpoint=URL, endpoint_from="ANTHROPIC_BASE_URL"),
              part={"env": {"ANTHROPIC_BASE_URL": URL}}),
         "bench.base_url_path", "warning", FIELD + "env.ANTHROPIC_BASE_URL"),
        (case(change(TERMINUS, endpoint="https://host"), part={"kwargs": {"api_base": "https://host"}}),
         "bench.base_url_path", "warning", FIELD + "kwargs.api_base"),
        (case(change(TERMINUS, endpoint="host:80/v1"), part={"base_url": "x"}), "bench.base_url", "error",
         FIELD + "base_url"),
        (case(change(TERMINUS, endpoint="http://[::1/v1")), "bench.base_url", "error", FIELD + "base_url"),
        (case(change(TERMINUS, endpoint="https://REPLACE-ME/v1"), part={"kwargs": {"api_base": "x"}}),
         "bench.placeholder", "error", FIELD + "kwargs.api_base"),
        (case(change(TERMINUS, endpoint_from="OPENAI_BASE_URL")), "bench.base_url_ambient", "note", "OPENAI_BASE_URL"),
        (case(change(MINI, endpoint="http://127.0.0.1:8000/v1"), part={"env": MINI_ENV}), "bench.loopback", "warning",
         FIELD + "env.OPENAI_BASE_URL"),
        (case(change(MINI, endpoint="http://localhost:8000/v1"), part={"env": MINI_ENV}, environment={"type": "e2b"}),
         "bench.loopback", "error", FIELD + "env.OPENAI_BASE_URL"),
        (case(MINI, part={"env": MINI_ENV}, environment={"import_path": "console.trials.bwrap:BwrapEnvironment"}),
         "bench.no_network", "error", "environment.kwargs.relay"),
        # the model's name
        (case(change(TERMINUS, model="", model_id="")), "bench.model", "error", FIELD + "model_name"),
        (case(change(CLAUDE, model="", model_id="")), "bench.model", "warning", FIELD + "model_name"),
        (case(change(TERMINUS, model="Qwen/x", model_id="Qwen/x", provider="")), "bench.model_provider", "warning",
         FIELD + "model_name"),
        (case(THINKER), "bench.thinking", "note", FIELD + "model_name"),
        # sandboxes
        (case(environment=HF, n_concurrent_trials=8), "bench.concurrency", "warning", "n_concurrent_trials"),
        (case(environment={"type": "e2b"}, n_concurrent_trials=21), "bench.concurrency", "warning",
         "n_concurrent_trials"),
        (case(n_concurrent_trials=5), "bench.concurrency", "warning", "n_concurrent_trials"),
        (case(tasks=[task(memory_mb=10**9)]), "bench.memory", "warning", "n_concurrent_trials"),
        (case(environment=HF, tasks=[task()]), "bench.docker_image", "error", "environment.docker_image"),
        (case(environment={"type": "e2b"}, tasks=[task()]), "bench.docker_image", "warning",
         "environment.docker_image"),
        (case(environment=HF), "bench.images_unknown", "note", "datasets"),
        (case(environment=HF), "bench.hf_logs", "note", "environment.type"),
        (case(environment=HF, harbor="0.22.0"), "bench.dash", "error", "harbor"),
        (case(MINI, part={"env": MINI_ENV}, environment=HF), "bench.idle", "error", "environment.kwargs.job_timeout"),
        (case(MINI, part={"env": MINI_ENV}, environment=HF, tasks=[task(docker_image="x")]), "bench.idle", "error",
         "environment.kwargs.job_timeout"),
        (case(MINI, part={"env": MINI_ENV}, environment={**HF, "kwargs": {"job_timeout": "30m"}},
              agent_timeout_multiplier=4.0, tasks=[task(docker_image="x")]),
         "bench.idle", "error", "environment.kwargs.job_timeout"),
        (case(environment={"type": "e2b"}, tasks=[task(seconds=4000.0, docker_image="x")]), "bench.lease", "warning",
         "agents.0"),
        (case(environment={"type": "e2b"}, tasks=[task(seconds=90000.0, docker_image="x")]), "bench.lease", "error",
         "agents.0"),
        (case(environment={"type": "docker", "delete": False}), "bench.kept_sandboxes", "warning",
         "environment.delete"),
        # rules
        (case(retry={"max_retries": 3}), "bench.retries", "warning", "retry.max_retries"),
        (case(verifier={"disable": True}), "bench.no_figure", "warning", "verifier.disable"),
        (case(install_only=True), "bench.no_figure", "warning", "install_only"),
        (case(agent_timeout_multiplier=4.0), "bench.multiplier", "note", "agent_timeout_multiplier"),
        (case(timeout_multiplier=0.0), "bench.timeout", "error", "timeout_multiplier"),
        (case(part={"override_timeout_sec": 0}), "bench.timeout", "warning", FIELD + "override_timeout_sec"),
        (case(tasks=[task(seconds=None)]), "bench.endless", "warning", "agents.0"),
        (case(THINKER, tasks=[task()]), "bench.short", "note", "agent_timeout_multiplier"),
        (case(), "bench.hf_jobs", "note", "job--30000.hf.jobs"),
        # tasks
        (case(datasets=[{"path": "/sets/a__b"}]), "bench.underscores", "warning", "datasets.0"),
        (case(change(TERMINUS, model_id="a__b")), "bench.underscores", "warning", FIELD + "model_name"),
        (case(tasks=[task(env={"A": "${NO}"})]), "bench.task_variable", "error", "NO"),
    ],
)  # fmt: skip
def test_a_mistake_is_told(given: Case, code: str, level: str, where: str) -> None:
    assert told(given).get(code) == (level, where)


RELAY = {"import_path": "console.trials.bwrap:BwrapEnvironment", "kwargs": {"relay": URL}}


@pytest.mark.parametrize(
    "given",
    [
        case(tasks=[task(memory_mb=512)]),
        case(change(TERMINUS, model="openai/openai/gpt-2", model_id="openai/gpt-2")),
        case(MINI, part={"env": MINI_ENV}, tasks=[task()]),
        case(change(MINI, endpoint="http://127.0.0.1:8000/v1"), part={"env": MINI_ENV}, environment=RELAY),
        case(change(CLAUDE, endpoint="https://h", endpoint_from="ANTHROPIC_BASE_URL"),
             part={"env": {"ANTHROPIC_BASE_URL": "https://h"}}),
        case(ORACLE, env={}, tasks=[task()]),
        case(environment=HF, n_concurrent_trials=3, tasks=[task(docker_image="x")]),
        case(MINI, part={"env": MINI_ENV}, environment={**HF, "kwargs": {"job_timeout": "2h"}},
             agent_timeout_multiplier=4.0, tasks=[task(docker_image="x")], n_concurrent_trials=3),
        case(MINI, part={"env": MINI_ENV}, environment={**HF, "kwargs": {"job_timeout": "off"}}),
        case(MINI, part={"env": MINI_ENV}, environment=HF, tasks=[task(seconds=600.0, docker_image="x")]),
        case(tasks=[task(env={"A": "${NO:-1}", "B": "${OPENAI_API_KEY}"})]),
        case(environment={"type": "docker", "env": {"A": "1"}}, tasks=[task(env={"A": "${NO}"})]),
        case(ORACLE, tasks=[task(seconds=None)], part={"max_timeout_sec": 60}),
    ],
)  # fmt: skip
def test_what_is_right_is_not_told(given: Case) -> None:
    assert [code for code, (level, _) in told(given).items() if level != "note"] == []


def test_the_model_is_never_called_otherwise() -> None:
    """`openai/openai/gpt-oss-20b` is right: the provider, then an id that begins with the same word."""
    double = change(TERMINUS, model="openai/openai/gpt-oss-20b", model_id="openai/gpt-oss-20b")
    assert {finding.code for finding in wiring_findings(case(double))} <= {"bench.thinking"}


def test_an_option_of_host_agents_is_told_as_wiring_for_one_of_the_sandbox() -> None:
    unknown = Finding(
        code="bench.unknown_kwarg", object="agents.0.kwargs.api_base", message="has no option", remedy="x"
    )
    other = Finding(code="bench.unknown_kwarg", object="agents.0.kwargs.foo", message="has no option", remedy="x")
    found = list(rewired(case(MINI, found=[unknown, other])))
    assert [(finding.code, finding.object) for finding in found] == [
        ("bench.wiring", "agents.0.kwargs.api_base"),
        ("bench.unknown_kwarg", "agents.0.kwargs.foo"),
    ]
    assert found[0].remedy.endswith("agents.0.env.OPENAI_BASE_URL")
    assert next(iter(rewired(case(CLAUDE, found=[unknown])))).remedy.endswith("agents.0.env.ANTHROPIC_BASE_URL")
    assert next(iter(rewired(case(TERMINUS, found=[unknown])))) is unknown


def test_what_harbor_says_of_a_missing_variable_is_not_told_twice() -> None:
    said = Finding(code="bench.agent_variable", object="agents.0", message="not found")
    other = Finding(code="bench.agent", object="agents.0", message="something else")
    given = case(MINI, part={"env": {"X": "${NO}"}}, found=[said, other])
    assert list(rewired(given)) == [other]
    assert [finding.object for finding in variable_findings(given)] == ["agents.0.env.X"]
    assert list(rewired(case(MINI, found=[said]))) == [said]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(None, 600.0), (7200, 7200.0), ("2h", 7200.0), ("1h30m", 5400.0), ("90", 90.0), ("none", None), ("off", None),
     ("", None), ("soon", 600.0), ("h", 600.0), ("1d", 86400.0)],
)  # fmt: skip
def test_the_idle_limit_is_read_as_harbor_reads_it(value: object, seconds: float | None) -> None:
    from harbor.environments.hf_sandbox import _parse_idle_timeout

    assert idle_seconds(value) == seconds
    assert _parse_idle_timeout(value) == seconds  # type: ignore[arg-type]


def test_git_and_git_lfs_are_looked_for_where_they_are_needed(tmp_path: Path) -> None:
    remote = {"datasets": [{"repo": "https://host/set"}]}

    def codes(env: Mapping[str, str], **job: Any) -> list[str]:
        return [finding.code for finding in dataset_findings(case(env=env, **job))]

    path = {"PATH": str(tmp_path)}
    assert codes(path, **remote) == ["bench.git"]
    assert codes(path, tasks=None) == []
    for name, left in (("git", ["bench.git_lfs"]), ("git-lfs", [])):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
        assert codes(path, **remote) == left


def test_pointers_of_git_lfs_are_found_in_the_tasks(tmp_path: Path) -> None:
    for name, content in (
        ("a", POINTER + b"v1\noid sha256:00\nsize 5\n"),
        ("b", b"whole"),
        ("c", POINTER + b"x" * 2000),
    ):
        (tmp_path / name / "environment").mkdir(parents=True)
        (tmp_path / name / "environment/data.bin").write_bytes(content)
    (tmp_path / "b/loop").symlink_to(tmp_path)
    (tmp_path / "b/link").symlink_to(tmp_path / "a/environment/data.bin")
    tasks = [Task(name=name, path=tmp_path / name, config={}) for name in "abc"]
    found = [finding for finding in dataset_findings(case(ORACLE, tasks=tasks)) if finding.code == "bench.lfs_pointer"]
    assert [finding.object for finding in found] == [str(tmp_path / "a/environment/data.bin")]
    assert "1 such file in 1 task (a)" in found[0].message


def test_places_of_a_run(tmp_path: Path) -> None:
    def codes(run_dir: Path, jobs: Path = tmp_path / "jobs") -> list[str]:
        options = BenchOptions(job={"jobs_dir": str(jobs), "job_name": "j"}, run_dir=str(run_dir))
        return [finding.code for finding in places.place_findings(options)]

    job = {"jobs_dir": str(tmp_path / "jobs"), "job_name": "j"}
    first = places.default_run_dir(job)
    assert first == tmp_path / "jobs/j.run"
    assert codes(first) == []
    assert not (tmp_path / "jobs").exists()  # looking leaves nothing
    assert codes(tmp_path / "jobs/j") == ["bench.run_dir"]
    assert codes(tmp_path / "jobs/j/deep/run") == ["bench.run_dir"]
    (first / "journal").mkdir(parents=True)
    assert codes(first) == ["bench.run_dir"]
    assert places.default_run_dir(job) == tmp_path / "jobs/j.run-2"
    (tmp_path / "file").write_text("")
    assert set(codes(tmp_path / "x.run", tmp_path / "file/jobs")) == {"bench.directory"}


def test_room_is_told_by_the_number_of_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = BenchOptions(job={"jobs_dir": str(tmp_path / "no/jobs"), "job_name": "j"}, run_dir="/x")
    monkeypatch.setattr(places.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10**9})())
    assert list(places.room_finding(options, 10)) == []
    assert [finding.code for finding in places.room_finding(options, 1000)] == ["bench.disk"]


def test_the_endpoint_to_watch_is_the_one_that_the_agents_share() -> None:
    import msgspec

    given = case()
    options = msgspec.structs.replace(given.options, endpoint="")
    own = change(TERMINUS, key_name="MY_KEY")
    job = {"agents": [{"env": {"OPENAI_API_KEY": "${THEIRS}"}}, {}]}
    options = msgspec.structs.replace(options, job=job)
    assert with_endpoint(options, HarborView(job=job, agents=[TERMINUS])).key_name == "THEIRS"
    assert with_endpoint(options, HarborView(agents=[own, ORACLE])).endpoint == URL
    assert with_endpoint(options, HarborView(agents=[own])).key_name == "MY_KEY"
    assert with_endpoint(options, HarborView(agents=[own, change(MINI, endpoint="http://other")])).endpoint == ""
    assert with_endpoint(given.options, HarborView(agents=[change(MINI, endpoint="http://other")])).endpoint == URL


def test_every_check_of_sandboxes_and_rules_survives_odd_values() -> None:
    odd = case(n_concurrent_trials="many", environment={"type": None, "kwargs": None}, retry={"max_retries": None})
    assert list(sandbox_findings(odd)) == []
    assert [finding.code for finding in rule_findings(odd)] == ["bench.hf_jobs"]


def test_fewer_trials_than_may_run_at_once_crowd_nothing() -> None:
    assert "bench.concurrency" not in told(case(n_concurrent_trials=50, tasks=[task()], n_attempts=4))
    assert "bench.concurrency" in told(case(n_concurrent_trials=50, tasks=[task()], n_attempts=5))


def test_what_is_chosen_by_name_and_by_path_at_once_is_refused_and_of_a_mop_up_told() -> None:
    import msgspec

    both = case(ORACLE, part={"name": "oracle", "import_path": "mine:Agent"},
                environment={"type": "docker", "import_path": "mine:Sandbox"})  # fmt: skip
    found = list(twice_findings(both))
    assert [(one.object, one.level) for one in found] == [("environment.type", "error"), ("agents.0.name", "error")]
    assert "is docker, and environment.import_path is mine:Sandbox" in found[0].message
    assert "environment.import_path=null" in found[0].remedy
    again = msgspec.structs.replace(both, options=msgspec.structs.replace(both.options, parent="/jobs/a"))
    assert {one.level for one in twice_findings(again)} == {"warning"}
    one = case(ORACLE, part={"name": "oracle"}, environment={"type": None, "import_path": "mine:Sandbox"})
    assert list(twice_findings(one)) == []
