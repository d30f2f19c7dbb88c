"""`python -m console.training.schema_build`: writes `schema.json` from the installed cookbook and our options.

`--check` compares instead, and exits 1 when they differ. Needs the engine extra.
"""

from __future__ import annotations

import argparse
import collections.abc
import importlib.metadata
import sys
import types
import typing
from enum import Enum
from typing import Any

import chz
import msgspec
from chz.util import MISSING_TYPE as _MISSING

from console.training.harbor_options import HarborOptions
from console.training.options import ConsoleOptions
from console.training.schema import SCHEMA_FILE, Option, Schema

RECIPE_NAME = "quarterdeck_harbor_rl"

REFUSED = {
    "rollout_error_tolerance": "the recipe sets it: failures of trials follow harbor.on_failure",
    "async_config": "training is synchronous: the batch is complete before the update",
    "stream_minibatch_config": "the cookbook hangs in this mode when a rollout fails",
}

PATHS = {"log_path", "dataset_builder.tasks_dir"}

HELP = {
    "learning_rate": "Learning rate of Adam.",
    "model_name": "Base model, as the gateway names it.",
    "recipe_name": "Recipe name that the Tinker service records with the session.",
    "max_tokens": "Tokens sampled for a model call that does not set its own limit.",
    "log_path": "Run directory: checkpoints, metrics, journal, captures.",
    "eval_every": "Steps between evaluations; 0 turns them off.",
    "save_every": "Steps between checkpoints; 0 keeps only the final one.",
    "evaluator_builders": "Evaluators to run, each as module:name.",
    "load_checkpoint_path": "Checkpoint whose weights training starts from, with a fresh optimizer.",
    "renderer_name": "Renderer between chat and tokens; the cookbook's recommendation for the model when None.",
    "wandb_project": "Weights & Biases project to log to.",
    "wandb_name": "Weights & Biases run name.",
    "session_name": "Display name of the Tinker session; wandb_name when None.",
    "kl_penalty_coef": "Weight of the KL penalty against a reference policy; 0 turns it off.",
    "kl_discount_factor": "Discount of the KL penalty over later tokens.",
    "kl_reference_config.base_model": "Base model of the KL reference; needed with kl_penalty_coef > 0.",
    "kl_reference_config.load_checkpoint_path": "Checkpoint of the KL reference; its base model when None.",
    "loss_fn": "Loss function of the Tinker service; the recipe is made for ppo.",
    "loss_fn_config": "Parameters of the loss, as the service names them.",
    "num_substeps": "Optimizer steps the batch is split into.",
    "lora_rank": "Rank of the LoRA adapter; at most what the gateway serves.",
    "temperature": "Must stay 1.0: agents sample by themselves, their temperature is set in the trial file.",
    "compute_post_kl": "Sample the KL after the update too; costs a forward pass.",
    "remove_constant_reward_groups": "Leave out groups whose rewards are all equal.",
    "rollout_error_tolerance": "Set by the recipe; setting it is refused.",
    "termination.zero_reward_on_limit": "Cap rewards at zero for rollouts at a limit of the cookbook; ours meet none.",
    "termination.limit_stop_reasons": "Stop reasons that count as such a limit.",
    "termination.skip_grading_on_timeout": "Give a rollout that timed out no grade; ours are graded by Harbor.",
    "termination.grader_timeout_seconds": "Time limit of the cookbook's own grader, in seconds.",
    "termination.pass_all_messages_to_grader": "Give the cookbook's own grader all messages.",
    "enable_trace": "Write the cookbook's trace events.",
    "span_chart_every": "Steps between the cookbook's Gantt charts; 0 turns them off. Needs plotly.",
    "async_config": "Off-policy mode of the cookbook; refused.",
    "stream_minibatch_config": "Streaming mode of the cookbook; refused.",
    "base_url": "Address of the Tinker gateway; the hosted Tinker service when None.",
    "ttl_seconds": "Lifetime of periodic checkpoints in seconds; None keeps them, which the Miles gateway requires.",
    "rolling_save_every": "Steps between rolling checkpoints, for resuming only; 0 turns them off.",
    "rolling_ttl_seconds": "Lifetime of rolling checkpoints in seconds.",
    "num_groups_to_log": "Groups whose rollouts the cookbook writes out in each step.",
    "rollout_json_export": "Write the cookbook's summary of each rollout.",
    "max_steps": "Steps to train at most; the whole dataset when None.",
}

