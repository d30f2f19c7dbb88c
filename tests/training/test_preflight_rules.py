"""What is refused before anything is started, and how it is said."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from console.commands import train
from console.errors import UsageError
from console.findings import Finding, errors, refuse, report, report_json
from console.training.options import RunOptions, parse
from console.training.preflight import preflight, preflight_harbor
from console.training.preflight_gateway import check_served, preflight_gateway

ENV = {"TINKER_API_KEY": "tml-secret", "E2B_API_KEY": "e2b-secret"}
TRIAL = {
    "environment": {"import_path": "console.trials.bwrap:BwrapEnvironment"},
    "agent": {
        "import_path": "console.trials.agent:TerminalAgent",
        "env": {"OPENAI_BASE_URL": "{proxy_url}/v1", "OPENAI_API_KEY": "{proxy_api_key}"},
    },
}


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A command line with nothing to complain about."""
    task = tmp_path / "tasks" / "one"
    task.mkdir(parents=True)
    (task / "task.toml").write_text("")
    (tmp_path / "trial.json").write_text(json.dumps(TRIAL))
    return [
        "config.base_url=http://gateway:10613",
        "config.model_name=Qwen/Qwen3.6-35B-A3B",
        "config.learning_rate=1e-6",
        "config.max_tokens=8192",
        "config.loss_fn=ppo",
        "config.ttl_seconds=None",
        f"config.log_path={tmp_path}/run",
        f"config.dataset_builder.tasks_dir={tmp_path}/tasks",
        f"harbor.trial_config={tmp_path}/trial.json",
    ]


def found(words: list[str], *more: str, env: dict[str, str] = ENV) -> list[Finding]:
    return preflight(parse([*words, *more]), env)


@pytest.mark.parametrize("place", ["/proc/run", "/proc/sys/a/b"])
def test_a_run_directory_that_cannot_be_made(words: list[str], place: str) -> None:
    (finding,) = found(words, f"config.log_path={place}")
    assert (finding.code, finding.object) == ("run.directory", "config.log_path")
    assert finding.message.startswith("nothing can be written in /proc")


