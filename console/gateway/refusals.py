"""What a gateway's own refusal means for the options of a run: one line with the remedy.

Capabilities do not tell everything: the largest rank, or the layers that an adapter must train, are known from the
refusal of a model only. The words are those of the gateways of `profiles`; what they say is quoted within bounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from console.errors import UsageError
from console.state.sanitize import sanitize

_QUOTED = 160


class _Rule(NamedTuple):
    """`pattern` in a refusal means `line`, which is formatted with what the pattern's groups found."""

    pattern: re.Pattern[str]
    line: Callable[[dict[str, str]], str]


def _rule(pattern: str, line: Callable[[dict[str, str]], str] | str) -> _Rule:
    return _Rule(re.compile(pattern, re.IGNORECASE | re.DOTALL), line if callable(line) else lambda found: str(line))


def _rank(found: dict[str, str]) -> str:
    most, asked = found["most"], found.get("asked") or ""
    given = f"config.lora_rank={asked}" if asked else "config.lora_rank"
    return (
        f"{given}: this gateway's adapters have a rank of {most} at most; set config.lora_rank={most}, or start the "
        f"gateway with a larger --lora-rank"
    )


def _layout(found: dict[str, str]) -> str:
    return (
        f"{found['field']}: this gateway trains other layers than the cookbook, which asks for attn, mlp and unembed; "
        "start it with --target-modules attn,mlp,unembed"
    )


def _served(found: dict[str, str]) -> str:
    return (
        f"config.model_name={found['asked']}: this gateway serves {found['name']}; set that, or start it for the other"
    )


def _checkpoint(found: dict[str, str]) -> str:
    option = {"base_model": "config.model_name", "lora_rank": "config.lora_rank"}.get(found["field"], found["field"])
    return (
        f"{option}: the checkpoint was saved with {found['field']}={found['saved']}, and the gateway now has "
        f"{found['now']}; start the gateway as it was, or begin a new run"
    )


def _loss(found: dict[str, str]) -> str:
    known = found.get("known") or ""
    return f"config.loss_fn={found['asked']}: this gateway does not train it{f'; it knows {known}' if known else ''}"


_EXISTS = (
    "config.log_path: the gateway has weights of that name already; train into a new directory, or remove them there"
)

_RULES = (
    _rule(r"lora_config\.rank must be an integer in \[1, (?P<most>\d+)\](?:, got (?P<asked>\d+))?", _rank),
    _rule(r"(?P<field>(?:lora_config\.)?train_(?:attn|mlp|unembed))\b.{0,40}?(?:conflicts|layout|must)", _layout),
    _rule(r"this gateway serves '(?P<name>[^']{1,200})', not '(?P<asked>[^']{1,200})'", _served),
    _rule(
        r"base_model '(?P<asked>[^']{1,200})' is not served here; this gateway serves '(?P<name>[^']{1,200})'", _served
    ),
    _rule(
        r"was saved with (?P<field>\w{1,40})=(?P<saved>[^;]{1,120}); this model expects \w+=(?P<now>[^\s\"}]{1,120})",
        _checkpoint,
    ),
    _rule(r"unknown loss_fn '(?P<asked>\w{1,40})'(?:; known: \[(?P<known>[^\]]{1,200})\])?", _loss),
    _rule(r"loss_fn '(?P<asked>\w{1,40})' is not supported(?:; use one of (?P<known>[\w, ]{1,200}))?", _loss),
    _rule(
        r"ttl_seconds is not supported",
        "config.ttl_seconds: checkpoints of this gateway do not expire; set config.ttl_seconds=None",
    ),
    _rule(
        r"(?:Extra inputs are not permitted|extra_forbidden)",
        "console.gateway_profile: this gateway takes requests of the SDK 0.26 only; set console.gateway_profile=miles, "
        "or leave it at auto",
    ),
    _rule(
        r"missing command envelope field 'model_id'",
        "console.gateway_profile: this gateway loads checkpoints only into models that exist; set "
        "console.gateway_profile=miles, or leave it at auto",
    ),
    _rule(r"lora_config\.seed is not supported", "lora seed: this gateway takes none; leave it out"),
    _rule(
        r"user_metadata is not supported",
        "console.gateway_profile: this gateway takes no metadata of checkpoints; set console.gateway_profile=miles, or "
        "leave it at auto",
    ),
    _rule(r"missing API key", "TINKER_API_KEY: the gateway asks for a key; export TINKER_API_KEY=tml-..."),
    _rule(
        r"api_key must start with", "TINKER_API_KEY: the SDK takes keys that begin with tml- only; export such a one"
    ),
    _rule(
        r"does not belong to this tenant|belongs to another API key",
        "TINKER_API_KEY: the checkpoint or model belongs to another key; use the one that it was made with",
    ),
    _rule(
        r"exceeds max_tokens_per_datum|tokens exceeds \d+",
        "console.context_window: a trajectory is longer than the gateway trains; lower it to the gateway's window",
    ),
    _rule(r"(?:checkpoint|weights) '[^']{1,128}' already exist|tinker://\S{1,300} exists", _EXISTS),
)


def explain(error: BaseException) -> UsageError | None:
    """The refusal of a gateway as a mistake of the options, with its remedy; None when it is none that is known.

    Args:
        error: what the SDK raised; its causes are looked at, too.
    """
    seen: set[int] = set()
    problem: BaseException | None = error
    while problem is not None and id(problem) not in seen:
        seen.add(id(problem))
        # A refusal is one of the SDK's errors, and a line. What is longer is none, and must not cost time here.
        text = str(problem)[:4000] if type(problem).__module__.partition(".")[0] == "tinker" else ""
        for rule in _RULES:
            if (match := rule.pattern.search(text)) is not None:
                return UsageError(rule.line({name: _quoted(value) for name, value in match.groupdict().items()}))
        problem = problem.__cause__ or problem.__context__
    return None


def _quoted(value: str | None) -> str:
    return sanitize(value or "", _QUOTED).strip("'\" ")
