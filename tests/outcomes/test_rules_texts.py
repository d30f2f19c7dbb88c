"""What the text of an agent that gave up says, when its exception's name does not."""

from __future__ import annotations

import pytest

from console.outcomes.classes import CallEvidence, OutcomeClass, TrialEvidence, Verdict
from console.outcomes.rules import classify

HEALTHY = CallEvidence(calls=6, sampled_tokens=900)
EXIT = "NonZeroAgentExitCodeError"


def verdict(
    kind: str,
    message: str,
    *,
    calls: CallEvidence | None = HEALTHY,
    rewards: dict | None = None,
    phase: str | None = "agent",
) -> Verdict:
    """Classify a trial whose agent ended with an exception."""
    evidence = TrialEvidence(
        exception_type=kind,
        exception_message=message,
        exception_phase=phase,
        rewards=rewards,
        agent_seconds=120.0,
        agent_timeout=900.0,
        calls=calls,
    )
    return classify(evidence)


def exited(code: int, stdout: str = "None", stderr: str = "None", command: str = "agent --task 'fix it'") -> str:
    return f"Command failed (exit {code}): {command}\nstdout: {stdout}\nstderr: {stderr}"


# --- texts of an agent that gave up ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "outcome", "cause"),
    [
        ("E: Unable to fetch some archives, maybe run apt-get update", "infrastructure", "setup"),
        ("Err:4 http://deb.example.org bookworm/main  404  Not Found [IP: 192.0.2.7 80]", "infrastructure", "setup"),
        ("/bin/sh: 1: ps: not found", "infrastructure", "setup"),
        ("sh: 0: Illegal option -o pipefail", "infrastructure", "setup"),
        ("npm error errno EAI_AGAIN", "infrastructure", "network"),
        ("openai.RateLimitError: Error code: 429 - {'error': 'too many requests'}", "infrastructure", "api"),
        ("Error: 504 upstream timeout", "infrastructure", "api"),
        ("Error: 401 Unauthorized: invalid token", "configuration", "key"),
        ('{"type":"error","message":"402 requires more credits"}', "configuration", "quota"),
        ("Killed process 71, oom-kill: constraint=MEMCG", "infrastructure", "sandbox"),
        ("OSError: [Errno 28] No space left on device", "infrastructure", "sandbox"),
        ("ValueError: litellm.BadRequestError: context_length_exceeded", "agent_failure", "context_overflow"),
        ("KeyError: 'thought'", "agent_failure", "crash"),
    ],
)
def test_texts(output: str, outcome: str, cause: str) -> None:
    found = verdict(EXIT, exited(1, stderr=output), calls=None, rewards={"reward": 1.0})
    assert (found.outcome, found.cause, found.reward) == (outcome, cause, None)


@pytest.mark.parametrize("calls", [HEALTHY, None])
def test_an_agent_that_only_writes_about_rate_limits(calls: CallEvidence | None) -> None:
    work = "added limit_req zone=one to nginx: rate limit is 429 too many requests now\nall done with the rate limiting"
    found = verdict(
        EXIT, exited(1, stdout=work, command="agent 'answer 429 when rate limited. Error: 503'"), calls=calls
    )
    assert (found.outcome, found.cause) == (OutcomeClass.AGENT_FAILURE, "crash")
    typed = verdict("ApiRateLimitError", exited(1, stdout=work), calls=HEALTHY)
    assert typed.outcome is OutcomeClass.AGENT_FAILURE and typed.rule == "calls.contradict"
    genuine = exited(1, stdout=work, stderr="RateLimitError: 429 Too Many Requests")
    assert verdict("ApiRateLimitError", genuine, calls=HEALTHY).outcome is OutcomeClass.INFRASTRUCTURE


def test_a_shortened_message_is_searched_from_the_first_output_that_is_left() -> None:
    cut = "Command failed (exit 1): agent --task 'answer Error: 503' ... [900 left out] ...\nstderr: KeyError: 'x'"
    assert verdict(EXIT, cut, calls=None).outcome is OutcomeClass.AGENT_FAILURE
    assert verdict(EXIT, cut.replace("KeyError: 'x'", "Error: 503"), calls=None).cause == "api"
    assert verdict(EXIT, "Command failed (exit 1): agent 'Error: 503'", calls=None).cause == "crash"


def test_a_fault_of_the_runner_is_not_the_agents() -> None:
    found = verdict("KeyError", "in the runner: 'environment'", phase=None, rewards=None)
    assert (found.outcome, found.cause) == (OutcomeClass.INFRASTRUCTURE, "runner")


def test_the_match_nearest_the_end_decides() -> None:
    first_rate_then_dns = (
        "Error: 429 too many requests\n... retrying ...\ncurl: (6) Could not resolve host: example.org"
    )
    assert verdict(EXIT, exited(1, stdout=first_rate_then_dns), calls=None).cause == "network"


@pytest.mark.parametrize(
    ("code", "calls", "outcome", "cause"),
    [
        (127, None, "infrastructure", "setup"),
        (126, CallEvidence(), "infrastructure", "setup"),
        (127, HEALTHY, "agent_failure", "crash"),
        (137, HEALTHY, "agent_failure", "killed"),
        (143, HEALTHY, "agent_failure", "killed"),
        (1, HEALTHY, "agent_failure", "crash"),
    ],
)
def test_exit_codes(code: int, calls: CallEvidence | None, outcome: str, cause: str) -> None:
    found = verdict(EXIT, exited(code), calls=calls)
    assert (found.outcome, found.cause) == (outcome, cause)
