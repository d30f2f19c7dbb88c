"""codex, as it installs from npm, against a policy with scripted replies: nothing of it is stood in for."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from npm_cli import npm_cli
from scripted_server import Late, ScriptedServer, Step

from console.capture.chat import ChatMessage, ChatReply, ChatRequest, ToolCall
from console.capture.dialects.responses import Responses
from console.capture.refusals import RefusedError, overflow

VERSION = "0.171.0"
KEY = "the-trial's-token"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
"""A PNG of one pixel, in base64."""
ENDS_OF_TURN = ("turn.completed", "turn.failed")


class Run(msgspec.Struct):
    """What came of one `codex exec`: events it printed, its exit code, and the server that it spoke to."""

    events: list[dict[str, Any]]
    code: int
    served: ScriptedServer
    repository: Path

    @property
    def requests(self) -> list[ChatRequest]:
        return self.served.requests

    def said(self, kind: str) -> list[str]:
        """Messages of its events of this kind."""
        return [event.get("message", "") for event in self.events if event["type"] == kind]


@pytest.fixture(scope="module")
def codex() -> Path:
    return npm_cli("@openai/codex", VERSION)


def run(
    codex: Path,
    directory: Path,
    script: Sequence[Step],
    *,
    model: str = "policy",
    config: str = "",
    as_harbor_does: bool = False,
) -> Run:
    """Run codex in a fresh repository until it ends its turn.

    Args:
        config: further lines at the top of its config file.
        as_harbor_does: with the provider that is built in and another URL, with which codex tries web sockets first and
            has the server compact; else with a provider of its own.
    """
    home, repository = directory / "home", directory / "repository"
    home.mkdir()
    repository.mkdir()
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    with ScriptedServer({"/v1/responses": Responses()}, script) as served:
        if as_harbor_does:
            provider = f'model_provider = "openai"\nopenai_base_url = "{served.url}/v1"\n'
            table = ""
            (home / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": KEY}))
        else:
            provider = 'model_provider = "quarterdeck"\n'
            table = (
                f'[model_providers.quarterdeck]\nname = "Quarterdeck"\nbase_url = "{served.url}/v1"\n'
                'wire_api = "responses"\nenv_key = "POLICY_KEY"\n'
            )
        analytics = "[analytics]\nenabled = false\n"
        (home / "config.toml").write_text(f'model = "{model}"\n{provider}{config}\n{analytics}{table}')
        done = subprocess.run(
            [str(codex), "exec", "--json", "--dangerously-bypass-approvals-and-sandbox", "fix it"],
            cwd=repository,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(directory),
                "CODEX_HOME": str(home),
                "POLICY_KEY": KEY,
            },
        )
    events = [json.loads(line) for line in done.stdout.split("\n") if line.startswith("{")]
    assert events and events[-1]["type"] in ENDS_OF_TURN, done.stderr
    assert not served.unknown
    return Run(events, done.returncode, served, repository)


def reply(text: str = "", *calls: tuple[str, dict[str, Any]], **fields: Any) -> ChatReply:
    made = [ToolCall(id="", name=name, arguments=json.dumps(arguments)) for name, arguments in calls]
    return ChatReply(node="", text=text, tool_calls=made, **fields)


def shell(command: str) -> tuple[str, dict[str, Any]]:
    return "exec_command", {"cmd": command}


def check_replays(done: Run) -> None:
    """Each request is the one before it, that one's reply as the policy said it, and something new."""
    for number, request in enumerate(done.requests[1:], start=1):
        before, sent = done.requests[number - 1].messages, done.served.answered[number - 1]
        assert request.messages[: len(before)] == before
        back = request.messages[len(before)]
        assert (back.role, back.node) == ("assistant", sent.node)
        assert (back.text, back.reasoning) == (sent.text, sent.reasoning)
        assert [(c.id, c.name, json.loads(c.arguments)) for c in back.tool_calls] == [
            (c.id, c.name, json.loads(c.arguments)) for c in sent.tool_calls
        ]
        results = request.messages[len(before) + 1 :]
        assert [(result.role, result.tool_call_id) for result in results] == [("tool", c.id) for c in sent.tool_calls]
        assert request.tools == done.requests[0].tools
    assert all(request.stream and request.dialect == "responses" for request in done.requests)


def results(request: ChatRequest) -> list[str]:
    return [message.text for message in request.messages if message.role == "tool"]


@pytest.mark.parametrize("as_harbor_does", [False, True])
def test_turns_with_tools(codex: Path, tmp_path: Path, as_harbor_does: bool) -> None:
    script = [
        reply("Looking.\n\n", shell("echo one > a; echo hello"), shell("echo two"), reasoning="First I look.\n"),
        reply("", shell("cat a"), reasoning="é \u2028 [DONE]"),
        reply("", ("multi_agent_v1__close_agent", {"target": "nobody"}), ("no_such_tool", {})),
        reply("All done."),
    ]
    done = run(codex, tmp_path, script, as_harbor_does=as_harbor_does)
    assert (done.code, len(done.requests), done.served.upgrades) == (0, 4, int(as_harbor_does))
    check_replays(done)
    hello, two, one, closed, unknown = results(done.requests[-1])
    assert hello.endswith("hello\n") and two.endswith("two\n") and one.endswith("one\n")
    assert "invalid agent id" in closed and "unsupported call: no_such_tool" in unknown
    first = done.requests[0]
    assert {"exec_command", "multi_agent_v1__spawn_agent"} <= {tool.name for tool in first.tools}
    assert first.neutralised == ["tools.web_search"]
    assert [message.role for message in first.messages] == ["system", "system", "user", "user"]
    assert first.messages[-1].text == "fix it"
    assert done.served.headers[0]["authorization"] == f"Bearer {KEY}"
    spoken = [event["item"] for event in done.events if event["type"] == "item.completed"]
    assert [item["text"] for item in spoken if item["type"] == "agent_message"] == ["Looking.\n\n", "All done."]
    assert [item["text"] for item in spoken if item["type"] == "reasoning"][:1] == ["First I look.\n"]
    assert done.events[-1]["usage"]["input_tokens"] == sum(sent.prompt_tokens for sent in done.served.answered)


