"""`TerminalAgent`: a small Harbor agent, by import path `console.trials.agent:TerminalAgent`.

It runs on the host: asks the policy over OpenAI chat, runs the bash block of the reply in the sandbox, shows the
outcome as the next message, and goes on until the policy is done or the turns are used up. Endpoint and key come from
`agent.env` (`OPENAI_BASE_URL`, `OPENAI_API_KEY`), so Harbor redacts the key in what it writes.

Harbor classifies an exception by the bare name of its class, so the classes below bear the names in its policy table.
No builtin `TimeoutError` leaves this module: Harbor would record an agent timeout and score it.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, override
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import httpx
from harbor.agents.base import BaseAgent
from harbor.agents.options import AgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from pydantic import Field

from console import __version__
from console.trials.dialogue import SYSTEM_PROMPT, command_in, is_last, observation

# A longer command does not fit into one argument of execve on Linux (128 KiB), with room for an environment's wrapper.
COMMAND_LIMIT = 100_000
_ERROR_TEXT = 500


class ContextWindowExceededError(Exception):
    """The conversation no longer fits into the policy's context. Scored by the verifier."""


class AgentAuthenticationError(Exception):
    """The endpoint refused the key."""


class BadRequestError(Exception):
    """The endpoint refused the request for another reason than its length."""


class ApiRateLimitError(Exception):
    """The endpoint asked to slow down."""


class ApiInternalServerError(Exception):
    """The endpoint failed, or answered with something that is not a chat completion."""


class ApiConnectionError(Exception):
    """The endpoint could not be reached, hung up, or did not answer in time."""


class TerminalAgentOptions(AgentOptions):
    """What `agent.kwargs` may hold."""

    max_turns: int = Field(default=4, ge=1, description="Replies asked for at most.")
    exec_timeout: int = Field(default=10, ge=1, description="Seconds a command may take.")
    request_timeout: float = Field(default=600.0, gt=0, description="Seconds to wait for one reply.")
    max_tokens: int | None = Field(default=None, ge=1, description="Tokens per reply; the endpoint's default if unset.")
    temperature: float | None = Field(default=None, ge=0, description="The endpoint's default if unset.")
    observation_limit: int = Field(default=2000, ge=1, description="Characters of a command's output shown at most.")
    system_prompt: str | None = Field(default=SYSTEM_PROMPT, description="First message; null for none.")


_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()


def shared_client() -> httpx.AsyncClient:
    """The process's HTTP client for the running loop. One per trial would spend 20 ms each on its TLS set-up."""
    loop = asyncio.get_running_loop()
    client = _clients.get(loop)
    if client is None or client.is_closed:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        _clients[loop] = client = httpx.AsyncClient(limits=limits, trust_env=False)
    return client


async def close_client() -> None:
    """Close the running loop's client, if there is one; the next trial opens a new one."""
    client = _clients.pop(asyncio.get_running_loop(), None)
    if client is not None:
        await client.aclose()


def _raise_for_status(response: httpx.Response) -> None:
    """Raise the error that Harbor and the outcome rules know for this status, with the start of the body."""
    status = response.status_code
    if status == 200:
        return
    text = f"HTTP {status}: {response.text[:_ERROR_TEXT]}"
    if status in (400, 413):
        lowered = text.lower()
        if (
            "context_length" in lowered
            or "context length" in lowered
            or "context window" in lowered
            or "too long" in lowered
        ):
            raise ContextWindowExceededError(text)
    if status in (401, 403):
        raise AgentAuthenticationError(text)
    if status == 429:
        raise ApiRateLimitError(text)
    if 400 <= status < 500 and status != 408:
        raise BadRequestError(text)
    raise ApiInternalServerError(text)


def _encodable(text: str) -> str:
    """`text` without lone surrogates, which neither JSON over HTTP nor a command line can carry."""
    return text.encode("utf-8", "replace").decode("utf-8")


