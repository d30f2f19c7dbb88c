"""What one trial has used of its budgets."""

from __future__ import annotations

from console.capture.refusals import RefusedError
from console.capture.settings import Budgets

USED_UP = "The budget of this trial is used up."
"""What an agent is told, as a reply or as an error. Agents end on a reply; on errors they try again."""


class Spent:
    """Counts what a trial uses. A budget is used up when no further call fits it."""

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self.calls = self.prompt_tokens = self.sampled_tokens = self.received_bytes = 0

    def exhausted(self, prompt_tokens: int = 1) -> str:
        """The option whose budget a call with this prompt does not fit any more; "" when it fits all."""
        left = self._budgets
        for option, limit, needed in (
            ("harbor.max_calls", left.calls, self.calls + 1),
            ("harbor.max_prompt_tokens", left.prompt_tokens, self.prompt_tokens + prompt_tokens),
            ("harbor.max_sampled_tokens", left.sampled_tokens, self.sampled_tokens + 1),
            ("harbor.max_call_bytes", left.received_bytes, self.received_bytes),
        ):
            if limit is not None and needed > limit:
                return option
        return ""

    def room(self) -> int | None:
        """Tokens that may still be sampled; None for no limit."""
        limit = self._budgets.sampled_tokens
        return None if limit is None else limit - self.sampled_tokens

    def sent(self, prompt_tokens: int) -> None:
        """A call goes to the sampler."""
        self.calls += 1
        self.prompt_tokens += prompt_tokens

    def returned(self, prompt_tokens: int) -> None:
        """The call failed, and not by the agent's doing: an outage does not use up a budget."""
        self.calls -= 1
        self.prompt_tokens -= prompt_tokens


def used_up(option: str) -> RefusedError:
    """A call beyond the budget of this option. The agent is not told which; the refusal's cause says it for us."""
    refusal = RefusedError("budget", USED_UP)
    refusal.__cause__ = ValueError(f"the trial's budget {option} is used up")
    return refusal
