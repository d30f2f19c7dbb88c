"""Each rule of the classification, with texts of the kind that Harbor, shells and services really write."""

from __future__ import annotations

from typing import Any

import pytest

from console.outcomes.classes import CallEvidence, OutcomeClass, TrialEvidence, Verdict
from console.outcomes.rewards import RewardPolicy
from console.outcomes.rules import classify

HEALTHY = CallEvidence(calls=6, sampled_tokens=900)


def verdict(kind: str | None = None, message: str = "", phase: str | None = "agent", **rest: Any) -> Verdict:
    """Classify a trial that is healthy but for what is given."""
    policy = rest.pop("policy", None)
    rest.setdefault("calls", HEALTHY)
    rest.setdefault("rewards", {"reward": 0.0})
    rest.setdefault("agent_seconds", 120.0)
    rest.setdefault("agent_timeout", 900.0)
    phase = phase if kind else None
    evidence = TrialEvidence(exception_type=kind, exception_message=message, exception_phase=phase, **rest)
    return classify(evidence, policy)


def exited(
    code: int, stdout: str = "None", stderr: str = "None", command: str = "mini-swe-agent --task 'fix it'"
) -> str:
    return f"Command failed (exit {code}): {command}\nstdout: {stdout}\nstderr: {stderr}"


EXIT = "NonZeroAgentExitCodeError"


# --- what is scored ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        (None, "completed"),
        ("AgentTimeoutError", "agent_timeout"),
        ("ContextWindowExceededError", "context_overflow"),
        ("ContextLengthExceededError", "context_overflow"),
        ("OutputTokenExceededError", "output_limit"),
        ("OutputLengthExceededError", "output_limit"),
    ],
)
@pytest.mark.parametrize("reward", [0.0, 0.25, 1, -2.5])
def test_the_allow_list_keeps_the_verifiers_reward(kind: str | None, outcome: str, reward: float) -> None:
    found = verdict(kind, rewards={"reward": reward}, agent_seconds=900.2)
    assert (found.outcome, found.reward, found.scored, found.retryable) == (outcome, reward, True, False)
    assert found.rule and found.evidence


def test_trouble_that_the_agent_survived_is_noted_and_scored() -> None:
    calls = CallEvidence(calls=9, failed=3, backend_seconds=80.0)
    found = verdict(rewards={"reward": 0.0}, calls=calls)
    assert found.outcome is OutcomeClass.COMPLETED and found.reward == 0.0
    assert any("3 model calls failed" in note for note in found.notes)
    assert any("80.0 s" in note for note in found.notes)


def test_a_clean_end_on_a_failed_call_is_scored_only_when_something_was_won() -> None:
    calls = CallEvidence(calls=4, failed=1, last_failure="backend", last_failure_text="503 no healthy upstream")
    assert verdict(rewards={"reward": 1.0}, calls=calls).outcome is OutcomeClass.COMPLETED
    lost = verdict(rewards={"reward": 0.0}, calls=calls)
    assert (lost.outcome, lost.cause, lost.reward) == (OutcomeClass.INFRASTRUCTURE, "api", None)
    assert "503 no healthy upstream" in lost.evidence


def test_another_reward_key() -> None:
    policy = RewardPolicy(reward_key="score")
    assert verdict(rewards={"score": 0.5, "reward": 1.0}, policy=policy).reward == 0.5
    missing = verdict(rewards={"reward": 1.0}, policy=policy)
    assert (missing.outcome, missing.cause) == (OutcomeClass.BAD_REWARD, "missing")
    assert "'score'" in missing.evidence and "reward" in missing.evidence