def test_a_run_directory_leaves_nothing_behind(words: list[str], tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    assert found(words, f"config.log_path={tmp_path}/new/er/run") == []
    assert sorted(tmp_path.iterdir()) == before


def test_a_check_tells_of_everything_also_beside_a_value_that_does_not_fit(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(train, "preflight_findings", lambda options, env, *, whole: preflight(options, ENV))
    file = tmp_path / "run.toml"
    file.write_text("harbor.runners = 'many'\n")
    bad = [
        str(file),
        "config.lora_rank=x",
        "config.unknown=1",
        "config.num_substeps=-1",
        "console.notify_command=no/such",
    ]
    assert train.train_main(["--check", "--json", *words, *bad]) == 2
    told = {f["object"]: f["message"] for f in json.loads(capsys.readouterr().out)["findings"]}
    assert set(told) == {
        "harbor.runners", "config.lora_rank", "config.unknown", "config.num_substeps", "console.notify_command",
    }  # fmt: skip
    assert told["harbor.runners"].startswith(f"{file}: ") and "config.lora_rank" not in told["config.lora_rank"]
    assert train.train_main(["--check", *words, "config.max_tokens=x", "config.lora_rank=y"]) == 2, "one is required"
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["option.value", "option.value"]
    with pytest.raises(UsageError, match=r"^config\.lora_rank"):
        train.train_main(["--headless", *words, "config.lora_rank=x", "config.max_tokens=y"])


def test_a_notify_command_that_cannot_be_run(words: list[str], tmp_path: Path) -> None:
    tool = tmp_path / "tool with space"
    option = f"console.notify_command='{tool}' --x"
    (finding,) = found(words, option)
    assert (finding.code, finding.object, finding.message) == (
        "notify.command", "console.notify_command", f"{tool} does not exist",
    )  # fmt: skip
    tool.write_text("#!/bin/sh\n")
    assert found(words, option)[0].message == f"{tool} cannot be executed"
    tool.chmod(0o755)
    assert found(words, option) == []
    assert found(words, "console.notify_command=no-such-program-here x")[0].code == "notify.command"
    assert found(words, "console.notify_command=sh -c true") == []


def test_a_good_command_line(words: list[str]) -> None:
    assert found(words) == []
    assert preflight_harbor(parse(words)) == []


def test_a_sandbox_of_ours_may_have_the_way_to_the_capture_gateway(words: list[str], tmp_path: Path) -> None:
    relayed = {"import_path": "console.trials.bwrap:BwrapEnvironment", "kwargs": {"relay": "{proxy_url}"}}
    (tmp_path / "trial.json").write_text(json.dumps(TRIAL | {"environment": relayed}))
    assert [finding.line() for finding in preflight_harbor(parse(words)) if finding.code.startswith("trial.")] == []


@pytest.mark.parametrize(
    ("word", "code", "where"),
    [
        ("config.rollout_error_tolerance=None", "option.refused", "config.rollout_error_tolerance"),
        ("config.rollout_error_tolerance=false", "option.refused", "config.rollout_error_tolerance"),
        ("config.rollout_error_tolerance=FailFast", "option.refused", "config.rollout_error_tolerance"),
        ("config.stream_minibatch_config.num_minibatches=2", "option.refused", "config.stream_minibatch_config"),
        ("config.async_config=AsyncConfig", "option.refused", "config.async_config"),
        ("config.temperature=0.8", "option.temperature", "config.temperature"),
        ("config.rolling_save_every=5", "option.rolling", "config.rolling_save_every"),
        ("config.kl_penalty_coef=0.1", "option.kl_reference", "config.kl_penalty_coef"),
        ("config.kl_reference_config.load_checkpoint_path=x", "option.kl_reference", "config.kl_reference_config"),
        ("config.learning_rate=0", "option.range", "config.learning_rate"),
        ("config.max_steps=0", "option.range", "config.max_steps"),
        ("config.save_every=-1", "option.range", "config.save_every"),
        ("config.kl_penalty_coef=-0.5", "option.range", "config.kl_penalty_coef"),
        ("config.dataset_builder.group_size=0", "option.range", "config.dataset_builder.group_size"),
        ("harbor.max_parallel_trials_per_group=0", "option.range", "harbor.max_parallel_trials_per_group"),
        ("harbor.reward_limit=0", "option.range", "harbor.reward_limit"),
        ("harbor.reward_key=", "option.empty", "harbor.reward_key"),
        ("config.model_name=unknown/model", "option.renderer", "config.renderer_name"),
        ("config.model_name=noslash", "option.renderer", "config.renderer_name"),
        ("config.base_url=gateway:10613", "gateway.url", "config.base_url"),
        ("config.base_url=http://gateway:port", "gateway.url", "config.base_url"),
        ("console.gateway=embedded", "gateway.both", "config.base_url"),
        ("config.dataset_builder.tasks_dir=/nowhere/at/all", "tasks.missing", "config.dataset_builder.tasks_dir"),
        ("harbor.trial_config=/nowhere/trial.json", "trial.file", "harbor.trial_config=/nowhere/trial.json"),
        ("config.log_path=/dev/null/run", "run.directory", "config.log_path"),
    ],
)
def test_each_rule_refuses_in_one_line(words: list[str], word: str, code: str, where: str) -> None:
    (finding,) = errors(found(words, word))
    assert finding.code == code and finding.object.startswith(where) and finding.message
    with pytest.raises(UsageError) as caught:
        refuse([finding])
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value) and where in str(caught.value)


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("config.loss_fn=importance_sampling", "option.loss"),
        ("config.dataset_builder.group_size=1", "option.group_size"),
        ("config.remove_constant_reward_groups=true", "option.constant_groups"),
        ("console.embedded_model=/models/x", "gateway.unused"),
    ],
)
def test_warnings_do_not_refuse(words: list[str], word: str, code: str) -> None:
    (finding,) = found(words, word)
    assert (finding.code, finding.level) == (code, "warning")
    refuse([finding])


def test_a_lifetime_goes_with_rolling_checkpoints(words: list[str]) -> None:
    assert errors(found(words, "config.rolling_save_every=5", "config.ttl_seconds=600")) == []


def test_a_named_renderer_is_taken(words: list[str]) -> None:
    assert found(words, "config.model_name=unknown/model", "config.renderer_name=role_colon") == []