_SCALARS = {bool: "bool", int: "int", float: "float", str: "str"}


def build() -> Schema:
    """The schema of what is installed. Raises `LookupError` when an option has no explanation."""
    from tinker_cookbook.rl import train

    from console.training.dataset import HarborDatasetBuilder

    options = list(_cookbook(train.Config, ""))
    options += _cookbook(HarborDatasetBuilder, "dataset_builder.")
    options += _ours("harbor", HarborOptions)
    options += _ours("console", ConsoleOptions)
    # Required ones first: the cookbook's own order is kept within.
    options.sort(key=lambda option: (option.key.split(".")[0] != "config", not option.required))
    return Schema(cookbook=importlib.metadata.version("tinker-cookbook"), options=tuple(options))


def encode(schema: Schema) -> bytes:
    """The text of `schema.json`: readable, one option a block."""
    return msgspec.json.format(msgspec.json.encode(schema), indent=1) + b"\n"


def _cookbook(config: type, prefix: str) -> collections.abc.Iterator[Option]:
    for name, field in chz.chz_fields(config).items():
        path = f"{prefix}{name}"
        annotation, nullable = _without_none(field.final_type)
        if path == "dataset_builder":
            continue
        if path in REFUSED:
            yield _option(path, "any", nullable=True, refused=REFUSED[path])
        elif chz.is_chz(annotation):
            yield from _cookbook(annotation, path + ".")
        else:
            default = _default(field)
            required = default is msgspec.UNSET and not prefix.startswith("kl_reference")
            kind, choices = ("path", ()) if path in PATHS else _kind(annotation)
            if path == "recipe_name":
                default, required = RECIPE_NAME, False
            yield _option(
                path,
                kind,
                doc=field._doc,
                choices=choices,
                nullable=nullable,
                default=None if default is msgspec.UNSET else default,
                required=required,
            )


def _option(path: str, kind: str, *, doc: str = "", **rest: Any) -> Option:
    text = HELP.get(path) or doc
    if not text:
        raise LookupError(f"config.{path} has no explanation in HELP")
    return Option(key=f"config.{path}", kind=kind, help=text, **rest)


def _default(field: Any) -> Any:
    if not isinstance(field._default, _MISSING):
        value = field._default
    elif not isinstance(field._default_factory, _MISSING):
        value = field._default_factory()
    else:
        return msgspec.UNSET
    if isinstance(value, tuple | list):
        return [item.value if isinstance(item, Enum) else item for item in value]
    return value


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation, False
    rest = [arg for arg in typing.get_args(annotation) if arg is not type(None)]
    return (rest[0] if len(rest) == 1 else annotation), len(rest) < len(typing.get_args(annotation))


def _kind(annotation: Any) -> tuple[str, tuple[str, ...]]:
    origin = typing.get_origin(annotation) or annotation
    if origin is typing.Literal:
        return "choice", typing.get_args(annotation)
    if origin in (list, tuple):
        return "list", ()
    if origin is dict:
        return "dict", ()
    return _SCALARS[origin], ()


def _ours(section: str, options: type[msgspec.Struct]) -> collections.abc.Iterator[Option]:
    hints = typing.get_type_hints(options, include_extras=True)
    for field in msgspec.structs.fields(options):
        if isinstance(hints[field.name], type):
            yield from _ours(f"{section}.{field.name}", hints[field.name])
            continue
        plain, meta = typing.get_args(hints[field.name])
        annotation, nullable = _without_none(plain)
        kind, choices = _kind(annotation)
        required = field.default is msgspec.NODEFAULT
        yield Option(
            key=f"{section}.{field.name}",
            kind=(meta.extra or {}).get("kind", kind),
            help=meta.description,
            nullable=nullable,
            choices=choices,
            default=None if required else field.default,
            required=required,
        )


def main(argv: list[str]) -> int:
    """Write or compare; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m console.training.schema_build", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    arguments = parser.parse_args(argv)
    text = encode(build())
    if not arguments.check:
        SCHEMA_FILE.write_bytes(text)
        return 0
    if SCHEMA_FILE.read_bytes() == text:
        return 0
    sys.stderr.write(f"{SCHEMA_FILE} is out of date: run python -m console.training.schema_build\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
