"""The terminal agent in real Harbor trials, against a real HTTP server that speaks OpenAI chat."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from console.resources import tasks_dir
from console.trials.dialogue import SYSTEM_PROMPT, bounded, command_in, is_last, observation

os.environ |= {"HARBOR_TELEMETRY": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

type Policy = Callable[[dict[str, Any]], str | web.Response | Awaitable[web.Response]]


def block(command: str) -> str:
    return f"```bash\n{command}\n```"


class Endpoint:
    """An OpenAI chat endpoint whose replies a function of the request decides."""

    def __init__(self) -> None:
        self.policy: Policy = lambda request: "Done."
        self.url = ""
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.keys.append(request.headers["Authorization"])
        reply = self.policy(body)
        if isinstance(reply, Awaitable):
            return await reply
        if isinstance(reply, web.Response):
            return reply
        usage = {"prompt_tokens": 10 * len(body["messages"]), "completion_tokens": 5}
        return web.json_response({"choices": [{"message": {"content": reply}}], "usage": usage})


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    from console.trials.agent import close_client

    endpoint = Endpoint()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", endpoint.chat)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    endpoint.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield endpoint
    await close_client()
    await runner.cleanup()


async def trial(
    url: str, trials_dir: Path, task: str = "create-file", model: str | None = None, watch: Any = None, **options: Any
) -> Any:
    """The `TrialResult` of one trial of the agent; `watch(trial)` sees the trial before it runs."""
    from harbor.models.trial.config import TrialConfig
    from harbor.trial.trial import Trial

    agent = {
        "import_path": "console.trials.agent:TerminalAgent",
        "model_name": model,
        "kwargs": options,
        "env": {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "secret-of-this-trial"},
    }
    config = {
        "task": {"path": str(tasks_dir() / task)},
        "trials_dir": str(trials_dir),
        "agent": agent,
        "environment": {"import_path": "console.trials.bwrap:BwrapEnvironment"},
    }
    made = await Trial.create(TrialConfig.model_validate(config))
    if watch:
        watch(made)
    return await made.run()


def transcript(trials_dir: Path) -> list[dict[str, str]]:
    (path,) = trials_dir.glob("*/agent/transcript.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_reads_the_note_acts_on_it_and_stops(endpoint: Endpoint, tmp_path: Path) -> None:
    def policy(request: dict[str, Any]) -> str:
        last = request["messages"][-1]["content"]
        if found := re.search(
            r"write (\w+) to ([\w.]+)\.$|the word (\w+) into ([\w.]+)\.$|file ([\w.]+) containing (\w+)\.$", last
        ):
            a, b, c, d, f, e = found.groups()
            return block(f"echo {a or c or e} > {b or d or f}")
        return "Done." if last == "exit 0" else block("cat *.txt")

    endpoint.policy = policy
    result = await trial(endpoint.url, tmp_path, "note-write", model="openai/policy-7", max_tokens=48, temperature=0.5)
    assert result.exception_info is None
    assert result.verifier_result.rewards == {"reward": 1.0}
    told = transcript(tmp_path)
    assert [m["role"] for m in told] == ["system", "user", "assistant", "user", "assistant", "user", "assistant"]
    assert told[0]["content"] == SYSTEM_PROMPT and told[-1]["content"] == "Done."
    assert endpoint.requests[-1]["messages"] == told[:-1]
    assert {k: v for k, v in endpoint.requests[0].items() if k != "messages"} == {
        "model": "policy-7",
        "max_tokens": 48,
        "temperature": 0.5,
    }
    assert set(endpoint.keys) == {"Bearer secret-of-this-trial"}
    assert (result.agent_result.n_input_tokens, result.agent_result.n_output_tokens) == (20 + 40 + 60, 15)
    told_of = result.agent_result.metadata
    assert (told_of["turns"], told_of["commands"], told_of["context_tokens"]) == (3, 2, 65)
    assert 0 < told_of["exec_seconds"] < 60 and 0 < told_of["model_seconds"] < 60
    assert not any("secret-of-this-trial" in p.read_text(errors="replace") for p in tmp_path.rglob("*") if p.is_file())


@pytest.mark.parametrize(
    ("reply", "turns", "commands"),
    [("Done.", 1, 0), ("no block here", 1, 0), (block("ls"), 3, 3), (block("ls") + "\nDone.", 1, 1), ("", 1, 0)],
)
async def test_ends_without_a_command_when_done_or_when_the_turns_are_used_up(
    reply: str, turns: int, commands: int, endpoint: Endpoint, tmp_path: Path
) -> None:
    endpoint.policy = lambda request: reply
    result = await trial(endpoint.url, tmp_path, max_turns=3)
    assert result.exception_info is None and result.verifier_result.rewards == {"reward": 0.0}
    told_of = result.agent_result.metadata
    assert (told_of["turns"], told_of["commands"], len(endpoint.requests)) == (turns, commands, turns)


async def test_a_commands_outcome_is_shown_bounded_whatever_it_is(endpoint: Endpoint, tmp_path: Path) -> None:
    commands = [
        "seq 100000; exit 3",
        "sleep 30",
        "printf 'a\\377\\0\\033[31mb'; echo oops >&2",
        "echo '\0'",
        "echo '\ud800'",
        ": " + "x" * 200_000,
    ]
    endpoint.policy = lambda request: block(commands[len(endpoint.requests) - 1])
    result = await trial(endpoint.url, tmp_path, max_turns=len(commands), exec_timeout=1, observation_limit=100)
    assert result.exception_info is None, result.exception_info
    shown = [m["content"] for m in transcript(tmp_path)[3::2]]
    assert shown[0].startswith("exit 3\n1\n2\n3\n") and shown[0].endswith("\n100000") and len(shown[0]) < 160
    assert shown[1].startswith("exit 124") or "took longer" in shown[1]
    assert shown[2].startswith("exit 0\na") and "\033[31mb" in shown[2] and shown[2].endswith("\noops")
    assert "NUL" in shown[3] and shown[4] == "exit 0\n?" and "too long" in shown[5]


async def test_no_timeout_error_leaves_the_agent(endpoint: Endpoint, tmp_path: Path) -> None:
    """Harbor would take it for the agent's own time limit and score the trial. Container environments raise it."""

    def slow_commands(made: Any) -> None:
        async def exec_(command: str, **_: Any) -> Any:
            raise TimeoutError

        made.agent_environment.exec = exec_

    endpoint.policy = lambda request: block("ls") if len(endpoint.requests) == 1 else "Done."
    result = await trial(endpoint.url, tmp_path, exec_timeout=7, watch=slow_commands)
    assert transcript(tmp_path)[3]["content"] == "exit 124\nthe command took longer than 7 s"
    assert result.exception_info is None or result.exception_info.exception_type != "AgentTimeoutError"


