"""How the calls of every trial are served: fixed when the capture gateway starts, and recorded with the run."""

from __future__ import annotations

from typing import Literal

import msgspec


class Budgets(msgspec.Struct, frozen=True, kw_only=True):
    """What one trial may use altogether; None for no limit.

    Attributes:
        calls: model calls that go to the sampler; prompt_tokens, sampled_tokens: summed over them.
        received_bytes: of request bodies.
    """

    calls: int | None = None
    prompt_tokens: int | None = None
    sampled_tokens: int | None = None
    received_bytes: int | None = None


class CallSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How calls are served.

    Attributes:
        model: what replies call the policy.
        sampling: `agent` honours the agents' sampling parameters, `force` samples at temperature 1, top-p 1, no top-k.
        max_tokens: for requests that name none; window: context window in tokens, None when the gateway keeps it.
        train: which conversations are trained; history_thinking: what becomes of earlier thoughts.
        budgets: of each trial.
        inflight: calls of one trial that may be under way at once; waiting: further ones that may wait for a place,
            for `wait_seconds` at most.
        terminal_replies: requests that are still answered, with a text that says so, when a budget is used up.
        replies_kept: answered calls of a trial whose replies can be given once more.
    """

    model: str = "policy"
    sampling: Literal["agent", "force"] = "agent"
    max_tokens: int = 8192
    window: int | None = None
    train: Literal["all", "main"] = "all"
    history_thinking: Literal["keep", "template"] = "keep"
    budgets: Budgets = Budgets()
    inflight: int = 8
    waiting: int = 16
    wait_seconds: float = 30.0
    terminal_replies: int = 3
    replies_kept: int = 32
