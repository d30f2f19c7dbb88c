"""What is found about E2B sandboxes before one is rented, and about addresses that they should reach."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from console.findings import ERROR, NOTE, WARNING, Finding, refuse
from console.training.options import parse
from console.training.preflight import preflight
from console.training.reach import reach_doubt

ENV = {"TINKER_API_KEY": "tml-k", "E2B_API_KEY": "e2b_0123456789abcdef"}


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`found(trial={...}, tasks={name: (toml, Dockerfile)}, *words)`: what is said of sandboxes."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())

    def check(
        *words: str,
        tasks: dict[str, tuple[str, str | None]] | None = None,
        env: dict[str, str] = ENV,
        kwargs: dict[str, Any] | None = None,
        agent: dict[str, Any] | None = None,
        **trial: Any,
    ) -> list[Finding]:
        for name, (toml, dockerfile) in (tasks or {"one": ("", "FROM debian\n")}).items():
            task = tmp_path / "tasks" / name
            (task / "environment").mkdir(parents=True, exist_ok=True)
            (task / "task.toml").write_text(toml)
            if dockerfile is not None:
                (task / "environment/Dockerfile").write_text(dockerfile)
        config = {
            "environment": {"type": "e2b", "kwargs": kwargs or {}},
            "agent": {"name": "mini-swe-agent", "override_timeout_sec": 900, **(agent or {})},
        }
        (tmp_path / "trial.json").write_text(json.dumps(config | trial))
        options = parse([
            "config.model_name=m", "config.base_url=http://gateway:1", "config.learning_rate=1e-6",
            "config.max_tokens=8", "config.loss_fn=ppo", "config.ttl_seconds=None", f"config.log_path={tmp_path}/run",
            f"config.dataset_builder.tasks_dir={tmp_path}/tasks", f"harbor.trial_config={tmp_path}/trial.json",
            "harbor.listen_host=0.0.0.0", "harbor.allow_insecure=true", "harbor.advertised_host=gw.example.org", *words,
        ])  # fmt: skip
        return [f for f in preflight(options, env) if f.code.startswith("sandbox.") or f.code == "trial.unreachable"]

    return check


def codes(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.code, finding.level) for finding in findings]


def test_nothing_to_complain_about(found) -> None:
    assert found() == []
    assert found(environment={"import_path": "console.trials.bwrap:BwrapEnvironment"}) == []


def test_the_reference_file_outlives_the_hobby_plan(found) -> None:
    (finding,) = found(agent={"override_timeout_sec": 5400})
    assert (finding.code, finding.level, finding.object) == (
        "sandbox.plan_lease", WARNING, "agent.override_timeout_sec"
    )  # fmt: skip
    assert "1 h 51 min" in finding.message and "1 h on the Hobby plan" in finding.message
    assert "6 min setup + 1 h 30 min agent + 10 min verifier" in finding.message


@pytest.mark.parametrize(
    ("trial", "expected"),
    [
        ({"agent": {"override_timeout_sec": 2300}}, []),
        ({"agent": {"override_timeout_sec": 2400}}, [("sandbox.plan_lease", WARNING)]),
        ({"agent": {"override_timeout_sec": 5400, "max_timeout_sec": 600}}, []),
        ({"agent": {"override_timeout_sec": 5400}, "agent_timeout_multiplier": 0.1}, []),
        ({"agent": {"override_timeout_sec": 900}, "timeout_multiplier": 3}, [("sandbox.plan_lease", WARNING)]),
        ({"agent": {"override_timeout_sec": 900}, "verifier": {"override_timeout_sec": 7200}},
         [("sandbox.plan_lease", WARNING)]),
        ({"agent": {"override_timeout_sec": 90000}}, [("sandbox.plan_lease", ERROR)]),
        ({"agent": {"override_timeout_sec": None}}, [("sandbox.no_limit", WARNING)]),
        ({"agent": {"override_timeout_sec": 0}}, [("sandbox.no_limit", WARNING)]),
        ({"kwargs": {"sandbox_timeout_sec": 1200, "renew_interval_sec": 0}}, [("sandbox.lease", ERROR)]),
        ({"kwargs": {"sandbox_timeout_sec": 1200}}, []),
        ({"kwargs": {"sandbox_timeout_sec": 7200}}, [("sandbox.lease", WARNING)]),
        ({"kwargs": {"sandbox_timeout_sec": 90000}}, [("sandbox.lease", ERROR)]),
        ({"kwargs": {"sandbox_timeout_sec": "soon"}}, []),  # Harbor's own check names that
    ],
)  # fmt: skip
def test_leases(found, trial: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert codes(found(**trial)) == expected


def test_the_longest_task_counts(found) -> None:
    short, long = "[agent]\ntimeout_sec = 60\n", "[agent]\ntimeout_sec = 4000\n[verifier]\ntimeout_sec = 60\n"
    tasks = {"a": (short, "FROM debian\n"), "b": (long, "FROM debian\n")}
    (finding,) = found(tasks=tasks, agent={"override_timeout_sec": None})
    assert finding.code == "sandbox.plan_lease" and "1 h 7 min agent + 1 min verifier" in finding.message


def test_sandboxes_at_once(found) -> None:
    def at_once(groups: int, size: int, parallel: int) -> list[Finding]:
        builder = "config.dataset_builder"
        return found(
            f"{builder}.groups_per_batch={groups}", f"{builder}.group_size={size}",
            f"harbor.max_parallel_trials_per_group={parallel}",
        )  # fmt: skip

    assert at_once(4, 8, 4) == [] and at_once(5, 4, 8) == []
    (hobby,) = at_once(4, 8, 8)
    assert (hobby.code, hobby.level) == ("sandbox.concurrency", WARNING) and "32 sandboxes" in hobby.message
    (pro,) = at_once(16, 8, 8)
    assert "128 sandboxes" in pro.message and "100 at once on Pro" in pro.message


@pytest.mark.parametrize(
    ("toml", "dockerfile", "said"),
    [
        ("", "FROM a AS b\nRUN true\nFROM c\nCOPY --from=b /x /x\n", "several stages"),
        ("", "FROM a\nCOPY --chown=1:1 --from=other /x /x\n", "several stages"),
        ("", None, "neither docker_image nor"),
        ("[environment]\ncpus = 0.5\n", "FROM a\n", "0.5 cpus"),
    ],
)
def test_images_that_e2b_cannot_build(found, toml: str, dockerfile: str | None, said: str) -> None:
    findings = found(tasks={"good": ("", "FROM a\n"), "bad": (toml, dockerfile)})
    (finding,) = [finding for finding in findings if finding.level == ERROR]
    assert (finding.code, finding.object) == ("sandbox.image", "bad") and said in finding.message
    assert "\n" not in finding.line()


def test_images_that_e2b_can_build(found) -> None:
    tasks = {"image": ('[environment]\ndocker_image = "a"\ncpus = 2\n', None), "file": ("", "# FROM x\nFROM a\n")}
    (finding,) = found(tasks=tasks)
    assert (finding.code, finding.level) == ("sandbox.templates", NOTE) and "2 images" in finding.message
    assert found(tasks=tasks | {"bad": ("", "FROM a\nFROM b\n")}, kwargs={"prebuilt_template_id": "t"}) == []


def test_tasks_that_are_closed_to_the_capture_gateway(found) -> None:
    tasks = {"closed": ('[environment]\nnetwork_mode = "no-network"\n', "FROM a\n")}
    own = {"kwargs": {"config": {"model": {}}}}
    (finding,) = found(tasks=tasks, agent=own)
    assert (finding.code, finding.object) == ("sandbox.network", "agent.extra_allowed_hosts")
    assert "1 tasks restrict" in finding.message and "closed" in finding.message
    assert found(tasks=tasks, agent=own | {"extra_allowed_hosts": ["gw.example.org"]}) == []
    assert found(tasks=tasks) == []  # without a config of its own, Harbor knows the host


def test_keys(found) -> None:
    assert codes(found(env=ENV | {"E2B_API_KEY": "sk_e2b_0123456789abcdef"})) == [("sandbox.e2b_key", ERROR)]
    (odd,) = found(env=ENV | {"E2B_API_KEY": "my-secret"})
    assert (odd.code, odd.level) == ("sandbox.e2b_key", WARNING) and "my-secret" not in odd.line()
    assert codes(found(env=ENV | {"E2B_DEBUG": "True"})) == [("sandbox.e2b_debug", ERROR)]


def test_a_package_that_is_missing(found, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "dockerfile_parse" else object())
    (finding,) = found()
    assert (finding.code, finding.level) == ("sandbox.e2b_package", ERROR)
    assert finding.remedy == "pip install dockerfile-parse"
    with pytest.raises(Exception, match="dockerfile-parse"):
        refuse([finding])


# --- addresses -------------------------------------------------------------------------------------------------------

PRIVATE = [
    "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "100.127.1.1", "fd00::1", "[fd00::1]",
    "::ffff:10.0.0.1", "box", "box.local", "BOX.LAN.", "db.internal", "n.tail1234.ts.net", "x.home.arpa",
]  # fmt: skip
NEVER = [
    "127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "api.localhost", "0.0.0.0", "::", "", " ", "169.254.1.1",
    "fe80::1%eth0", "224.0.0.1", "host.invalid", "::ffff:127.0.0.1",
]  # fmt: skip
GOOD = ["gw.example.org", "1.1.1.1", "172.32.0.1", "100.128.0.1", "192.0.2.1", "2606:4700::1111", "a.b.ngrok.app"]


def test_addresses() -> None:
    for host in PRIVATE:
        (level, why), relaxed = reach_doubt(host, "e2b"), reach_doubt(host, "e2b", own_cloud=True)  # type: ignore[misc]
        assert level == ERROR and "run elsewhere" in why, host
        assert relaxed is not None and relaxed.level == WARNING, host
    for host in NEVER:
        for own_cloud in (False, True):
            doubt = reach_doubt(host, "e2b", own_cloud=own_cloud)
            assert doubt is not None and doubt.level == ERROR, host
    for host in GOOD:
        assert reach_doubt(host, "e2b") is None, host


def test_a_private_address_is_refused_for_e2bs_own_cloud_only(found) -> None:
    (finding,) = found("harbor.advertised_host=10.0.0.5")
    assert (finding.code, finding.level, finding.object) == ("trial.unreachable", ERROR, "harbor.advertised_host")
    assert "10.0.0.5 is an address of a private network" in finding.message
    assert codes(found("harbor.advertised_host=10.0.0.5", env=ENV | {"E2B_DOMAIN": "e2b.corp"})) == [
        ("trial.unreachable", WARNING)
    ]
    url = "harbor.advertised_url=https://gw.corp.internal/path", "harbor.listen_port=8080"
    assert [f.object for f in found("harbor.advertised_host=127.0.0.1")] == ["harbor.advertised_host"]
    (of_url,) = [f for f in found(*url, "harbor.advertised_host=127.0.0.1") if f.code == "trial.unreachable"]
    assert (
        of_url.object == "harbor.advertised_url" and "gw.corp.internal is a name of a local network" in of_url.message
    )