# --- rewards that are none -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rewards", "cause"),
    [
        (None, "missing"),
        ({}, "missing"),
        ({"other": 1.0}, "missing"),
        ({"reward": None}, "missing"),
        ({"reward": True}, "non_numeric"),
        ({"reward": False}, "non_numeric"),
        ({"reward": "1.0"}, "non_numeric"),
        ({"reward": "passed"}, "non_numeric"),
        ({"reward": "nan"}, "non_finite"),
        ({"reward": "-inf"}, "non_finite"),
        ({"reward": float("nan")}, "non_finite"),
        ({"reward": float("inf")}, "non_finite"),
        ({"reward": 1e30}, "too_large"),
        ({"reward": -1.0000001e6}, "too_large"),
        ({"reward": 10**400}, "too_large"),
    ],
)
@pytest.mark.parametrize("kind", [None, "AgentTimeoutError", "ContextWindowExceededError", "OutputTokenExceededError"])
def test_bad_rewards(rewards: Any, cause: str, kind: str | None) -> None:
    found = verdict(kind, rewards=rewards, agent_seconds=900.0)
    assert (found.outcome, found.cause, found.reward) == (OutcomeClass.BAD_REWARD, cause, None)
    assert found.rule == f"reward.{cause}"
    assert not found.retryable


def test_the_limit_itself_is_believed() -> None:
    assert verdict(rewards={"reward": 1e6}).reward == 1e6
    assert verdict(rewards={"reward": 12.0}, policy=RewardPolicy(reward_limit=10)).cause == "too_large"


@pytest.mark.parametrize(
    ("kind", "message", "cause"),
    [
        ("RewardFileNotFoundError", "No reward file found at /t/verifier/reward.txt", "missing"),
        ("RewardFileEmptyError", "Reward file is empty at /t/verifier/reward.txt", "missing"),
        ("VerifierOutputParseError", "Non-finite reward nan in text file /t/verifier/reward.txt", "non_finite"),
        ("VerifierOutputParseError", "Failed to parse rewards from text file /t/verifier/reward.txt", "non_numeric"),
        ("VerifierTimeoutError", "Verifier execution timed out after 600.0 seconds", "verifier_fault"),
    ],
)
def test_what_harbor_says_of_the_verifier(kind: str, message: str, cause: str) -> None:
    found = verdict(kind, message, phase="verify", rewards=None)
    assert (found.outcome, found.cause, found.retryable) == (OutcomeClass.BAD_REWARD, cause, False)


BOOTSTRAP_FAILED = """\
Reading package lists...
E: Failed to fetch http://deb.example.org/debian/pool/main/c/curl.deb  503  Service Unavailable
/tests/test.sh: line 7: curl: command not found
/tests/test.sh: line 9: /root/.local/bin/env: No such file or directory
/tests/test.sh: line 12: uvx: command not found
"""


@pytest.mark.parametrize(
    "output",
    [
        BOOTSTRAP_FAILED,
        "curl: (28) Operation timed out after 300000 milliseconds with 0 out of 0 bytes received\nno uvx\n",
        "error: Failed to download https://example.org/python-build-standalone/cpython-3.13.tar.gz\n",
        "============ test session starts ============\ncollected 0 items\n\n====== no tests ran in 0.02s ======\n",
    ],
)
def test_a_verifier_fault_behind_a_clean_zero(output: str) -> None:
    found = verdict(verifier_output=output)
    assert (found.outcome, found.cause) == (OutcomeClass.BAD_REWARD, "verifier_fault")
    assert found.evidence in " ".join(output.split()) or found.evidence.rstrip("…") in " ".join(output.split())
    assert verdict("AgentTimeoutError", agent_seconds=900.0, verifier_output=output).cause == "verifier_fault"
    assert verdict(verifier_output=output, rewards={"reward": 1.0}).reward == 1.0
    assert verdict(verifier_output=output, policy=RewardPolicy(verifier_faults="score")).reward == 0.0


@pytest.mark.parametrize(
    "output",
    [
        "",
        "====== 2 failed, 1 passed in 3.11s ======\n",
        BOOTSTRAP_FAILED + "====== 1 failed in 0.10s ======\n",
        "curl: (7) Failed to connect to localhost port 8080 after 0 ms: Connection refused\nserver is not up\n",
        "the answer is wrong\n",
    ],
)
def test_an_honest_zero_stays_a_zero(output: str) -> None:
    assert verdict(verifier_output=output).reward == 0.0


# --- the capture gateway's record ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [None, "AgentTimeoutError", EXIT, "SandboxLostError", "KeyError"])
def test_lost_captures_and_missing_logprobs_beat_everything(kind: str | None) -> None:
    assert verdict(kind, calls=CallEvidence(calls=3, lost=1)).outcome is OutcomeClass.CAPTURE_LOSS
    assert verdict(kind, calls=CallEvidence(calls=3, no_logprobs=1)).outcome is OutcomeClass.NO_LOGPROBS
    both = verdict(kind, calls=CallEvidence(calls=3, lost=1, no_logprobs=1, last_failure="backend"))
    assert both.outcome is OutcomeClass.CAPTURE_LOSS


