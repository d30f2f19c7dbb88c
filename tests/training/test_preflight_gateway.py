"""What options and environment say of the gateway, and options against what a gateway takes."""

from __future__ import annotations

import importlib.metadata
import shlex
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from console.errors import UsageError
from console.findings import Finding
from console.gateway.command import command_text
from console.gateway.probe import ServedModel
from console.gateway.profiles import PROFILES, GatewayProfile
from console.training.options import RunOptions, parse
from console.training.preflight_gateway import gateway_options, profile_findings

MODEL = "Qwen/Qwen3.6-35B-A3B"
REFERENCE = [
    "config.base_url=http://gateway:10613", f"config.model_name={MODEL}", "config.renderer_name=qwen3_5",
    "config.lora_rank=16", "config.learning_rate=1e-6", "config.max_tokens=8192", "config.loss_fn=ppo",
    "config.ttl_seconds=None", "config.log_path=/tmp/harbor-tinker", "config.dataset_builder.tasks_dir=/data/tasks",
    "config.dataset_builder.groups_per_batch=4", "config.dataset_builder.group_size=8",
    "harbor.trial_config=trial.json", "console.context_window=65529",
]  # fmt: skip
"""As the recipe documents it."""


def profile(name: str, window: int | None = None, **known: Any) -> GatewayProfile:
    """As it is detected for a run of the model."""
    models = (ServedModel(name=MODEL, context_window=window),)
    return msgspec.structs.replace(PROFILES[name], models=models, **known)


def told(options: RunOptions, of: GatewayProfile) -> list[Finding]:
    return profile_findings(options, of)


def test_the_reference_run_fits_the_reference_gateway() -> None:
    options = parse(REFERENCE)
    assert told(options, profile("miles", max_rank=16, modules=("attn", "mlp", "unembed"), context_window=65529)) == []


@pytest.mark.parametrize(
    ("words", "of", "level", "code", "where", "remedy"),
    [
        (
            ["config.lora_rank=32"], profile("miles", max_rank=16),
            "error", "gateway.rank", "config.lora_rank", "set config.lora_rank=16",
        ),
        (
            [], profile("miles", modules=("attn", "mlp")),
            "error", "gateway.layout", "config.base_url", "--target-modules attn,mlp,unembed",
        ),
        ([], profile("skyrl"), "note", "gateway.layout", "config.base_url", ""),
        (
            ["config.ttl_seconds=604800"], profile("miles"),
            "error", "gateway.ttl", "config.ttl_seconds", "set config.ttl_seconds=None",
        ),
        (
            ["config.ttl_seconds=604800"], profile("skyrl", modules=()),
            "warning", "gateway.ttl", "config.ttl_seconds", "set config.ttl_seconds=None",
        ),
        (
            ["config.loss_fn=stable_reinforce"], profile("miles"),
            "error", "gateway.loss", "config.loss_fn", "cross_entropy, importance_sampling, ppo, cispo, dro",
        ),
        (
            ["console.context_window=65536"], profile("miles"),
            "warning", "gateway.window", "console.context_window", "set console.context_window=65529",
        ),
        (
            ["console.context_window=None"], profile("miles"),
            "warning", "gateway.window", "console.context_window", "65529 for 65536",
        ),
        (
            ["console.context_window=8192"], profile("embedded"),
            "error", "gateway.window", "config.max_tokens", "lower it",
        ),
        (
            ["console.context_window=65536"], profile("hosted", window=32768),
            "warning", "gateway.window", "console.context_window", "remove it",
        ),
        (
            ["config.max_tokens=32768", "console.context_window=None"], profile("hosted", window=32768),
            "error", "gateway.window", "config.max_tokens", "lower it",
        ),
        (
            ["config.model_name=Qwen/Qwen3-8B"], profile("miles"),
            "error", "gateway.model", "config.model_name", f"it serves {MODEL}",
        ),
    ],
)  # fmt: skip
def test_each_rule(words: list[str], of: GatewayProfile, level: str, code: str, where: str, remedy: str) -> None:
    (finding,) = told(parse([*REFERENCE, *words]), of)
    assert (finding.level, finding.code, finding.object) == (level, code, where)
    assert remedy in finding.remedy and "\n" not in finding.line()


