"""The command line and the TOML file of a training run: names, types, paths, precedence, messages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from chz.tiepin import CastError, _simplistic_try_cast
from hypothesis import given
from hypothesis import strategies as st

from console.errors import UsageError
from console.training.options import RunOptions, parse
from console.training.schema import Option, help_text, load_schema
from console.training.schema_values import ValueProblem, from_text

REQUIRED = {
    "config.learning_rate": "1e-6",
    "config.model_name": "Qwen/Qwen3.6-35B-A3B",
    "config.max_tokens": "8192",
    "config.log_path": "/tmp/harbor-tinker",
    "config.dataset_builder.tasks_dir": "/data/tasks",
    "harbor.trial_config": "/data/trial.json",
}
BASE = [f"{key}={value}" for key, value in REQUIRED.items()]
COMMAND = """config.base_url=http://gateway:10613
  config.model_name=Qwen/Qwen3.6-35B-A3B config.renderer_name=qwen3_5
  config.lora_rank=16 config.learning_rate=1e-6 config.max_tokens=8192 config.loss_fn=ppo
  config.ttl_seconds=None config.log_path=/tmp/harbor-tinker
  config.dataset_builder.tasks_dir=/data/harbor-tasks/terminal-bench
  config.dataset_builder.groups_per_batch=4 config.dataset_builder.group_size=8
  harbor.trial_config=trial.json
  harbor.listen_host=0.0.0.0 harbor.advertised_host=192.0.2.1"""
DOCUMENTED = COMMAND.split()


def refused(*words: str, base: list[str] = BASE, cwd: Path | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        parse([*base, *words], cwd=cwd)
    text = str(caught.value)
    assert "\n" not in text and caught.value.exit_code == 2
    return text


def test_the_documented_command_line(tmp_path: Path) -> None:
    options = parse(DOCUMENTED, cwd=tmp_path)
    assert options.config == {
        "base_url": "http://gateway:10613",
        "model_name": "Qwen/Qwen3.6-35B-A3B",
        "renderer_name": "qwen3_5",
        "lora_rank": 16,
        "learning_rate": 1e-6,
        "max_tokens": 8192,
        "loss_fn": "ppo",
        "ttl_seconds": None,
        "log_path": "/tmp/harbor-tinker",
        "dataset_builder.tasks_dir": "/data/harbor-tasks/terminal-bench",
        "dataset_builder.groups_per_batch": 4,
        "dataset_builder.group_size": 8,
    }
    assert options.harbor.trial_config == str(tmp_path / "trial.json")
    assert (options.harbor.listen_host, options.harbor.advertised_host) == ("0.0.0.0", "192.0.2.1")


def test_defaults() -> None:
    options = parse(BASE)
    assert options.value("config.dataset_builder.groups_per_batch") == 4
    assert options.value("config.dataset_builder.group_size") == 4
    assert options.value("config.dataset_builder.epochs") == 1
    assert options.value("config.ttl_seconds") == 604800
    assert options.value("config.recipe_name")
    assert options.harbor.reward_key == "reward" and options.harbor.reward_limit == 1e6
    assert options.harbor.listen_host == options.harbor.advertised_host == "127.0.0.1"
    assert options.harbor.max_parallel_trials_per_group == 4
    assert options.failure_policy(interactive=True) == "hold"
    assert options.failure_policy(interactive=False) == "stop"
    assert parse([*BASE, "harbor.on_failure=retry"]).failure_policy(interactive=True) == "retry"
    with pytest.raises(KeyError):
        options.value("config.nothing")


def test_missing_required_options_are_all_named() -> None:
    for key in REQUIRED:
        text = refused(base=[word for word in BASE if not word.startswith(key + "=")])
        assert text.startswith("missing: ") and key in text
    assert all(key in refused(base=[]) for key in REQUIRED)


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("config.lora_rnk=3", ["unknown option config.lora_rnk", "config.lora_rank?"]),
        ("lora_rank=3", ["lora_rank", "config.lora_rank?"]),
        ("config.group_size=3", ["config.dataset_builder.group_size?"]),
        ("harbor.reward_ky=x", ["harbor.reward_key?"]),
        ("config.zzz=3", ["unknown option config.zzz", "--help"]),
        ("config.max_tokens@=config.lora_rank", ["config.max_tokens@"]),
        ("config.lora_rank=sixteen", ["config.lora_rank", "whole number", "'sixteen'"]),
        ("config.lora_rank=1.5", ["whole number"]),
        ("config.learning_rate=nan", ["config.learning_rate", "finite"]),
        ("config.compute_post_kl=yes", ["true or false"]),
        ("config.loss_fn=pppo", ["one of", "ppo"]),
        ("config.loss_fn_config=[1]", ["dictionary"]),
        ('config.loss_fn_config={"a": 1e999}', ["finite"]),
        ("harbor.on_failure=explode", ["stop, hold, retry"]),
        ("config.max_steps=", ["config.max_steps"]),
        ("harbor.trial_config=", ["harbor.trial_config", "path"]),
        ("config.log_path=/tmp/x\udcff", ["config.log_path is not UTF-8"]),
        ("--config.lora_rank=3", ["without dashes", "config.lora_rank=3"]),
        ("--lora-rank=3", ["config.lora_rank=VALUE"]),
        ("--headles", ["--headless?"]),
        ("something", ["'something'", "key=value"]),
    ],
)
def test_mistakes(word: str, parts: list[str]) -> None:
    text = refused(word)
    assert all(part in text for part in parts), text


def test_later_values_win_and_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    options = parse([*BASE, "config.lora_rank=8", "config.lora_rank=4", "config.log_path=~/runs/x"], cwd=tmp_path)
    assert options.value("config.lora_rank") == 4
    assert options.log_path == tmp_path / "home/runs/x"
    assert parse([*BASE, "config.log_path=runs"], cwd=tmp_path).log_path == tmp_path / "runs"


TOML = """
[config]
learning_rate = 1e-5
model_name = "Qwen/Qwen3.6-35B-A3B"
max_tokens = 64
log_path = "runs/a"
ttl_seconds = "None"
loss_fn = "ppo"
kl_reference_config.base_model = "Qwen/Qwen3-8B"
[config.loss_fn_config]
clip_low_threshold = 0.8
[config.dataset_builder]
tasks_dir = "../tasks"
group_size = 8
[harbor]
trial_config = "trial.json"
reward_limit = 5
[console]
name = "first light"
"""


def test_a_toml_file(tmp_path: Path) -> None:
    folder = tmp_path / "configs"
    folder.mkdir()
    (folder / "run.toml").write_text(TOML)
    options = parse(["configs/run.toml", "config.max_tokens=32", "harbor.trial_config=other.json"], cwd=tmp_path)
    assert options.log_path == folder / "runs/a"
    assert options.tasks_dir == tmp_path / "tasks"
    assert options.harbor.trial_config == str(tmp_path / "other.json")
    assert options.value("config.max_tokens") == 32 and options.value("config.ttl_seconds") is None
    assert options.value("config.loss_fn_config") == {"clip_low_threshold": 0.8}
    assert options.value("config.kl_reference_config.base_model") == "Qwen/Qwen3-8B"
    assert options.harbor.reward_limit == 5.0 and options.console.name == "first light"
    assert options.source == str(folder / "run.toml")


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (("max_tokens = 64", "max_tokens = true"), ["run.toml", "config.max_tokens", "whole number"]),
        (("max_tokens = 64", 'max_tokens = "64"'), ["config.max_tokens", "whole number"]),
        (("group_size", "group_sise"), ["run.toml", "config.dataset_builder.group_size?"]),
        (("[console]", "[consol]"), ["run.toml", "unknown option consol.name"]),
        (("[config]", "[config"), ["run.toml", "not valid TOML"]),
        (('log_path = "runs/a"', ""), ["missing", "config.log_path"]),
        (('ttl_seconds = "None"', "stream_minibatch_config = []\nlora = 1"), ["config.lora", "config.lora_rank?"]),
    ],
)
def test_mistakes_in_a_toml_file(tmp_path: Path, change: tuple[str, str], parts: list[str]) -> None:
    (tmp_path / "run.toml").write_text(TOML.replace(*change))
    text = refused("run.toml", base=[], cwd=tmp_path)
    assert all(part in text for part in parts), text


def test_one_existing_toml_file(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TOML)
    assert "only one" in refused("a.toml", "a.toml", base=[], cwd=tmp_path)
    assert "b.toml" in refused("b.toml", base=[], cwd=tmp_path)


# --- values are read as chz reads them ------------------------------------------------------------------------------

CASES = {
    "bool": (Option(key="k", kind="bool", help="h"), bool),
    "int": (Option(key="k", kind="int", help="h"), int),
    "int|None": (Option(key="k", kind="int", help="h", nullable=True), int | None),
    "float": (Option(key="k", kind="float", help="h"), float),
    "float|None": (Option(key="k", kind="float", help="h", nullable=True), float | None),
    "str|None": (Option(key="k", kind="str", help="h", nullable=True), str | None),
    "list": (Option(key="k", kind="list", help="h"), list[str]),
    "dict": (Option(key="k", kind="dict", help="h"), dict[str, object]),
}
WORDS = ["None", "none", "true", "False", "1", "0", "t", "-3", "1e-6", " 7", "1_000", "x", "", "a,b", "[1]", "['a']"]
WORDS += ["{}", "{'a': 1}", '{"a": [1, 2]}', "{1: 2}", "1.0", "0x10", "+5", "'q'"]


@pytest.mark.parametrize("case", CASES)
@given(text=st.one_of(st.sampled_from(WORDS), st.text(max_size=8)))
def test_values_are_read_as_the_cookbooks_parser_reads_them(case: str, text: str) -> None:
    option, annotation = CASES[case]
    try:
        ours = from_text(option, text)
    except ValueProblem:
        ours = ValueProblem
    try:
        theirs = _simplistic_try_cast(text, annotation)
    except (CastError, RecursionError, MemoryError):
        theirs = ValueProblem
    if isinstance(theirs, float) and not (abs(theirs) < float("inf")):
        theirs = ValueProblem  # we refuse what cannot be trained with
    assert ours == theirs or (case == "list" and list(theirs) == ours)


def test_json_spelling_works_in_dictionaries_too() -> None:
    options = parse([*BASE, 'config.loss_fn_config={"a": true, "b": null}'])
    assert options.value("config.loss_fn_config") == {"a": True, "b": None}


# --- handing over, recording ----------------------------------------------------------------------------------------


def test_the_engine_reads_what_was_written(tmp_path: Path) -> None:
    options = parse([*DOCUMENTED, 'config.loss_fn_config={"a": 0.2}', "console.hold_timeout=30"], cwd=tmp_path)
    path = tmp_path / "options.json"
    path.write_text("something longer than the options " * 500)
    path.chmod(0o644)
    options.write(path)
    assert RunOptions.from_json(path.read_bytes()) == options
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageError):
        RunOptions.from_json(b'{"config": 3}')


def test_overrides_show_what_differs_without_secrets() -> None:
    words = [
        "config.lora_rank=32",  # the default
        "config.base_url=http://me:hunter2@gateway:1/path",
        'config.loss_fn_config={"api_key": "tml-abc", "n": 1}',
        "harbor.reward_key=score",
        "harbor.on_failure=retry",
    ]
    shown = parse([*BASE, *words]).overrides()
    assert "config.lora_rank" not in shown and "config.save_every" not in shown
    assert shown["config.max_tokens"] == 8192 and shown["harbor.reward_key"] == "score"
    assert shown["config.base_url"] == "http://[redacted]@gateway:1/path"
    assert "tml-abc" not in str(shown) and "hunter2" not in str(shown)
    assert all(value is None or isinstance(value, str | int | float | bool) for value in shown.values())


# --- help -----------------------------------------------------------------------------------------------------------


def test_help_names_every_option_with_type_default_and_meaning() -> None:
    text = " ".join(help_text().split())
    for option in load_schema().options:
        assert f"{option.key} ({option.type_name}, " in text
        assert option.help in text and option.help.endswith(".")


def test_parsing_and_help_import_nothing_heavy() -> None:
    code = (
        "import sys; from console.training.options import parse; from console.training.schema import help_text\n"
        "from console.training.preflight import preflight\n"
        f"help_text(); preflight(parse({BASE!r}), {{}})\n"
        "heavy = {'torch', 'tinker', 'harbor', 'textual', 'litellm', 'chz', 'transformers'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