def test_an_agent_that_makes_no_call() -> None:
    found = verdict(calls=CallEvidence(), rewards={"reward": 1.0})
    assert (found.outcome, found.cause, found.reward) == (OutcomeClass.NO_SAMPLES, "no_calls", None)
    relaxed = RewardPolicy(require_samples=False)
    assert verdict(calls=CallEvidence(), rewards={"reward": 1.0}, policy=relaxed).reward == 1.0
    assert verdict(calls=None, rewards={"reward": 1.0}).reward == 1.0


def test_no_sample_because_of_the_backend_or_the_key() -> None:
    down = CallEvidence(failed=4, last_failure="backend", last_failure_text="connect timeout")
    assert verdict(calls=down).outcome is OutcomeClass.INFRASTRUCTURE
    refused = CallEvidence(failed=1, last_failure="auth", last_failure_text="unknown token")
    assert (verdict(calls=refused).outcome, verdict(calls=refused).cause) == (OutcomeClass.CONFIGURATION, "key")
    first_prompt = CallEvidence(failed=1, last_failure="overflow", last_failure_text="prompt is too long")
    assert (verdict(calls=first_prompt).outcome, verdict(calls=first_prompt).cause) == ("no_samples", "overflow")


@pytest.mark.parametrize("kind", ["AgentTimeoutError", EXIT, "SomethingNobodyKnows"])
@pytest.mark.parametrize(
    "calls",
    [
        CallEvidence(calls=5, failed=2, last_failure="backend", last_failure_text="502 bad gateway"),
        CallEvidence(calls=5, failed=9, backend_seconds=180.0),
    ],
)
def test_an_outage_is_not_the_agents_timeout_or_crash(kind: str, calls: CallEvidence) -> None:
    found = verdict(kind, calls=calls, agent_seconds=900.0, rewards={"reward": 0.0})
    assert (found.outcome, found.cause, found.reward) == (OutcomeClass.INFRASTRUCTURE, "api", None)
    assert found.retryable


def test_a_fifth_of_the_time_is_the_border() -> None:
    below = verdict("AgentTimeoutError", calls=CallEvidence(calls=5, backend_seconds=179.9), agent_seconds=900.0)
    assert below.outcome is OutcomeClass.AGENT_TIMEOUT and below.notes
    at = verdict("AgentTimeoutError", calls=CallEvidence(calls=5, backend_seconds=180.0), agent_seconds=900.0)
    assert at.outcome is OutcomeClass.INFRASTRUCTURE


@pytest.mark.parametrize(
    ("seconds", "limit", "outcome"),
    [
        (899.0, 900.0, "agent_timeout"),
        (820.0, 900.0, "agent_timeout"),
        (60.0, 900.0, "infrastructure"),
        (60.0, None, "infrastructure"),
        (0.4, 1.0, "agent_timeout"),
        (None, 900.0, "agent_timeout"),
        (None, None, "agent_timeout"),
    ],
)
def test_a_timeout_that_came_too_early_was_not_the_agents(
    seconds: float | None, limit: float | None, outcome: str
) -> None:
    assert verdict("AgentTimeoutError", agent_seconds=seconds, agent_timeout=limit).outcome == outcome


@pytest.mark.parametrize(("failure", "outcome"), [("overflow", "context_overflow"), ("output_limit", "output_limit")])
def test_a_crash_on_a_call_that_the_gateway_refused_for_its_length(failure: str, outcome: str) -> None:
    calls = CallEvidence(calls=7, failed=1, last_failure=failure, overflowed=True)
    found = verdict(EXIT, exited(1, stderr="Traceback ..."), calls=calls, rewards={"reward": 0.0})
    assert (found.outcome, found.reward) == (outcome, 0.0)
    assert verdict(EXIT, exited(1), calls=calls, rewards=None).outcome is OutcomeClass.BAD_REWARD
    # Not a type on the allow-list, and not one of an agent that gave up either.
    assert not verdict("KeyError", "'choices'", calls=calls).scored
    # An earlier refusal that the agent survived does not explain a later crash.
    assert not verdict(EXIT, exited(1), calls=CallEvidence(calls=7, failed=1, overflowed=True)).scored


