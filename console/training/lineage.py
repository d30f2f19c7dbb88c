"""The names of weights: digests of what they began as and of every batch that was trained since.

Two batches that were rolled out under one name were sampled from one policy, whichever engine did it. A name is
`<policy>` or `<policy>.<start>`. LoRA adapters that no checkpoint gave begin at random in a part that has no effect on
what is sampled, until it is trained: `start` names that part. So batches of `p.1` and `p.2` are of one policy, and the
weights after them are not.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping

BEGINNING = ("config.model_name", "config.lora_rank", "config.load_checkpoint_path")
"""Options that decide which policy a run begins with."""
RECIPE = (
    "config.learning_rate",
    "config.loss_fn",
    "config.loss_fn_config",
    "config.num_substeps",
    "config.remove_constant_reward_groups",
    "config.kl_penalty_coef",
    "config.kl_discount_factor",
    "config.kl_reference_config.base_model",
    "config.kl_reference_config.load_checkpoint_path",
)
"""Options that decide what a batch makes of the weights."""


def beginning(values: Mapping[str, object]) -> str:
    """The policy that a run begins with; `values`: of `BEGINNING`."""
    return _digest("beginning", values)


def recipe(values: Mapping[str, object]) -> str:
    """How batches are trained; `values`: of `RECIPE`."""
    return _digest("recipe", values)


def random_start(policy: str) -> str:
    """The name of fresh adapters of that policy, which nobody else has."""
    return f"{policy}.{secrets.token_hex(4)}"


def is_random_start(weights: str) -> bool:
    """Whether only a checkpoint can bring these weights back."""
    return "." in weights


def of_checkpoint(path: str) -> str:
    """Weights of which nothing is known but where the gateway has them."""
    return _digest("checkpoint", path)


def after(weights: str, how: str, keys: Iterable[str]) -> str:
    """The name after a batch.

    Args:
        weights: the name before it; how: the recipe's; keys: of the trials that were trained. None of them: no change.
    """
    trained = sorted(keys)
    return _digest("batch", [weights, how, trained]) if trained else weights


def policy_of(weights: str) -> str:
    """What two names have in common when the same is sampled under both."""
    return weights.partition(".")[0]


def same_policy(weights: str, others: str) -> bool:
    """Whether two batches were sampled from one policy. Names that were not kept (empty ones) are never the same."""
    return bool(weights) and policy_of(weights) == policy_of(others)


def _digest(what: str, of: object) -> str:
    data = json.dumps([what, of], sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.blake2b(data.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