def test_the_cookbooks_own_lifetime_is_told_as_such() -> None:
    words = [word for word in REFERENCE if not word.startswith("config.ttl_seconds")]
    (finding,) = told(parse(words), profile("miles"))
    assert finding.code == "gateway.ttl" and "604800, the cookbook's default" in finding.message
    (finding,) = told(parse([*words, "config.ttl_seconds=7200"]), profile("miles"))
    assert "is 7200;" in finding.message
    assert told(parse([*words, "config.ttl_seconds=7200"]), profile("hosted")) == []


def test_a_gateway_of_many_models_is_not_recited() -> None:
    models = tuple(ServedModel(name=f"m{index:03}") for index in range(200))
    (finding,) = told(parse(REFERENCE), msgspec.structs.replace(PROFILES["hosted"], models=models))
    assert finding.code == "gateway.model" and finding.remedy.endswith("m007 and 192 more")


def test_an_sdk_that_cannot_be_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.39.0")
    for name in ("miles", "skyrl"):
        (finding,) = [found for found in told(parse(REFERENCE), profile(name)) if found.code == "gateway.sdk"]
        assert (finding.level, finding.object, finding.remedy) == ("error", "tinker", "install tinker~=0.38.0")
    assert told(parse(REFERENCE), profile("hosted")) == []


def test_the_smaller_window_counts() -> None:
    assert profile("hosted", window=32768, context_window=65536).window(MODEL) == 32768
    assert profile("hosted", window=32768, context_window=1000).window(MODEL) == 1000
    assert profile("miles", context_window=65529).window(MODEL) == 65529
    assert profile("miles").window(MODEL) is None


@pytest.mark.parametrize("key", ["sk-or-v1-secret", "TML-secret", "secret"])
def test_a_key_that_the_sdk_would_refuse(key: str) -> None:
    (finding,) = gateway_options(parse(REFERENCE), {"TINKER_API_KEY": key})
    assert (finding.level, finding.code, finding.object) == ("error", "gateway.key", "TINKER_API_KEY")
    assert key not in finding.line() and "tml-" in finding.line()


@pytest.mark.parametrize("key", ["tml-tenant", "eyJhbGciOi.x.y", " tml-tenant\n"])
def test_a_key_that_the_sdk_takes(key: str) -> None:
    assert list(gateway_options(parse(REFERENCE), {"TINKER_API_KEY": key})) == []


def test_the_address_may_come_from_the_environment() -> None:
    words = [word for word in REFERENCE if not word.startswith("config.base_url")]
    env = {"TINKER_API_KEY": "tml-t", "TINKER_BASE_URL": "http://elsewhere:10613"}
    (finding,) = gateway_options(parse(words), env)
    assert (finding.level, finding.code) == ("note", "gateway.hosted") and "TINKER_BASE_URL" in finding.message
    (finding,) = gateway_options(parse(words), env | {"TINKER_BASE_URL": "elsewhere"})
    assert (finding.level, finding.code, finding.object) == ("error", "gateway.url", "TINKER_BASE_URL")
    (finding,) = gateway_options(parse(words), env | {"TINKER_BASE_URL": ""})
    assert "the hosted Tinker service" in finding.message


# --- the launch command ---


def words_of(text: str) -> list[str]:
    """The words that a shell would run, behind `python`."""
    script = 'python() { printf "%s\\0" "$@"; }\n' + text
    run = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert run.stderr == ""
    return run.stdout.split("\0")[:-1]


