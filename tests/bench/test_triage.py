"""Trials up to their agent's end, two or more of each kind: the class, the cause, and the line that decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from triaged import EXIT, Judge, check_line, exited, judging, kind

STDOUT = "verifier/test-stdout.txt"


@pytest.fixture
def judged(tmp_path: Path) -> Judge:
    return judging(tmp_path)


# --- what ended in order -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.1.0", "0.1.45", "0.6.4", "0.14.0", "0.18.0", "0.20.0", "0.21.0", "0.26.0"])
@pytest.mark.parametrize("reward", [1.0, 0.0, 0.909661])
def test_a_clean_end(judged: Judge, version: str, reward: float) -> None:
    found = judged(reward, version=version, files={STDOUT: "==== 2 failed, 1 passed in 3.1s ====\n"})
    assert (kind(found), found.reward, found.rule, found.confidence) == ("completed", reward, "end.clean", "high")
    check_line(found)
    assert f'"reward": {reward}' in found.evidence.text and not found.notes


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ("AgentTimeoutError", "agent_timeout"),
        ("ContextWindowExceededError", "context_overflow"),
        ("ContextLengthExceededError", "context_overflow"),
        ("OutputTokenExceededError", "output_limit"),
        ("OutputLengthExceededError", "output_limit"),
    ],
)
@pytest.mark.parametrize("reward", [0.0, 1.0])
@pytest.mark.parametrize("version", ["0.1.45", "0.26.0"])
def test_limits_keep_the_verifiers_reward(judged: Judge, error: str, outcome: str, reward: float, version: str) -> None:
    told = (error, "Agent execution timed out after 60.0 seconds")
    found = judged(reward, error=told, version=version, files={STDOUT: "1 failed\n"})
    assert (kind(found), found.reward, found.evidence.file) == (outcome, reward, "exception.txt")
    check_line(found)


def test_a_timeout_long_before_its_limit_is_somebody_elses(judged: Judge) -> None:
    message = "Agent execution timed out after 900.0 seconds"
    found = judged(0.0, error=("AgentTimeoutError", message), seconds={"agent": 31})
    assert (kind(found), found.rule) == ("infrastructure/sandbox", "calls.early_timeout")
    assert "31" in found.evidence.text and "900" in found.evidence.text


def test_a_limit_that_nobody_recorded_proves_nothing(judged: Judge) -> None:
    found = judged(1.0, error=("AgentTimeoutError", ""), seconds={"agent": 31})
    assert found.trial.agent_timeout is None and (kind(found), found.reward) == ("agent_timeout", 1.0)


def test_only_one_reward_or_the_one_that_was_asked_for(judged: Judge) -> None:
    assert (kind(judged(rewards={"score": 0.5})), judged(rewards={"score": 0.5}).reward) == ("completed", 0.5)
    both = judged(rewards={"reward": 1.0, "speed": 0.2})
    assert (kind(both), both.reward) == ("completed", 1.0)
    neither = judged(rewards={"a": 1.0, "b": 0.2})
    assert (kind(neither), neither.reward) == ("bad_reward/missing", None)


@pytest.mark.parametrize(
    ("rewards", "cause"),
    [
        (None, "missing"),
        ({}, "missing"),
        ({"reward": None}, "missing"),
        ({"reward": float("nan")}, "non_finite"),
        ({"reward": "inf"}, "non_finite"),
        ({"reward": "passed"}, "non_numeric"),
        ({"reward": True}, "non_numeric"),
        ({"reward": 1e30}, "too_large"),
    ],
)
@pytest.mark.parametrize("error", [None, ("AgentTimeoutError", "Agent execution timed out after 60.0 seconds")])
def test_rewards_that_are_none(judged: Judge, rewards: Any, cause: str, error: Any) -> None:
    found = judged(rewards=rewards, error=error)
    assert (kind(found), found.reward, found.rule) == (f"bad_reward/{cause}", None, f"reward.{cause}")
    check_line(found)


# --- before the agent ----------------------------------------------------------------------------------------------

COMPOSE = "Docker compose command failed for environment fix-git. Return code: 1. Stdout: None. Stderr: no such service"
SETUP = "Agent setup failed with exit code 1. See logs in agent/setup"


@pytest.mark.parametrize(
    ("phase", "error", "expected"),
    [
        ("environment", ("RuntimeError", COMPOSE), "infrastructure/sandbox"),
        ("environment", ("RuntimeError", "failed to solve: process did not complete"), "infrastructure/sandbox"),
        ("environment", ("EnvironmentStartTimeoutError", "timed out after 600 seconds"), "infrastructure/sandbox"),
        ("environment", ("KeyError", "'sandbox_id'"), "infrastructure/sandbox"),
        ("environment", ("RuntimeError", "manifest for tb/x:1 not found: manifest unknown"), "configuration/image"),
        ("environment", ("RuntimeError", "pull access denied for tb/x"), "configuration/image"),
        ("environment", ("RemoteError", "Image build terminated"), "infrastructure/sandbox"),
        ("setup", ("RuntimeError", SETUP), "infrastructure/setup"),
        ("setup", ("ProcessLookupError", ""), "infrastructure/sandbox"),
        ("setup", ("AgentSetupTimeoutError", "timed out after 360 seconds"), "infrastructure/setup"),
        ("setup", (EXIT, exited(100, "E: Failed to fetch http://deb.example.org/x  404  Not Found [IP: 1.2.3.4 80]")),
         "infrastructure/setup"),
        ("setup", (EXIT, exited(127, "/bin/sh: 1: curl: not found")), "infrastructure/setup"),
        ("setup", (EXIT, exited(2, "/bin/sh: 1: set: Illegal option -o pipefail")), "infrastructure/setup"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("version", ["0.1.45", "0.26.0"])
def test_what_fails_before_the_agent(judged: Judge, phase: str, error: Any, expected: str, version: str) -> None:
    found = judged(error=error, phase=phase, version=version, tokens=None)
    assert kind(found) == expected
    check_line(found)


def test_the_line_that_says_most_of_a_failed_setup(judged: Judge) -> None:
    output = "Reading package lists...\nE: Unable to locate package tmux\nsee above"
    found = judged(error=(EXIT, exited(100, output)), phase="setup", tokens=None)
    assert (kind(found), found.evidence.text) == ("infrastructure/setup", "E: Unable to locate package tmux")
    check_line(found)


# --- the exception's type ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (("SandboxError", "sandbox gone"), "infrastructure/sandbox"),
        (("DaytonaError", "internal"), "infrastructure/sandbox"),
        (("ProcessLookupError", ""), "infrastructure/sandbox"),
        (("GKEPodNotFoundError", "pod"), "infrastructure/sandbox"),
        (("MemoryLimitExceededError", "memory"), "infrastructure/sandbox"),
        (("RemoteProtocolError", "Server disconnected without sending a response."), "infrastructure/network"),
        (("ReadTimeout", ""), "infrastructure/network"),
        (("ReadError", ""), "infrastructure/network"),
        (("ConnectTimeout", ""), "infrastructure/network"),
        (("WriteError", ""), "infrastructure/network"),
        (("InternalServerError", "litellm.InternalServerError: 504 Gateway Time-out"), "infrastructure/api"),
        (("RateLimitError", "litellm.RateLimitError: 429"), "infrastructure/api"),
        (("APIConnectionError", "Connection error."), "infrastructure/api"),
        (("Timeout", "litellm.Timeout"), "infrastructure/api"),
        (("RetryError", "RetryError[<Future at 0x7f state=finished raised ReadTimeout>]"), "infrastructure/network"),
        (("AuthenticationError", "litellm.AuthenticationError: Incorrect API key"), "configuration/key"),
        (("AgentAuthenticationError", exited(1, "Not logged in")), "configuration/key"),
        (("NotFoundError", "litellm.NotFoundError: no such model"), "configuration/model"),
        (("BudgetExceededError", "Budget has been exceeded"), "configuration/quota"),
        (("ApiUsageLimitError", exited(1, "Error: Your credit balance is too low")), "configuration/quota"),
        (
            ("AgentSafetyRefusalError", exited(1, "API Error: flagged: violate our Usage Policy")),
            "agent_failure/refusal",
        ),
        (("ContentPolicyViolationError", "refused"), "agent_failure/refusal"),
    ],
)
@pytest.mark.parametrize("version", ["0.6.4", "0.26.0"])
def test_types_that_say_it(judged: Judge, error: Any, expected: str, version: str) -> None:
    found = judged(0.0, error=error, version=version)
    assert (kind(found), found.reward) == (expected, 0.0)
    check_line(found)


# --- the agent's exit ----------------------------------------------------------------------------------------------

CONTEXT = [
    "litellm.ContextWindowExceededError: litellm.BadRequestError: too long",
    "openai.BadRequestError: Error code: 400 - This model's maximum context length is 262144 tokens. However, you",
    "ValueError: The input (270101 tokens) is longer than the model's context length (262144 tokens).",
    "Error: Requested token count exceeds the model's maximum context length of 262144 tokens.",
    "openai.BadRequestError: Error code: 400 - {'code': 'context_length_exceeded'}",
    "Error code: 400 - Error: Your input exceeds the context window of this model.",
    '{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 205000 tokens > 200000"}}',
    '{"type":"error","error":{"message":"input length and `max_tokens` exceed context limit: 188240 + 21333"}}',
    "Error: the decoder prompt (length 9000) is longer than the maximum model length of 8192",
    "google.api_core.exceptions.Error: input token count (1200000) exceeds the maximum number of tokens",
]


@pytest.mark.parametrize("line", CONTEXT)
@pytest.mark.parametrize("type_", [EXIT, "BadRequestError", "UnknownApiError", "InternalServerError"])
def test_a_conversation_that_grew_too_long(judged: Judge, line: str, type_: str) -> None:
    message = exited(1, f"starting\n{line}\nbye") if type_ in (EXIT, "UnknownApiError") else line
    found = judged(0.0, error=(type_, message))
    assert kind(found) == "agent_failure/context_overflow"
    check_line(found)
    assert found.evidence.text[:30] in line or line[:30] in found.evidence.text


@pytest.mark.parametrize(
    ("stderr", "expected", "line"),
    [
        ("API Error: 401 Unauthorized\n", "configuration/key", "401"),
        ("Error: the token has expired", "configuration/key", "expired"),
        ("Error: HTTP 403: 403 Forbidden", "configuration/key", "403"),
        ("Error code: 402 - error: requires more credits", "configuration/quota", "402"),
        ("HTTP 429: error: too many requests", "infrastructure/api", "429"),
        ("Error: 504 Gateway Time-out", "infrastructure/api", "504"),
        ('{"type":"turn.failed","error":{"message":"upstream timeout"}}', "infrastructure/api", "turn.failed"),
        ("Error: connect ECONNREFUSED 10.0.0.7:30000", "infrastructure/network", "ECONNREFUSED"),
        ("curl: (6) Could not resolve host: github.com", "infrastructure/network", "resolve"),
        ("npm ERR! code EAI_AGAIN", "infrastructure/network", "EAI_AGAIN"),
        ("E: The repository 'http://x' does not have a Release file.", "infrastructure/setup", "Release"),
        ("Err:5 http://security.debian.org bullseye\n  404  Not Found [IP: 1.1.1.1 80]", "infrastructure/setup", "404"),
        ("E: Failed to fetch http://security.debian.org/x", "infrastructure/setup", "E: Failed"),
        ("/bin/sh: 1: ps: not found", "infrastructure/setup", "ps: not found"),
        ("sh: line 3: tmux: command not found", "infrastructure/setup", "tmux"),
        ("/bin/sh: 1: set: Illegal option -o pipefail", "infrastructure/setup", "pipefail"),
        ("/lib/libc.so.6: version `GLIBC_2.34' not found", "infrastructure/setup", "GLIBC"),
        ("OSError: [Errno 28] No space left on device", "infrastructure/sandbox", "No space"),
        ("error: response exceeded the 32000 output token maximum", "agent_failure/output_limit", "output token"),
        ("error: unknown option '- You are given'", "agent_failure/agent_bug", "unknown option"),
        ("usage: x\nx: error: unrecognized arguments: -foo", "agent_failure/agent_bug", "unrecognized"),
        ("Error: This request was blocked by our safety systems.", "agent_failure/refusal", "safety"),
        ("Error: the model `qwen` does not exist", "configuration/model", "does not exist"),
        ("Traceback\nZeroDivisionError: division by zero", "agent_failure/crash", "Command failed"),
    ],
)
def test_what_an_exit_code_stands_for(judged: Judge, stderr: str, expected: str, line: str) -> None:
    found = judged(0.0, error=(EXIT, exited(1, stderr)))
    assert (kind(found), found.reward) == (expected, 0.0)
    check_line(found)
    assert line in found.evidence.text


def test_the_reason_nearest_the_end_decides_and_several_make_less_sure(judged: Judge) -> None:
    first = "Error: 429 too many requests, retrying\n" * 3
    found = judged(0.0, error=(EXIT, exited(1, first + "Error: This model's maximum context length is 8 tokens")))
    assert (kind(found), found.confidence) == ("agent_failure/context_overflow", "low")
    alone = judged(0.0, error=(EXIT, exited(1, "Error: This model's maximum context length is 8 tokens")))
    assert alone.confidence == "medium"


def test_words_of_the_command_are_no_reason(judged: Judge) -> None:
    command = "mini-swe-agent --task 'Error: 401 Unauthorized must not come; maximum context length'"
    assert kind(judged(0.0, error=(EXIT, exited(1, "done", command=command)))) == "agent_failure/crash"


@pytest.mark.parametrize("name", ["agent/mini-swe-agent.txt", "agent/claude/session.log"])
def test_the_agents_own_log_says_why(judged: Judge, name: str) -> None:
    log = "step 1\n" * 500 + "litellm.exceptions.AuthenticationError: Incorrect API key provided\n"
    found = judged(0.0, error=(EXIT, exited(1)), files={name: log})
    assert (kind(found), found.evidence.file, found.evidence.line) == ("configuration/key", name, 501)
    check_line(found)


def test_lines_are_counted_from_the_beginning_of_a_long_log(judged: Judge) -> None:
    log = "step 1 of many, which are all the same\n" * 9_000 + "Error: 401 Unauthorized\n"
    found = judged(0.0, error=(EXIT, exited(1)), files={"agent/x.txt": log})
    assert found.evidence.line == 9_001
    check_line(found)
    very = log * 30
    found = judged(0.0, error=(EXIT, exited(1)), files={"agent/x.txt": very})
    assert (kind(found), found.evidence.line) == ("configuration/key", None)


def test_an_agents_work_is_not_why_it_ended(judged: Judge) -> None:
    log = "Error: HTTP 401 Unauthorized\n" + "it works on\n" * 400
    assert kind(judged(0.0, error=(EXIT, exited(1)), files={"agent/x.txt": log})) == "agent_failure/crash"


@pytest.mark.parametrize("code", [137, 143])
def test_a_killed_agent_stays_ambiguous_unless_something_tells(judged: Judge, code: int) -> None:
    found = judged(0.0, error=(EXIT, exited(code)))
    assert (kind(found), found.rule, found.confidence) == ("ambiguous/killed", "bench.killed", "low")
    check_line(found)
    told = judged(0.0, error=(EXIT, exited(code, "Memory cgroup out of memory: Killed process 41 (node)")))
    assert kind(told) == "infrastructure/sandbox"


@pytest.mark.parametrize("code", [126, 127])
def test_a_command_that_was_not_found(judged: Judge, code: int) -> None:
    assert kind(judged(0.0, error=(EXIT, exited(code)), tokens=None)) == "infrastructure/setup"
    worked = judged(0.0, error=(EXIT, exited(code)), tokens=(900, 0, 50))
    assert (kind(worked), worked.rule) == ("agent_failure/crash", "bench.exit_after_work")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (("RuntimeError", "Command timed out after 600 seconds"), "agent_failure/exec_timeout"),
        (("RuntimeError", "Command timed out after 12000.0 seconds\nlast output"), "agent_failure/exec_timeout"),
        ((EXIT, exited(124)), "agent_failure/exec_timeout"),
        (("JSONDecodeError", "Expecting value: line 1 column 1 (char 0)"), "agent_failure/agent_bug"),
        (("AttributeError", "'NoneType' object has no attribute 'content'"), "agent_failure/agent_bug"),
        (("KeyError", "'choices'"), "agent_failure/agent_bug"),
        (("SomethingNobodyKnows", "odd"), "agent_failure/crash"),
        (("RuntimeError", "Error: 402 requires more credits"), "configuration/quota"),
        (("RuntimeError", "HTTP error 503 service: Internal server error"), "infrastructure/api"),
    ],
)
def test_what_the_host_raised(judged: Judge, error: Any, expected: str) -> None:
    found = judged(error=error)
    assert kind(found) == expected
    check_line(found)


def test_a_word_in_the_agents_work_is_no_rate_limit(judged: Judge) -> None:
    work = "I configure nginx: limit_req zone=one; the rate limit exceeded page is a custom one"
    found = judged(0.0, error=("ApiRateLimitError", exited(1, stdout=work)))
    assert (kind(found), found.rule) == ("ambiguous/output_words", "bench.output_words")
    check_line(found)
    true = judged(0.0, error=("ApiRateLimitError", exited(1, stdout=work + "\nAPI Error: 429 rate limit reached")))
    assert kind(true) == "infrastructure/api"
    cut = judged(0.0, error=("ApiRateLimitError", exited(1, stdout=f"{work} ... [400 chars truncated] ... bye")))
    assert kind(cut) == "infrastructure/api"


def test_a_type_out_of_the_output_is_shown_with_its_line(judged: Judge) -> None:
    output = "begin\nError: Incorrect API key provided\nend"
    found = judged(error=("AgentAuthenticationError", exited(1, output)))
    assert (kind(found), found.evidence.text) == ("configuration/key", "Error: Incorrect API key provided")
    check_line(found)


def test_an_error_line_of_the_service_that_no_rule_knows(judged: Judge) -> None:
    found = judged(error=("UnknownApiError", exited(1, "API Error: something new")))
    assert (kind(found), found.rule, found.confidence) == ("infrastructure/api", "type.api", "medium")


# --- sandboxes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["RemoteProtocolError", "SandboxError"])
@pytest.mark.parametrize("where", ["exception", "trial.log", "agent/sandbox.log"])
def test_a_sandbox_that_was_killed_when_idle(judged: Judge, type_: str, where: str) -> None:
    line = "sbx-server: idle for 601917ms, shutting down"
    message = f"lost\n{line}" if where == "exception" else "Server disconnected"
    files = {} if where == "exception" else {where: f"a\nb\n{line}\n"}
    found = judged(error=(type_, message), seconds={"agent": 602}, files=files)
    assert (kind(found), found.rule, found.evidence.text) == ("infrastructure/sandbox", "bench.idle_killed", line)
    check_line(found)
    assert "bench.idle_suspected" not in found.notes
    silent = judged(error=(type_, "Server disconnected"), seconds={"agent": 602})
    assert silent.outcome == "infrastructure" and "bench.idle_suspected" in silent.notes
    assert "bench.idle_suspected" not in judged(error=(type_, "x"), seconds={"agent": 640}).notes


# --- keys ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["sk-proj-abcdefghijklmnop1234", "hf_abcdefghijklmnop1234", "Bearer abcdefghijklmnop"])
def test_no_verdict_quotes_a_key(judged: Judge, key: str) -> None:
    line = f"litellm.AuthenticationError: Incorrect API key provided: {key}"
    for found in (judged(error=(EXIT, exited(1, line))), judged(error=("AuthenticationError", line))):
        assert kind(found) == "configuration/key"
        assert "Incorrect API key provided" in found.evidence.text and "[redacted]" in found.evidence.text
        assert not any(key.split()[-1] in text for text in (found.evidence.text, *found.notes.values()))
