"""opencode and qwen-code, as npm has them, on Chat Completions: three turns each, and a full window."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from npm_cli import npm_cli
from scripted_server import Late, ScriptedServer, Step

from console.capture.chat import ChatReply, ChatRequest, ToolCall
from console.capture.dialects.chat import Chat
from console.capture.refusals import RefusedError, overflow

Command = Callable[[Path, str], tuple[list[str], dict[str, str]]]


def opencode(home: Path, url: str) -> tuple[list[str], dict[str, str]]:
    """Its command and environment; the gateway is a provider of its configuration."""
    model = {"name": "policy", "reasoning": True, "tool_call": True, "limit": {"context": 65536, "output": 8192}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "gateway",
        "options": {"baseURL": url, "apiKey": "key"},
        "models": {"policy": model},
    }
    config = home / ".config" / "opencode" / "opencode.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"autoupdate": False, "share": "disabled", "provider": {"gateway": provider}}))
    program = npm_cli("opencode-ai", "1.18.33")
    return [str(program), "run", "--model", "gateway/policy", "do it"], {"OPENCODE_DISABLE_MODELS_FETCH": "1"}


def qwen_code(home: Path, url: str) -> tuple[list[str], dict[str, str]]:
    """Its command and environment."""
    program = npm_cli("@qwen-code/qwen-code", "0.15.10")
    options = ["--yolo", "--auth-type", "openai", "--model", "policy", "-p", "do it"]
    return [str(program), *options], {"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": url, "OPENAI_MODEL": "policy"}


AGENTS = [
    pytest.param(opencode, "bash", {}, id="opencode"),
    pytest.param(qwen_code, "run_shell_command", {"is_background": False}, id="qwen-code"),
]


def run(command: Command, served: ScriptedServer, home: Path) -> subprocess.CompletedProcess[str]:
    """Run an agent in an empty directory of its own."""
    arguments, environment = command(home, served.url + "/v1")
    (home / "work").mkdir()
    return subprocess.run(
        arguments,
        cwd=home / "work",
        env={"PATH": os.environ["PATH"], "HOME": str(home), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def in_turn(*script: Step) -> Step:
    """The script for the agent itself; its side calls, which have no tools, get a title."""
    left = list(script)

    def step(request: ChatRequest) -> ChatReply | RefusedError | Late:
        if not request.tools:
            return ChatReply(node="", text="A title")
        answer = left.pop(0) if left else ChatReply(node="", text="Nothing is left to do.")
        assert not callable(answer)
        return answer

    return step


@pytest.mark.parametrize(("command", "shell", "further"), AGENTS)
def test_three_turns(tmp_path: Path, command: Command, shell: str, further: dict[str, object]) -> None:
    def call(line: str) -> ToolCall:
        return ToolCall(id="", name=shell, arguments=json.dumps({"command": line, "description": "d", **further}))

    turns = [
        ChatReply(node="", text="I look. \n\n", reasoning="think\n[DONE] é", tool_calls=[call("echo 'one é' > a.txt")]),
        ChatReply(node="", reasoning="two", tool_calls=[call("cat a.txt"), call("wc -c < a.txt")]),
        ChatReply(node="", text="All [DONE]."),
    ]
    with ScriptedServer({"/v1/chat/completions": Chat()}, [in_turn(*turns)], keepalives=2) as served:
        outcome = run(command, served, tmp_path)

    assert outcome.returncode == 0 and "All [DONE]." in outcome.stdout, outcome.stderr[-2000:]
    assert not served.refused and not served.unknown
    assert (tmp_path / "work" / "a.txt").read_text() == "one é\n"
    own = [reply for reply, request in zip(served.answered, served.requests, strict=True) if request.tools]
    assert len(own) == 3
    last = served.requests[-1]
    sampled = [message for message in last.messages if message.role == "assistant" and message.node]
    assert [message.node for message in sampled] == [reply.node for reply in own[:2]]
    for message, reply in zip(sampled, own, strict=False):
        assert (message.text, message.reasoning) == (reply.text, reply.reasoning)
        assert [(c.id, c.name, json.loads(c.arguments)) for c in message.tool_calls] == [
            (c.id, c.name, json.loads(c.arguments)) for c in reply.tool_calls
        ]
    outputs = [message for message in last.messages if message.role == "tool"]
    assert [output.tool_call_id for output in outputs] == [c.id for reply in own for c in reply.tool_calls]
    assert {output.name for output in outputs} == {shell}
    assert "one é" in outputs[1].text and "7" in outputs[2].text


@pytest.mark.parametrize(("command", "shell", "further"), AGENTS)
@pytest.mark.parametrize("late", [False, True])
def test_a_full_window_is_known_as_such(
    tmp_path: Path, command: Command, shell: str, further: dict[str, object], late: bool
) -> None:
    """Agents stop or compact; none goes on asking."""
    refusal = overflow(70_000, 65_536)
    with ScriptedServer({"/v1/chat/completions": Chat()}, [Late(refusal) if late else refusal]) as served:
        outcome = run(command, served, tmp_path)

    assert "maximum context length" in outcome.stdout + outcome.stderr
    assert 1 <= len(served.bodies) <= 6