def test_a_tasks_directory_without_tasks(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty" / "no-task").mkdir(parents=True)
    (tmp_path / "empty" / "task.toml").write_text("")
    (finding,) = found(words, f"config.dataset_builder.tasks_dir={tmp_path}/empty")
    assert finding.code == "tasks.none"


def test_keys_are_named_and_never_shown(words: list[str], tmp_path: Path) -> None:
    (finding,) = found(words, env={})
    assert (finding.code, finding.object) == ("gateway.key", "TINKER_API_KEY")
    assert "the Tinker SDK asks for one" in finding.message, "gateways without keys are served too"
    assert found(words, env={"TINKER_API_KEY": "  "})[0].code == "gateway.key"
    (tmp_path / "trial.json").write_text(json.dumps(TRIAL | {"environment": {"type": "e2b"}}))
    listen = ("harbor.listen_host=0.0.0.0", "harbor.allow_insecure=true")
    remote = found(words, *listen, "harbor.advertised_host=192.0.2.1", env={"TINKER_API_KEY": "tml-k"})
    assert [f.object for f in remote if not f.code.startswith("sandbox.")] == ["E2B_API_KEY"]
    reach = found(words)
    of_trial = [f.object for f in reach if not f.code.startswith("sandbox.")]
    assert of_trial == ["harbor.advertised_host", "harbor.listen_host"]
    assert not any(secret in report(remote + reach) for secret in ENV.values())


def test_the_embedded_gateway_needs_neither_key_nor_address(words: list[str], tmp_path: Path) -> None:
    embedded = [word for word in words if not word.startswith("config.base_url")] + ["console.gateway=embedded"]
    assert found(embedded, env={}) == []
    (finding,) = found(embedded, f"console.embedded_model={tmp_path}", env={})
    assert finding.code == "gateway.embedded_model"


def test_without_an_address_the_hosted_service_is_named(words: list[str]) -> None:
    (finding,) = found([word for word in words if not word.startswith("config.base_url")])
    assert (finding.code, finding.level) == ("gateway.hosted", "note")


def test_harbor_is_not_asked_about_a_file_that_cannot_be_read(words: list[str]) -> None:
    assert preflight_harbor(parse([*words, "harbor.trial_config=/nowhere/trial.json"])) == []


@pytest.mark.parametrize(
    ("served", "code"),
    [
        ({}, None),
        ({"Qwen/Qwen3.6-35B-A3B": None}, None),
        ({"Qwen/Qwen3.6-35B-A3B": 65529, "other": 1}, None),
        ({"Qwen/Qwen3.6-35B-A3B": 8192}, "gateway.window"),
        ({"Qwen/Qwen3-8B": 32768}, "gateway.model"),
    ],
)
def test_what_a_gateway_serves(words: list[str], served: dict[str, int | None], code: str | None) -> None:
    findings = check_served(parse(words), served)
    assert [finding.code for finding in findings] == ([code] if code else [])


async def test_a_gateway_that_does_not_answer(words: list[str]) -> None:
    with socket.socket() as held:  # bound and not listening: connections are refused
        held.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{held.getsockname()[1]}"
        (finding,) = await preflight_gateway(parse([*words, f"config.base_url={address}"]), ENV)
    assert (finding.code, finding.object) == ("gateway.unreachable", "config.base_url")
    assert address in finding.message and ENV["TINKER_API_KEY"] not in finding.line()


async def test_nobody_is_asked_without_an_address(words: list[str]) -> None:
    assert await preflight_gateway(parse([*words, "config.base_url=nonsense"]), ENV) == []
    embedded = [word for word in words if not word.startswith("config.base_url")]
    assert await preflight_gateway(parse([*embedded, "console.gateway=embedded"]), {}) == []
    assert await preflight_gateway(parse(embedded), ENV) == []


def test_reports(words: list[str]) -> None:
    findings = found(words, "config.temperature=2", "config.loss_fn=cispo", env={})
    lines = report(findings).splitlines()
    assert [line.split()[0] for line in lines] == ["error", "error", "warning"]
    body = json.loads(report_json(findings))
    assert body["ok"] is False and {f["code"] for f in body["findings"]} == {f.code for f in findings}
    assert json.loads(report_json([])) == {"ok": True, "findings": []} and report([]).startswith("ok")
    with pytest.raises(UsageError, match="1 more"):
        refuse(findings)


def test_options_survive_the_way_to_the_engine(words: list[str]) -> None:
    options = RunOptions.from_json(parse([*words, "config.temperature=2"]).to_json())
    assert [finding.code for finding in preflight(options, ENV)] == ["option.temperature"]
