"""No exception outside the allow-list is ever scored, whatever its name and whatever else is known of the trial."""

from __future__ import annotations

import builtins
import importlib.util
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.outcomes.classes import CallEvidence, OutcomeClass, TrialEvidence
from console.outcomes.rewards import RewardPolicy
from console.outcomes.rules import classify
from console.outcomes.types import AGENT_EXITS, SCOREABLE, TYPE_RULES

ALLOWED = {
    "AgentTimeoutError",
    "ContextWindowExceededError",
    "ContextLengthExceededError",
    "OutputTokenExceededError",
    "OutputLengthExceededError",
}
SOURCES = ("harbor", "e2b", "litellm/exceptions.py", "httpx", "httpcore", "aiohttp", "openai", "tinker", "console")
_CLASS = re.compile(r"^class (\w+)\(([^)]*(?:Error|Exception|Timeout)[^)]*)\)", re.MULTILINE)


def recordable_names() -> list[str]:
    """Every exception class name that Harbor could record: its own, its providers', its clients', the builtins'."""
    from harbor.models.trial.error_policy import ERROR_POLICIES

    names = set(ERROR_POLICIES)
    for source in SOURCES:
        package, _, file = source.partition("/")
        spec = importlib.util.find_spec(package)
        assert spec is not None and spec.submodule_search_locations, package
        root = Path(next(iter(spec.submodule_search_locations)))
        for path in [root / file] if file else root.rglob("*.py"):
            names.update(match[0] for match in _CLASS.findall(path.read_text(encoding="utf-8", errors="replace")))
    names.update(
        name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
    )
    return sorted(names)


NAMES = recordable_names()
OTHER_NAMES = [name for name in NAMES if name not in ALLOWED]

PHASES = st.sampled_from([None, "create", "environment", "setup", "agent", "verify", "teardown"])
REWARDS = st.one_of(
    st.none(),
    st.dictionaries(st.just("reward"), st.one_of(st.floats(), st.booleans(), st.text(max_size=4), st.none())),
)
CALLS = st.one_of(
    st.none(),
    st.builds(
        CallEvidence,
        calls=st.integers(0, 3),
        failed=st.integers(0, 3),
        lost=st.integers(0, 1),
        no_logprobs=st.integers(0, 1),
        last_failure=st.sampled_from([None, "backend", "overflow", "output_limit", "client", "auth"]),
        backend_seconds=st.floats(0, 500),
        overflowed=st.booleans(),
        truncated=st.booleans(),
    ),
)
TEXTS = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        [
            "",
            "RetryError[<Future raised AgentTimeoutError>]",
            "Error: context_length_exceeded",
            "Command failed (exit 1): agent\nstdout: None\nstderr: Error: maximum context length",
            "prompt is too long: 70000 tokens > 65536 maximum",
        ]
    ),
)
POLICIES = st.builds(RewardPolicy, verifier_faults=st.sampled_from(["reject", "score"]), require_samples=st.booleans())
EVIDENCE = st.fixed_dictionaries(
    {
        "exception_message": TEXTS,
        "exception_phase": PHASES,
        "rewards": REWARDS,
        "verifier_output": TEXTS,
        "agent_seconds": st.one_of(st.none(), st.floats(0, 1000)),
        "agent_timeout": st.one_of(st.none(), st.floats(1, 1000)),
        "calls": CALLS,
        "cancelled_by": st.sampled_from([None, None, "operator", "group", "run"]),
    }
)


def test_the_harvest_and_the_allow_list() -> None:
    assert len(NAMES) > 250
    for name in ("SandboxException", "ReadTimeout", "RateLimitError", "SandboxLostError", "KeyError", *ALLOWED):
        assert name in NAMES or name == "OutputLengthExceededError", name
    assert {name for name in SCOREABLE if name is not None} == ALLOWED
    assert not ALLOWED & set(TYPE_RULES) and not ALLOWED & AGENT_EXITS


@pytest.mark.parametrize("phase", [None, "setup", "agent", "verify"])
def test_no_recordable_name_outside_the_allow_list_is_scored(phase: str | None) -> None:
    scored = []
    for name in OTHER_NAMES:
        evidence = TrialEvidence(
            exception_type=name, exception_phase=phase, rewards={"reward": 1.0}, calls=CallEvidence(calls=5)
        )
        verdict = classify(evidence)
        assert verdict.rule and verdict.evidence
        if verdict.scored or verdict.reward is not None:
            scored.append(name)
    assert scored == []


ANY_NAMES = st.one_of(
    st.sampled_from(OTHER_NAMES), st.from_regex(r"[A-Z][A-Za-z]{0,20}(Error|Exception)?", fullmatch=True)
)


@given(name=ANY_NAMES, rest=EVIDENCE, policy=POLICIES)
def test_no_evidence_makes_another_exception_a_reward(name: str, rest: dict, policy: RewardPolicy) -> None:
    if name in ALLOWED:
        return
    verdict = classify(TrialEvidence(exception_type=name, **rest), policy)
    refused = rest["calls"] is not None and rest["calls"].last_failure in ("overflow", "output_limit")
    if verdict.scored:
        # The one exception: the capture gateway itself refused the last call for its length, and the agent gave up.
        assert name in AGENT_EXITS and refused
        assert verdict.outcome in (OutcomeClass.CONTEXT_OVERFLOW, OutcomeClass.OUTPUT_LIMIT)


@given(name=st.one_of(st.none(), st.sampled_from(NAMES)), rest=EVIDENCE, policy=POLICIES)
def test_every_verdict_is_whole(name: str | None, rest: dict, policy: RewardPolicy) -> None:
    verdict = classify(TrialEvidence(exception_type=name, **rest), policy)
    assert verdict.rule and verdict.evidence and len(verdict.evidence) <= 300
    assert (verdict.reward is not None) == verdict.scored
    assert verdict.retryable == (verdict.outcome is OutcomeClass.INFRASTRUCTURE)
    assert verdict.outcome not in (OutcomeClass.AMBIGUOUS, OutcomeClass.UNREADABLE)
    if verdict.scored:
        assert abs(verdict.reward) <= policy.reward_limit
        assert rest["exception_phase"] not in ("create", "environment", "setup") or name is None
        assert rest["calls"] is None or not (rest["calls"].lost or rest["calls"].no_logprobs)
