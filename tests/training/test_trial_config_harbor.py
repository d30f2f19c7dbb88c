"""What the installed Harbor says about a trial file, before any sandbox exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.findings import Finding
from console.resources import configs_dir
from console.training.trial_config import load_trial_config
from console.trials.config_check import check_with_harbor

AGENT = {"import_path": "console.trials.agent:TerminalAgent"}
OURS: dict[str, Any] = {
    "agent": AGENT,
    "environment": {"import_path": "console.trials.bwrap:BwrapEnvironment"},
}


def only(config: dict[str, Any]) -> Finding:
    (finding,) = check_with_harbor(config)
    assert finding.level == "error" and finding.message and finding.remedy and "\n" not in finding.line()
    return finding


def test_the_documented_trial_file_has_an_option_that_harbor_lacks() -> None:
    kwargs = {"max_tokens": 8192, "max_seq_len": 65536, "config": {"model": {"model_kwargs": {"temperature": 0.8}}}}
    agent = {"name": "mini-swe-agent", "model_name": "openai/policy", "override_timeout_sec": 5400, "kwargs": kwargs}
    finding = only({"trials_dir": "/tmp/t", "environment": {"type": "e2b"}, "agent": agent})
    assert (finding.code, finding.object) == ("trial.unknown_kwarg", "agent.kwargs.max_seq_len")
    assert "mini-swe-agent" in finding.message and finding.remedy.startswith("remove it")


@pytest.mark.parametrize(
    ("change", "code", "where", "hint"),
    [
        ({"agnt": {}}, "trial.unknown_field", "agnt", "agent?"),
        ({"timeout_multipler": 2}, "trial.unknown_field", "timeout_multipler", "timeout_multiplier?"),
        ({"agent": AGENT | {"modelname": "x"}}, "trial.unknown_field", "agent.modelname", "agent.model_name?"),
        ({"verifier": {"disabled": True}}, "trial.unknown_field", "verifier.disabled", "verifier.disable?"),
        ({"timeout_multiplier": "x"}, "trial.invalid", "timeout_multiplier", "trial file"),
        ({"environment": {"type": "e3b"}}, "trial.invalid", "environment.type", "trial file"),
        ({"agent": {"name": "nopp"}}, "trial.agent", "agent.name", "nop?"),
        ({"agent": {"import_path": "console.nothing:X"}}, "trial.agent", "agent.import_path", "module:Class"),
        ({"environment": {"import_path": "console.nothing:X"}}, "trial.environment", "environment.import_path", ""),
        ({"agent": AGENT | {"kwargs": {"max_turn": 3}}}, "trial.unknown_kwarg", "agent.kwargs.max_turn", "max_turns?"),
        ({"agent": AGENT | {"kwargs": {"exec_timeout": 0}}}, "trial.kwargs", "agent.kwargs", "trial file"),
        (
            {"environment": {"type": "e2b", "kwargs": {"sandbox_timeout": 9}}},
            "trial.unknown_kwarg",
            "environment.kwargs.sandbox_timeout",
            "sandbox_timeout_sec?",
        ),
    ],
)
def test_mistakes(change: dict[str, Any], code: str, where: str, hint: str) -> None:
    finding = only(OURS | change)
    assert (finding.code, finding.object) == (code, where) and hint in finding.remedy


def test_placeholders_and_variables_are_no_mistake() -> None:
    env = {"OPENAI_BASE_URL": "{proxy_url}/v1", "OPENAI_API_KEY": "{proxy_api_key}", "X": "${NOT_SET_ANYWHERE}"}
    assert check_with_harbor(OURS | {"agent": AGENT | {"env": env}}) == []


@pytest.mark.parametrize("path", sorted((configs_dir() / "trials").glob("*.json")), ids=lambda path: path.name)
def test_the_bundled_trial_files(path: Path) -> None:
    assert check_with_harbor(load_trial_config(path)) == []
