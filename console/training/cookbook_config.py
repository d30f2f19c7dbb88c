"""The cookbook's own `rl.train.Config` from the run's options. Only the engine imports this: it brings in torch."""

from __future__ import annotations

from typing import Any

import chz
from tinker_cookbook.rl import train
from tinker_cookbook.rl.rollout_strategy import RolloutStrategy
from tinker_cookbook.rl.types import RLDatasetBuilder

from console.errors import UsageError
from console.training.dataset import HarborDatasetBuilder
from console.training.options import RunOptions
from console.training.schema import load_schema
from console.training.strategy import HarborTrials


def build_cookbook_config(
    options: RunOptions,
    *,
    base_url: str | None = None,
    log_path: str | None = None,
    dataset_builder: RLDatasetBuilder | None = None,
    strategy: RolloutStrategy | None = None,
) -> train.Config:
    """The config that `train.main` runs with, made by the cookbook's own option parser (chz).

    Args:
        base_url: overrides `config.base_url`, e.g. with the embedded gateway's address; "" and None keep it.
        log_path: overrides `config.log_path`.
        dataset_builder: replaces the one that the options describe.
        strategy: how groups are rolled out; `HarborTrials` when omitted.

    Raises:
        UsageError: chz or a validator of the cookbook refuses a value.
    """
    values: dict[str, Any] = {"recipe_name": options.value("config.recipe_name")}
    for name, value in options.config.items():
        if load_schema().refusing(f"config.{name}"):
            raise UsageError(f"config.{name} may not be set")
        values[name] = chz.blueprint.Castable(",".join(value)) if isinstance(value, list) else value
    if dataset_builder is None:
        values["dataset_builder"] = HarborDatasetBuilder
    else:
        values = {name: value for name, value in values.items() if not name.startswith("dataset_builder.")}
        values["dataset_builder"] = dataset_builder
    if base_url:
        values["base_url"] = base_url
    if log_path:
        values["log_path"] = log_path
    values["rollout_error_tolerance"] = strategy or HarborTrials()
    try:
        return chz.Blueprint(train.Config).apply(values).make()
    except Exception as problem:  # chz's errors and its validators' have no narrower base in common
        lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
        raise UsageError(f"config: {' '.join(lines)}") from None