# --- before the agent ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [EXIT, "RuntimeError", "AgentTimeoutError", "ContextWindowExceededError", "Whatever"])
@pytest.mark.parametrize("phase", ["create", "environment", "setup"])
def test_what_fails_before_the_agent_runs_is_infrastructure(kind: str, phase: str) -> None:
    found = verdict(kind, "Agent setup failed with exit code 100", phase=phase, rewards={"reward": 1.0})
    assert (found.outcome, found.retryable, found.reward) == (OutcomeClass.INFRASTRUCTURE, True, None)


@pytest.mark.parametrize(
    ("message", "outcome", "cause"),
    [
        ("Invalid kwargs for agent 'mini-swe-agent': Unknown option 'max_seq_len'.", "configuration", "option"),
        ("Task directory /tasks/nope not found", "configuration", "option"),
        (
            "fatal: unable to access the repository: Could not resolve host: git.example.org",
            "infrastructure",
            "network",
        ),
        ("[Errno 28] No space left on device: '/runs/trials'", "infrastructure", "runner"),
    ],
)
def test_what_harbor_refuses_to_create(message: str, outcome: str, cause: str) -> None:
    found = verdict("TrialCreateError", message, phase="create", calls=None, rewards=None)
    assert (found.outcome, found.cause) == (outcome, cause)


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("Error response from daemon: manifest for acme/task:7 not found: manifest unknown", "image"),
        ("pull access denied for acme/private, repository does not exist or may require login", "image"),
        ("Multi-stage Dockerfiles are not supported", "image"),
        ("No files found in /work/tasks/a/environment/absent.txt", "image"),
        ("400: Timeout cannot be greater than 1 hours", "option"),
        ("Invalid API key, please check that you have set E2B_API_KEY correctly", "key"),
    ],
)
def test_sandboxes_that_no_further_try_can_start(message: str, cause: str) -> None:
    found = verdict("RuntimeError", message, phase="environment", calls=None, rewards=None)
    assert (found.outcome, found.cause, found.retryable) == (OutcomeClass.CONFIGURATION, cause, False)


# --- types -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("RunnerLostError", "runner"),
        ("SandboxLostError", "sandbox"),
        ("EnvironmentStartError", "sandbox"),
        ("EnvironmentStartTimeoutError", "sandbox"),
        ("SandboxException", "sandbox"),
        ("NotFoundException", "sandbox"),
        ("DownloadVerifierDirError", "sandbox"),
        ("AgentSetupTimeoutError", "setup"),
        ("ReadTimeout", "network"),
        ("RemoteProtocolError", "network"),
        ("NetworkConnectionError", "network"),
        ("ServiceUnavailableError", "api"),
        ("ApiOverloadedError", "api"),
    ],
)
def test_infrastructure_types(kind: str, cause: str) -> None:
    found = verdict(kind, "the connection was lost", rewards={"reward": 1.0})
    assert (found.outcome, found.cause, found.reward, found.retryable) == ("infrastructure", cause, None, True)
    assert found.evidence.startswith(kind)


def test_a_retry_wrapper_shows_what_it_wraps_but_never_scores_it() -> None:
    message = "RetryError[<Future at 0x7f finished raised RemoteProtocolError>]"
    assert verdict("RetryError", message).cause == "network"
    assert not verdict("RetryError", message.replace("RemoteProtocolError", "ContextWindowExceededError")).scored


def test_keys() -> None:
    refused = CallEvidence(failed=3, last_failure="auth", last_failure_text="Incorrect API key provided")
    found = verdict("AgentAuthenticationError", "Incorrect API key provided", calls=refused)
    assert (found.outcome, found.cause) == (OutcomeClass.CONFIGURATION, "key")
    assert verdict("AuthenticationException", "bad E2B key", calls=None).outcome is OutcomeClass.CONFIGURATION
    # The route's key worked, so it is not our configuration that the agent complains about.
    elsewhere = verdict(
        "AgentAuthenticationError", exited(1, stdout="could not read Username for 'https://github.com'")
    )
    assert elsewhere.outcome is OutcomeClass.AGENT_FAILURE
    assert verdict("ModelNotFoundError", "Cannot use this model").cause == "model"


