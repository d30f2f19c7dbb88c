"""The trial file: reading, placeholders, variables, reach, and the config of one trial."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.errors import UsageError
from console.findings import Finding
from console.resources import configs_dir
from console.training.trial_config import check_trial_config, is_remote, load_trial_config, substitute

REFERENCE: dict[str, Any] = {
    "trials_dir": "/tmp/harbor-trials",
    "environment": {"type": "e2b"},
    "agent": {
        "name": "mini-swe-agent",
        "model_name": "openai/policy",
        "override_timeout_sec": 5400,
        "env": {
            "OPENAI_BASE_URL": "{proxy_url}/v1",
            "OPENAI_API_KEY": "{proxy_api_key}",
            "MSWEA_COST_TRACKING": "ignore_errors",
        },
        "kwargs": {"max_tokens": 8192, "config": {"model": {"model_kwargs": {"temperature": 0.8}}}},
    },
}
LOCAL = REFERENCE | {"environment": {"import_path": "console.trials.bwrap:BwrapEnvironment"}}


def check(config: dict[str, Any], env: dict[str, str] | None = None, host: str = "192.0.2.1", listen: str = "0.0.0.0"):
    env = {"E2B_API_KEY": "x"} if env is None else env
    return check_trial_config(config, env, listen_host=listen, advertised_host=host)


def codes(findings: list[Finding], level: str = "error") -> list[str]:
    return [finding.code for finding in findings if finding.level == level]


def with_env(**variables: str) -> dict[str, Any]:
    config = copy.deepcopy(LOCAL)
    config["agent"]["env"] |= variables
    return config


# --- reading ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "not valid JSON"),
        ("[]", "JSON object"),
        ('{"task": {"path": "/x"}}', "sets task; remove it"),
        ('{"agent": {"name": "a", "name": "b"}}', "'name' appears twice"),
        ("\ufeff{}", "not valid JSON"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "trial.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load_trial_config(path)
    assert part in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(UsageError, match=r"harbor\.trial_config=.*; name an existing"):
            load_trial_config(path)


def test_everything_else_passes_through(tmp_path: Path) -> None:
    path = tmp_path / "trial.json"
    path.write_text(json.dumps(REFERENCE))
    assert load_trial_config(path) == REFERENCE


# --- substitution ------------------------------------------------------------------------------------------------


def test_placeholders_are_replaced_anywhere_in_values_and_nowhere_else() -> None:
    config = {
        "agent": {
            "env": {"URL": "{proxy_url}/v1", "{proxy_url}": "key"},
            "kwargs": {"list": ["a {proxy_api_key} b", 3]},
        },
        "n": 1.5,
        "both": "{proxy_api_key}@{proxy_url}@{other}",
    }
    before = copy.deepcopy(config)
    made = substitute(config, "http://10.0.0.1:9/r/{proxy_api_key}", "sk-1")
    assert config == before
    assert made["agent"]["env"] == {"URL": "http://10.0.0.1:9/r/{proxy_api_key}/v1", "{proxy_url}": "key"}
    assert made["agent"]["kwargs"]["list"] == ["a sk-1 b", 3]
    assert made["both"] == "sk-1@http://10.0.0.1:9/r/{proxy_api_key}@{other}"


JSON_VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.text(max_size=6), st.sampled_from(["{proxy_url}", "x{proxy_url}"])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=4), JSON_VALUES, max_size=4))
def test_the_copy_is_deep_and_equal_but_for_the_placeholders(config: dict[str, Any]) -> None:
    made = substitute(config, "URL", "KEY")
    assert json.dumps(made) == json.dumps(config).replace("{proxy_url}", "URL").replace("{proxy_api_key}", "KEY")

    def containers(value: Any) -> list[int]:
        if isinstance(value, dict):
            return [id(value)] + [i for item in value.values() for i in containers(item)]
        return [id(value)] + [i for item in value for i in containers(item)] if isinstance(value, list) else []

    assert not set(containers(made)) & set(containers(config))


# --- checks --------------------------------------------------------------------------------------------------------


def test_the_reference_file_needs_a_key_and_an_address() -> None:
    assert codes(check(REFERENCE)) == []
    assert "trial.temperature" in codes(check(REFERENCE), "note")
    assert codes(check(REFERENCE, env={})) == ["trial.sandbox_key"]
    (key,) = [finding for finding in check(REFERENCE, env={}) if finding.code == "trial.sandbox_key"]
    assert key.object == "E2B_API_KEY"
    assert codes(check(LOCAL, env={}, host="127.0.0.1", listen="127.0.0.1")) == []


@pytest.mark.parametrize(
    ("host", "listen", "objects"),
    [
        ("127.0.0.1", "0.0.0.0", ["harbor.advertised_host"]),
        ("localhost", "0.0.0.0", ["harbor.advertised_host"]),
        ("0.0.0.0", "0.0.0.0", ["harbor.advertised_host"]),
        ("192.0.2.1", "127.0.0.1", ["harbor.listen_host"]),
        ("::1", "::1", ["harbor.advertised_host", "harbor.listen_host"]),
        ("gateway.example.org", "0.0.0.0", []),
    ],
)
def test_remote_sandboxes_must_reach_this_machine(host: str, listen: str, objects: list[str]) -> None:
    found = [finding.object for finding in check(REFERENCE, host=host, listen=listen) if finding.level == "error"]
    assert found == objects


def test_containers_do_not_reach_the_hosts_loopback() -> None:
    for environment in ({"type": "docker"}, {}, {"type": "podman"}):
        config = LOCAL | {"environment": environment}
        assert codes(check(config, host="127.0.0.1"), "warning") == ["trial.container_loopback"]
        assert not is_remote(config)
    assert is_remote({"environment": {"type": "modal"}})


@pytest.mark.parametrize(
    ("value", "level", "hint"),
    [
        ("{proxy_ur}/v1", "error", "{proxy_url}"),
        ("{proxy_apikey}", "error", "{proxy_api_key}"),
        ("{PROXY_URL}", "warning", ""),
        ("{workdir}/x", "warning", ""),
    ],
)
def test_unknown_placeholders(value: str, level: str, hint: str) -> None:
    (found,) = [finding for finding in check(with_env(X=value)) if finding.code == "trial.placeholder"]
    assert (found.level, found.object) == (level, "agent.env.X") and hint in found.remedy


@pytest.mark.parametrize(
    "value", ["${HOME}/x", "{{ instruction }}", "{{instruction}}", '{"a": 1}', "{}", "a{b", "{proxy_url}{proxy_url}"]
)
def test_what_is_no_placeholder(value: str) -> None:
    assert not [finding for finding in check(with_env(X=value), env={}) if finding.code == "trial.placeholder"]


def test_placeholders_that_are_missing_or_in_a_key() -> None:
    bare = {"agent": {"name": "oracle"}, "environment": LOCAL["environment"]}
    assert codes(check(bare), "warning") == ["trial.no_proxy_url", "trial.no_proxy_api_key"]
    assert codes(check(with_env(**{"{proxy_url}": "x"}))) == ["trial.placeholder_key"]


def test_variables_of_the_environment() -> None:
    (found,) = check(with_env(TOKEN="${HF_TOKEN}"), env={})[:1]
    assert found.code == "trial.variable" and "HF_TOKEN" in found.message and found.object == "agent.env.TOKEN"
    assert codes(check(with_env(TOKEN="${HF_TOKEN}"), env={"HF_TOKEN": ""})) == []
    assert codes(check(with_env(TOKEN="${HF_TOKEN:-none}", TEXT="a ${NOT_ALONE}"), env={})) == []


@pytest.mark.parametrize("path", sorted((configs_dir() / "trials").glob("*.json")), ids=lambda path: path.name)
def test_the_bundled_trial_files_have_no_finding_of_their_own(path: Path) -> None:
    findings = check(load_trial_config(path))
    assert [finding for finding in findings if finding.level != "note"] == []
