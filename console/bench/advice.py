"""What a finding means and what to do about it."""

from __future__ import annotations

from typing import NamedTuple


class Advice(NamedTuple):
    """The consequence for the result, and the remedy."""

    consequence: str
    remedy: str


_NOTHING = "the trials say nothing about the agent: a figure made of them is void"

ADVICE: dict[str, Advice] = {
    "same_failure": Advice(_NOTHING, "stop the job, cure what the text says, and begin again with one task"),
    "same_failure:text.shell": Advice(
        _NOTHING,
        "the sandbox lacks a program or has another shell than the agent expects (`set -o pipefail` fails in dash: "
        "use a Harbor that guards it, 0.26 does); try one task before the whole set",
    ),
    "same_failure:bench.programs": Advice(
        _NOTHING, "the sandbox lacks a program: use an image that has it, and try one task before the whole set"
    ),
    "credentials": Advice(
        "Harbor grades such trials 0, and they are no answer of the model's",
        "renew the key, see that it reaches the side that calls the model (the host's environment for agents that run "
        "on the host, --ae for those in the sandbox), then run these trials again",
    ),
    "quota": Advice(
        "Harbor grades such trials 0, and they are no answer of the model's",
        "raise the quota or wait for it, then run these trials again",
    ),
    "infra_rate": Advice("the failed trials are excluded, so that fewer tasks stand for the whole set", ""),
    "idle_timeout": Advice(
        "long trials are cut off, short ones are not: what is left is not a fair sample",
        "an agent that works in one long command looks idle: give the sandbox a longer limit, above the agent's own "
        "(hf-sandbox: --ek job_timeout=2h); the sandbox's own log says `idle for ... ms, shutting down`",
    ),
    "verifier_faults": Advice(
        "their zeros are not the agent's, and are left out: counted, they would press the figure down",
        "see that verifiers reach what they download (package mirrors, uv, pypi), then run these trials again",
    ),
    "one_duration": Advice(
        "a clock ended these trials, not the agent: some limit that the configuration of the job does not name",
        "look for a deadline of that length in the agent, the gateway or the sandbox, and raise it",
    ),
    "unscorable": Advice(
        "these tasks can only lose: counted as 0 they press every agent's figure down alike",
        "leave them out by name and say so, or mend their verifiers",
    ),
    "deterministic": Advice(
        "to run them again will fail again",
        "cure the cause first (a task's text that begins with a hyphen, an image without a program), or accept them as "
        "final",
    ),
}
"""Code of a detector, with the rule of the trials behind a colon where that tells more."""


def concurrency_advice(concurrent: int | None) -> str:
    """What to do about a crowded job.

    On hosted sandboxes about 70 % of the trials failed with eight at a time, and few with three; other numbers are
    lowered in the same proportion.
    """
    then = "then run the failed trials again"
    if concurrent is None:
        return f"lower --n-concurrent (on hosted sandboxes 8 at a time failed in 70 %, 3 seldom); {then}"
    if concurrent <= 1:
        return f"one trial at a time is no crowd: look at the provider's state and limits; {then}"
    fewer = max(1, min(concurrent - 1, round(concurrent * 3 / 8)))
    return (
        f"lower --n-concurrent from {concurrent} to {fewer} (on hosted sandboxes 8 at a time failed in 70 %, "
        f"3 seldom); {then}"
    )