def test_the_launch_command_of_the_recipe() -> None:
    words = words_of(command_text(["miles", "--checkpoint", "/root/models/Qwen3.6-35B-A3B"]))
    assert words[:2] == ["examples/multi_lora/serve_qwen3_30b_a3b_tinker.py", "serve"]
    assert dict(zip(words[2::2], words[3::2])) == {
        "--hf-checkpoint": "/root/models/Qwen3.6-35B-A3B",
        "--model-type": "qwen3.6-35B-A3B_lora",
        "--lora-rank": "16",
        "--lora-alpha": "32",
        "--n-adapters": "1",
        "--target-modules": "attn,mlp,unembed",
        "--extra-args": "--tinker-base-model Qwen/Qwen3.6-35B-A3B --max-tokens-per-gpu 65536 "
        "--max-position-embeddings 65536 --sglang-context-length 65536 --recompute-granularity full "
        "--recompute-method uniform --recompute-num-layers 1 --qkv-format thd",
    }


def test_the_clients_options_beside_it_fit() -> None:
    text = command_text(
        [
            "miles",
            "--checkpoint",
            "/m/Qwen3-8B",
            "--window",
            "32768",
            "--rank",
            "8",
            "--adapters",
            "4",
            "--host",
            "gpu1",
        ]
    )
    options = [word for line in text.splitlines() if line.startswith("#   ") for word in line.split()[1:]]
    parsed = parse([*REFERENCE, *options])
    assert (
        parsed.value("config.base_url") == "http://gpu1:10613" and parsed.value("config.model_name") == "Qwen/Qwen3-8B"
    )
    assert (parsed.value("config.lora_rank"), parsed.console.gateway_rank) == (8, 8)
    assert parsed.console.context_window == 32761
    assert "--lora-rank 8 --lora-alpha 16 --n-adapters 4" in text and "--sglang-context-length 32768" in text


def test_a_path_with_spaces_stays_one_word() -> None:
    text = command_text(["miles", "--checkpoint", "/my models/a b", "--name", "o'brien/m", "--model-type", "x"])
    words = words_of(text)
    assert words[3] == "/my models/a b" and shlex.split(words[-1])[:2] == ["--tinker-base-model", "o'brien/m"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "a kind of gateway is missing"),
        (["skyrl"], "no command is known for 'skyrl'"),
        (["miles"], "--checkpoint: see `quarterdeck gateway command miles --help`"),
        (["miles", "--checkpoint", "/m/Llama-8B"], "give --name and --model-type"),
        (["miles", "--checkpoint", "/m/Qwen3-8B", "--rank", "0"], "--rank: '0' is not a number of 1 or more"),
        (["miles", "--checkpoint", "/m/Qwen3-8B", "--window", "8"], "--window 8: too small"),
        (["miles", "--checkpoint", "/m/Qwen3-8B", "--modules", "attn,head"], "is not some of attn,mlp,unembed"),
        (["miles", "--checkpoint", "/m/Qwen3-8B", "--what"], "unrecognized arguments: --what"),
    ],
)
def test_a_command_that_cannot_be_made(words: list[str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        command_text(words)
    assert said in str(caught.value) and "\n" not in str(caught.value) and caught.value.exit_code == 2


def test_the_smallest_window_has_room_for_a_prompt_and_a_sample() -> None:
    assert "console.context_window=2\n" in command_text(["miles", "--checkpoint", "/m/Qwen3-8B", "--window", "9"])


def test_a_layout_that_the_cookbook_does_not_ask_for_is_said() -> None:
    text = command_text(["miles", "--checkpoint", "/m/Qwen3-8B", "--modules", "mlp, attn"])
    assert "--target-modules attn,mlp\n" in text.replace(" \\\n", "\n") and "# The cookbook trains" in text
    assert "--help" not in command_text(["--help"]).splitlines()[0]
    assert "What the parts mean" in command_text(["--help"])


def test_the_example_config_fits_the_profile_it_names() -> None:
    from console.resources import configs_dir

    file = Path(configs_dir()) / "terminal-bench-2.toml"
    options = parse([str(file), "console.context_window=65529"])
    of = profile(options.console.gateway_profile, max_rank=16)
    assert [found.line() for found in told(options, of)] == []