class TerminalAgent(BaseAgent):
    """Asks, runs, shows, until done. Raises ValueError when `agent.env` lacks the endpoint or the key."""

    options_model = TerminalAgentOptions
    options: TerminalAgentOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        missing = [name for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY") if not self._extra_env.get(name)]
        if missing:
            raise ValueError(f"agent.env lacks {' and '.join(missing)}: set it to the policy's endpoint")
        self._url = self._extra_env["OPENAI_BASE_URL"].rstrip("/") + "/chat/completions"
        self._host = urlsplit(self._url).netloc.rpartition("@")[2]
        self._headers = {"Authorization": f"Bearer {self._extra_env['OPENAI_API_KEY']}"}
        self._request: dict[str, Any] = {"model": self._parsed_model_name or "policy"}
        for name in ("max_tokens", "temperature"):
            if (value := getattr(self.options, name)) is not None:
                self._request[name] = value

    @staticmethod
    @override
    def name() -> str:
        return "terminal"

    @override
    def version(self) -> str:
        return __version__

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        """Nothing to install: the agent lives on the host."""

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Hold the conversation; whatever ends it, the counts and the transcript up to there are kept."""
        messages: list[dict[str, str]] = []
        if self.options.system_prompt is not None:
            messages.append({"role": "system", "content": self.options.system_prompt})
        messages.append({"role": "user", "content": instruction.strip()})
        tally: dict[str, Any] = {
            "turns": 0,
            "commands": 0,
            "model_seconds": 0.0,
            "exec_seconds": 0.0,
            "context_tokens": None,
        }
        context.metadata = tally
        try:
            for _ in range(self.options.max_turns):
                reply = await self._ask(messages, context, tally)
                messages.append({"role": "assistant", "content": reply})
                command = command_in(reply)
                if command is None:
                    break
                shown = await self._run_command(command, environment, tally)
                messages.append({"role": "user", "content": shown})
                if is_last(reply):
                    break
        finally:
            lines = (json.dumps(message, ensure_ascii=False) for message in messages)
            (self.logs_dir / "transcript.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    async def _ask(self, messages: list[dict[str, str]], context: AgentContext, tally: dict[str, Any]) -> str:
        """The policy's next reply; counts its tokens and time."""
        started = time.monotonic()
        timeout = httpx.Timeout(self.options.request_timeout, connect=min(10.0, self.options.request_timeout))
        try:
            response = await shared_client().post(
                self._url, json=self._request | {"messages": messages}, headers=self._headers, timeout=timeout
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            # The path stays out of the message: a route's address may itself be the secret.
            raise ApiConnectionError(f"{self._host}: {type(error).__name__}: {error}"[:_ERROR_TEXT]) from error
        finally:
            tally["model_seconds"] += time.monotonic() - started
        _raise_for_status(response)
        try:
            body = response.json()
            reply = body["choices"][0]["message"]["content"] or ""
            usage = body.get("usage") or {}
            prompt, sampled = usage.get("prompt_tokens"), usage.get("completion_tokens")
            if prompt is not None and sampled is not None:
                context.n_input_tokens = (context.n_input_tokens or 0) + int(prompt)
                context.n_output_tokens = (context.n_output_tokens or 0) + int(sampled)
                tally["context_tokens"] = int(prompt) + int(sampled)
            tally["turns"] += 1
            return _encodable(reply)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise ApiInternalServerError(f"not a chat completion: {response.text[:_ERROR_TEXT]}") from error

    async def _run_command(self, command: str, environment: BaseEnvironment, tally: dict[str, Any]) -> str:
        """Run `command`; what the policy is to see of it. The loss of the sandbox raises as the environment does."""
        limit = self.options.observation_limit
        if "\0" in command or len(command.encode()) > COMMAND_LIMIT:
            return observation(2, "the command is too long or has a NUL character", limit)
        started = time.monotonic()
        try:
            result = await environment.exec(command, timeout_sec=self.options.exec_timeout)
        except TimeoutError:
            return observation(124, f"the command took longer than {self.options.exec_timeout} s", limit)
        finally:
            tally["commands"] += 1
            tally["exec_seconds"] += time.monotonic() - started
        output = "\n".join(part.rstrip("\n") for part in (result.stdout, result.stderr) if part)
        return observation(result.return_code, _encodable(output), limit)