def test_an_unknown_type_is_a_crash_in_the_agent_and_infrastructure_in_the_verifier() -> None:
    crash = verdict("ZeroDivisionError", "division by zero", rewards={"reward": 1.0})
    assert (crash.outcome, crash.cause, crash.reward) == (OutcomeClass.AGENT_FAILURE, "crash", None)
    broken = verdict("RuntimeError", "Failed to remove verifier reward files (exit code 1)", phase="verify")
    assert (broken.outcome, broken.cause) == (OutcomeClass.INFRASTRUCTURE, "sandbox")
    no_script = verdict(
        "FileNotFoundError", "No test script found in: /tasks/x/tests (target OS: linux)", phase="verify"
    )
    assert (no_script.outcome, no_script.cause) == (OutcomeClass.BAD_REWARD, "verifier_fault")


# --- cancellation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["operator", "group", "run"])
def test_cancelled(who: str) -> None:
    found = verdict("CancelledError", phase="agent", rewards=None, cancelled_by=who)
    assert (found.outcome, found.cause, found.retryable) == (OutcomeClass.CANCELLED, who, False)
    # A cancelled trial may die of anything on its way out, and that triggers no policy.
    assert verdict("RunnerLostError", rewards=None, cancelled_by=who).outcome is OutcomeClass.CANCELLED
    lost = verdict("CancelledError", rewards=None, cancelled_by=who, calls=CallEvidence(calls=2, lost=1))
    assert lost.outcome is OutcomeClass.CANCELLED and "capture_loss" in lost.notes[0]


def test_a_trial_that_had_ended_before_it_was_cancelled_keeps_its_reward() -> None:
    assert verdict(rewards={"reward": 1.0}, cancelled_by="operator").reward == 1.0
    cut = CallEvidence(calls=2, failed=1, last_failure="client")
    assert verdict(rewards={"reward": 0.0}, cancelled_by="operator", calls=cut).outcome is OutcomeClass.CANCELLED


def test_a_cancellation_that_nobody_asked_for_is_infrastructure() -> None:
    found = verdict("CancelledError", rewards=None)
    assert (found.outcome, found.cause) == (OutcomeClass.INFRASTRUCTURE, "runner")


def test_evidence_is_one_bounded_line_with_the_telling_end() -> None:
    found = verdict("SandboxException", "x\n" * 2000 + "sandbox sbx-1 was not found")
    assert len(found.evidence) <= 300 and "\n" not in found.evidence
    assert found.evidence.startswith("SandboxException") and found.evidence.endswith("was not found")


def test_an_agent_that_gives_up_on_a_cut_answer_is_at_the_output_limit() -> None:
    cut = CallEvidence(calls=3, sampled_tokens=900, truncated=True)
    assert verdict(EXIT, exited(1), calls=cut).outcome is OutcomeClass.OUTPUT_LIMIT
    assert verdict(EXIT, exited(137), calls=cut).outcome is OutcomeClass.AGENT_FAILURE
    assert verdict(EXIT, exited(1), calls=HEALTHY).outcome is OutcomeClass.AGENT_FAILURE


@pytest.mark.parametrize(("failure", "outcome"), [("overflow", "context_overflow"), ("budget", "output_limit")])
def test_an_agent_that_ends_in_order_at_a_limit_is_of_that_class(failure: str, outcome: str) -> None:
    found = verdict(calls=CallEvidence(calls=7, failed=1, last_failure=failure), rewards={"reward": 0.5})
    assert (found.outcome, found.reward) == (outcome, 0.5)


def test_answered_calls_of_which_none_may_be_trained_are_no_samples() -> None:
    found = verdict(calls=CallEvidence(calls=2, sampled_tokens=9, trained=0))
    assert (found.outcome, found.cause) == (
        "no_samples",
        "excluded",
    ) and "2 model calls were answered" in found.evidence
    assert verdict(calls=CallEvidence(calls=2, sampled_tokens=9, trained=1)).scored
    assert "one model call only" in verdict(calls=CallEvidence(calls=1, sampled_tokens=9)).notes[0]
