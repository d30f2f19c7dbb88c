"""Totals over all trials of a capture gateway, for the run's journal."""

from __future__ import annotations

import msgspec


class CaptureFigures(msgspec.Struct, kw_only=True):
    """Totals since the gateway started. One object for all trials, kept on the gateway's loop.

    Attributes:
        calls: answered with a sample; failed: ended in an error after they were understood, refusals among them.
        prompt_tokens, sampled_tokens: of the answered calls; inflight: calls under way.
        bridged: answered calls whose prompt extends an earlier one's; unbridged: the others by reason.
        refusals: requests that got an error, by kind; replayed, joined: retries that were given a sample that was
            there already, or on its way.
        empty: replies without anything to see; malformed: replies with a tool call that could not be parsed; stopped:
            samples cut at a stop string of the agent's.
        cancelled: samples cancelled because nobody waited any more; late: samples thrown away, or cancelled, because
            the trial had ended.
        lost: answered calls that could not be written down; no_logprobs: samples without usable log-probs.
        secrets: texts in which the trial's own token stood, and was left out.
        temperature_low, temperature_high: as sampled; None before the first call.
    """

    calls: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    inflight: int = 0
    bridged: int = 0
    unbridged: dict[str, int] = {}
    refusals: dict[str, int] = {}
    replayed: int = 0
    joined: int = 0
    empty: int = 0
    malformed: int = 0
    stopped: int = 0
    cancelled: int = 0
    late: int = 0
    lost: int = 0
    no_logprobs: int = 0
    secrets: int = 0
    temperature_low: float | None = None
    temperature_high: float | None = None

    def sampled_at(self, temperature: float) -> None:
        """A call goes to the sampler at this temperature."""
        low, high = self.temperature_low, self.temperature_high
        self.temperature_low = temperature if low is None else min(low, temperature)
        self.temperature_high = temperature if high is None else max(high, temperature)

    def prompted(self, reason: str) -> None:
        """An answered call extends an earlier one (`reason` is empty), or does not."""
        if reason:
            self.unbridged[reason] = self.unbridged.get(reason, 0) + 1
        else:
            self.bridged += 1

    def refused(self, kind: str) -> None:
        """A request got an error of this kind."""
        self.refusals[kind] = self.refusals.get(kind, 0) + 1