def _closed_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


async def _hang(request: dict[str, Any]) -> web.Response:
    await asyncio.sleep(60)
    return web.Response()


def _error(status: int, text: str) -> Policy:
    return lambda request: web.json_response({"error": {"message": text, "code": text}}, status=status)


@pytest.mark.parametrize(
    ("policy", "name", "valid"),
    [
        (_error(400, "This model's maximum context length is 4096 tokens"), "ContextWindowExceededError", True),
        (_error(400, "context_length_exceeded"), "ContextWindowExceededError", True),
        (_error(400, "messages: expected a list"), "BadRequestError", False),
        (_error(401, "who are you"), "AgentAuthenticationError", False),
        (_error(403, "not yours"), "AgentAuthenticationError", False),
        (_error(429, "slow down"), "ApiRateLimitError", False),
        (_error(500, "backend lost"), "ApiInternalServerError", False),
        (_error(503, "not yet"), "ApiInternalServerError", False),
        (lambda request: web.Response(text="<html>"), "ApiInternalServerError", False),
        (lambda request: web.json_response({"choices": []}), "ApiInternalServerError", False),
        (_hang, "ApiConnectionError", False),
        (None, "ApiConnectionError", False),
    ],
)
async def test_an_endpoints_failure_is_named_for_what_it_is(
    policy: Policy | None, name: str, valid: bool, endpoint: Endpoint, tmp_path: Path
) -> None:
    def then_fail(request: dict[str, Any]) -> Any:
        return block("ls") if len(endpoint.requests) == 1 else policy(request)  # type: ignore[misc]

    endpoint.policy = then_fail
    result = await trial(endpoint.url if policy else _closed_port(), tmp_path, request_timeout=1.0)
    assert result.exception_info.exception_type == name
    assert result.reward_valid is valid
    assert len(result.exception_info.exception_message) < 1000
    if policy:
        assert result.agent_result.metadata["turns"] == 1 and len(transcript(tmp_path)) == 4


async def test_a_lost_sandbox_is_not_the_policys_fault(endpoint: Endpoint, tmp_path: Path) -> None:
    made: list[Any] = []

    async def lose_it(request: dict[str, Any]) -> web.Response:
        await made[0].agent_environment.stop(delete=True)
        return web.json_response({"choices": [{"message": {"content": block("ls")}}]})

    endpoint.policy = lose_it
    result = await trial(endpoint.url, tmp_path, watch=made.append)
    assert result.exception_info.exception_type == "SandboxLostError"


async def test_refuses_to_be_built_without_an_endpoint(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="OPENAI_BASE_URL"):
        await trial("", tmp_path)


async def test_trials_share_one_client_per_loop(endpoint: Endpoint) -> None:
    from console.trials.agent import close_client, shared_client

    first = shared_client()
    assert shared_client() is first
    await close_client()
    assert first.is_closed and shared_client() is not first


def test_what_counts_as_a_command() -> None:
    assert command_in("Let me see.\n```bash\nls -l\n```\nThen more.\n```bash\nrm x\n```") == "ls -l"
    assert command_in("```sh\na\nb\n```") == "a\nb"
    assert command_in("```bash\nls") is None and command_in("```python\nls\n```") is None
    assert command_in("```bash\n\n```") is None and command_in("ls") is None
    assert is_last("All set. Done.\n") and not is_last("Done. Or not")


def test_observations_are_bounded_at_both_ends() -> None:
    assert observation(0, "\n", 10) == "exit 0"
    assert observation(1, "no\n", 10) == "exit 1\nno"
    assert bounded("a" * 10, 10) == "a" * 10
    assert bounded("abcdefghij", 4) == "ab\n... 6 characters left out ...\nij"
    assert bounded("abc", 1) == "a\n... 2 characters left out ...\n"
