"""A key that stands in a job file is in no file of the run; where it cannot be hidden, the run is refused."""

from __future__ import annotations

import json

import pytest

from console.bench.running.secrets import hide, shown

KEY = "sk-proj-abcdefghijkl0123456789"


def agent(**parts: object) -> dict[str, object]:
    return {"agents": [{"name": "mini-swe-agent", **parts}]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENAI_API_KEY", "anything at all"),
        ("HF_TOKEN", "hf_abcdefghijklmnopqrstuv1"),
        ("MY_PASSWORD", "x"),
        ("PLAIN", KEY),
        ("OPENAI_BASE_URL", "https://user:word@host/v1"),
    ],
)
def test_a_secret_goes_to_the_environment_and_a_name_takes_its_place(name: str, value: str) -> None:
    given = agent(env={name: value})
    hidden = hide(given, {})
    assert hidden.job["agents"][0]["env"] == {name: f"${{{name}}}"}
    assert hidden.variables == {name: value}
    assert [(finding.code, finding.level, finding.object) for finding in hidden.findings] == [
        ("bench.literal_secret", "warning", f"agents.0.env.{name}")
    ]
    assert value not in json.dumps(hidden.job) or len(value) < 3
    assert not any(value in finding.line() for finding in hidden.findings) or len(value) < 3
    assert given["agents"][0]["env"] == {name: value}  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENAI_API_KEY", "${OPENAI_API_KEY}"),
        ("OPENAI_API_KEY", "${OTHER:-EMPTY}"),
        ("OPENAI_API_KEY", "EMPTY"),
        ("USE_AUTH", "true"),
        ("MAX_TOKENS", "4096"),
        ("OPENAI_BASE_URL", "https://host/v1"),
        ("MSWEA_COST_TRACKING", "ignore_errors"),
    ],
)
def test_what_is_no_secret_stays(name: str, value: str) -> None:
    hidden = hide(agent(env={name: value}), {})
    assert hidden.job["agents"][0]["env"] == {name: value}
    assert (hidden.variables, hidden.findings) == ({}, [])


def test_a_variable_of_another_value_keeps_its_name() -> None:
    job = {"agents": [{"env": {"OPENAI_API_KEY": "one"}}, {"env": {"OPENAI_API_KEY": "two"}}]}
    hidden = hide(job, {"OPENAI_API_KEY": "three"})
    assert hidden.variables == {"OPENAI_API_KEY_2": "one", "OPENAI_API_KEY_3": "two"}
    assert hidden.job["agents"][1]["env"] == {"OPENAI_API_KEY": "${OPENAI_API_KEY_3}"}
    assert hide(agent(env={"OPENAI_API_KEY": "three"}), {"OPENAI_API_KEY": "three"}).variables == {}


def test_a_default_that_is_a_secret_goes_too() -> None:
    hidden = hide(agent(env={"A_KEY": f"${{MINE:-{KEY}}}"}), {})
    assert (hidden.job["agents"][0]["env"], hidden.variables) == ({"A_KEY": "${MINE}"}, {"MINE": KEY})
    hidden = hide(agent(env={"A_KEY": f"${{MINE:-{KEY}}}"}), {"MINE": "set"})
    assert (hidden.job["agents"][0]["env"], hidden.variables) == ({"A_KEY": "${MINE}"}, {})


def test_the_tables_of_sandbox_and_verifier_are_looked_at() -> None:
    hidden = hide({"environment": {"env": {"T_TOKEN": "t-1"}}, "verifier": {"env": {"V_KEY": "v-1"}}}, {})
    assert hidden.variables == {"T_TOKEN": "t-1", "V_KEY": "v-1"}


@pytest.mark.parametrize(
    ("job", "where"),
    [
        (agent(kwargs={"api_key": "whatever"}), "agents.0.kwargs.api_key"),
        (
            agent(kwargs={"llm_kwargs": {"headers": {"Authorization": "Bearer x"}}}),
            "agents.0.kwargs.llm_kwargs.headers",
        ),
        (agent(kwargs={"api_base": "https://u:pw@host/v1"}), "agents.0.kwargs.api_base"),
        (agent(model_name=f"openai/{KEY}"), "agents.0.model_name"),
        ({"datasets": [{"repo": "https://u:hf_abcdefghijklmnopqr123@hub/x"}]}, "datasets.0.repo"),
    ],
)
def test_a_secret_elsewhere_is_refused(job: dict[str, object], where: str) -> None:
    findings = hide(job, {}).findings
    assert [(finding.code, finding.level) for finding in findings] == [("bench.secret_in_clear", "error")]
    assert findings[0].object.startswith(where)
    assert "hf_abc" not in findings[0].line() and "whatever" not in findings[0].line()


@pytest.mark.parametrize(
    "name", ["hf-model-inference", "openai/sky-t1-32b-preview-long-name", "sk-learn-without-any-digits-at-all", "hfx_1"]
)
def test_a_name_that_begins_like_a_key_is_none(name: str) -> None:
    assert hide(agent(model_name=name, kwargs={"x": name}), {}).findings == []
    assert shown(name) == name


def test_what_is_shown_has_no_key_and_no_password() -> None:
    assert shown(f"asks https://user:word@host/v1 with {KEY}") == "asks https://[redacted]@host/v1 with [redacted]"


def test_options_with_such_names_are_no_secrets() -> None:
    kwargs = {"max_thinking_tokens": "5", "session_id": "a", "session_id_headers": ["X-Session-ID"], "max_tokens": "1"}
    assert hide(agent(kwargs=kwargs, model_api_key_name="MY_KEY"), {}).findings == []
