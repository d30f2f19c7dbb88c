"""The committed schema against the installed cookbook, and the config that the cookbook gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from tinker_cookbook.rl import train

from console.errors import UsageError
from console.state.thresholds import AlarmThresholds
from console.training import schema_build
from console.training.cookbook_config import build_cookbook_config
from console.training.dataset import HarborDatasetBuilder
from console.training.options import ConsoleOptions, HarborOptions, parse
from console.training.schema import SCHEMA_FILE, load_schema
from console.training.strategy import HarborTrials

COMMAND = """config.learning_rate=1e-6 config.model_name=Qwen/Qwen3.6-35B-A3B config.max_tokens=8192 config.loss_fn=ppo
  config.log_path=/tmp/x config.dataset_builder.tasks_dir=/data/tasks config.dataset_builder.group_size=8
  harbor.trial_config=trial.json"""
BASE = COMMAND.split()


def test_the_committed_schema_is_what_is_installed() -> None:
    assert schema_build.encode(schema_build.build()) == SCHEMA_FILE.read_bytes(), (
        "run python -m console.training.schema_build"
    )


def test_the_schema_has_every_field_of_the_cookbook_and_of_ours() -> None:
    keys = [option.key for option in load_schema().options]
    for name in train.Config.__chz_fields__:
        assert any(key == f"config.{name}" or key.startswith(f"config.{name}.") for key in keys), name
    ours = {f"harbor.{name}" for name in HarborOptions.__struct_fields__}
    ours |= {f"console.{name}" for name in ConsoleOptions.__struct_fields__} - {"console.alarms"}
    ours |= {f"console.alarms.{name}" for name in AlarmThresholds.__struct_fields__}
    assert {key for key in keys if not key.startswith("config.")} == ours
    assert len(set(keys)) == len(keys)


def test_the_cookbook_gets_what_was_given_and_its_own_defaults() -> None:
    config = build_cookbook_config(parse([*BASE, "config.ttl_seconds=None", "config.lora_rank=16"]))
    assert type(config) is train.Config
    assert (config.learning_rate, config.max_tokens, config.lora_rank, config.loss_fn) == (1e-6, 8192, 16, "ppo")
    assert config.ttl_seconds is None and config.save_every == 20 and config.base_url is None
    assert config.recipe_name == load_schema().get("config.recipe_name").default
    assert config.dataset_builder == HarborDatasetBuilder(tasks_dir="/data/tasks", group_size=8)
    assert isinstance(config.rollout_error_tolerance, HarborTrials)


def test_defaults_shown_in_the_help_are_the_ones_that_count() -> None:
    config = build_cookbook_config(parse(BASE))
    for option in load_schema().options:
        names = option.key.split(".")
        if names[0] != "config" or option.required or option.refused or len(names) > 2:
            continue
        value = getattr(config, names[1])
        assert value == parse(BASE).value(option.key), option.key


def test_nested_options_lists_and_overriding_arguments(tmp_path: Path) -> None:
    words = [
        "config.kl_reference_config.base_model=Qwen/Qwen3-8B",
        "config.termination.limit_stop_reasons=max_turns",
        "config.evaluator_builders=os:getcwd",
        'config.loss_fn_config={"clip_low_threshold": 0.8}',
    ]
    config = build_cookbook_config(parse([*BASE, *words]), base_url="http://127.0.0.1:9", log_path=str(tmp_path))
    assert config.kl_reference_config.base_model == "Qwen/Qwen3-8B"
    assert config.termination.limit_stop_reasons == ("max_turns",)
    assert len(config.evaluator_builders) == 1 and config.loss_fn_config == {"clip_low_threshold": 0.8}
    assert (config.base_url, config.log_path) == ("http://127.0.0.1:9", str(tmp_path))
    builder = HarborDatasetBuilder(tasks_dir="/elsewhere")
    assert build_cookbook_config(parse(BASE), dataset_builder=builder).dataset_builder is builder


@pytest.mark.parametrize(
    "word",
    [
        "config.evaluator_builders=nothing:here",
        "config.termination.grader_timeout_seconds=-1",
        "config.kl_reference_config.load_checkpoint_path=x",
        "config.rollout_error_tolerance=true",
        "config.async_config.groups_per_batch=2",
    ],
)
def test_what_the_cookbook_refuses_is_one_line(word: str) -> None:
    with pytest.raises(UsageError) as caught:
        build_cookbook_config(parse([*BASE, word]))
    assert "\n" not in str(caught.value) and "config" in str(caught.value)