def test_a_free_form_tool(codex: Path, tmp_path: Path) -> None:
    patch = "*** Begin Patch\n*** Add File: made.txt\n+é hello\n*** End Patch\n"
    script = [reply("", ("apply_patch", {"input": patch})), reply("", shell("cat made.txt")), reply("Done.")]
    done = run(codex, tmp_path, script, model="gpt-5.5")  # a model of which codex knows that it takes such tools
    assert done.code == 0
    check_replays(done)
    assert (done.repository / "made.txt").read_text() == "é hello\n"
    assert "Success" in results(done.requests[-1])[0]
    assert {"tools.format", "tools.tool_search", "tools.web_search"} <= set(done.requests[0].neutralised)


def test_tools_that_come_with_the_input(codex: Path, tmp_path: Path) -> None:
    script = [
        reply("", ("functions__exec", {"input": "text('from ' + 'code')"})),
        reply("", ("collaboration__list_agents", {})),
        reply("Done."),
    ]
    done = run(codex, tmp_path, script, model="gpt-6.2-sol")
    assert done.code == 0
    check_replays(done)
    ran, listed = results(done.requests[-1])
    assert ran.endswith("from code") and "/root" in listed


def test_an_image_does_not_end_the_turn(codex: Path, tmp_path: Path) -> None:
    script = [
        reply("", shell(f"echo {PIXEL} | base64 -d > dot.png")),
        reply("", ("view_image", {"path": "dot.png"})),
        reply("Done."),
    ]
    done = run(codex, tmp_path, script)
    assert done.code == 0
    check_replays(done)
    assert results(done.requests[-1])[1] == "[image not shown: this model reads text only]"
    assert "input_image" in done.requests[-1].neutralised


@pytest.mark.parametrize("as_harbor_does", [False, True])
def test_it_compacts_when_the_usage_says_so(codex: Path, tmp_path: Path, as_harbor_does: bool) -> None:
    script = [reply("", shell("echo hi"), prompt_tokens=50_000), reply("What was done."), reply("Done.")]
    limits = "model_context_window = 60000\nmodel_auto_compact_token_limit = 40000"
    done = run(codex, tmp_path, script, config=limits, as_harbor_does=as_harbor_does)
    assert (done.code, len(done.requests)) == (0, 3)
    summary, after = done.requests[1:]
    nodes = [[message.node for message in request.messages if message.node] for request in (summary, after)]
    assert nodes == [[done.served.answered[0].node], []]
    assert "What was done." in after.messages[-1].text


@pytest.mark.parametrize("late", [False, True])
def test_an_overflow_ends_the_turn(codex: Path, tmp_path: Path, late: bool) -> None:
    refusal = overflow(70_000, 65_536)
    done = run(codex, tmp_path, [reply("", shell("echo hi")), Late(refusal) if late else refusal])
    assert (done.code, len(done.requests)) == (1, 2)
    assert "ran out of room in the model's context window" in done.said("error")[-1]


@pytest.mark.parametrize("late", [False, True])
def test_a_refusal_ends_the_turn_in_its_own_words(codex: Path, tmp_path: Path, late: bool) -> None:
    refusal = RefusedError("capture" if late else "request", "this is what happened", status=400)
    done = run(codex, tmp_path, [Late(refusal) if late else refusal])
    assert (done.code, len(done.requests)) == (1, 1)
    assert "this is what happened" in done.said("error")[-1]


def test_a_budget_ends_the_turn(codex: Path, tmp_path: Path) -> None:
    done = run(codex, tmp_path, [RefusedError("budget", "all calls of this trial are used up")])
    assert (done.code, len(done.served.bodies)) == (1, 1)
    assert "all calls of this trial are used up" in done.said("error")[-1]


def test_a_reply_that_was_cut_off_ends_the_turn(codex: Path, tmp_path: Path) -> None:
    done = run(codex, tmp_path, [reply("half a", stop="length")])
    assert (done.code, len(done.requests)) == (1, 1)
    assert "max_output_tokens" in done.said("error")[-1]


def test_trouble_is_tried_again_with_the_same_request(codex: Path, tmp_path: Path) -> None:
    script = [
        Late(RefusedError("backend", "the sampler is away", retry_after=1)),
        Late(RefusedError("busy", "too many calls.", retry_after=0.1)),
        RefusedError("busy", "too many calls.", retry_after=1),  # of a status 429 it takes whole seconds only
        reply("Done."),
    ]
    done = run(codex, tmp_path, script)
    assert (done.code, len(done.requests)) == (0, 4)
    assert "the sampler is away" in done.said("error")[0]
    again: list[list[ChatMessage]] = [request.messages for request in done.requests]
    assert all(messages == again[0] for messages in again)
