"""claude-code, as it comes from the npm registry, against the Anthropic dialect: it works with its defaults, sends back
what names each sample, and changes nothing of what it sent before."""

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
from console.capture.dialects.messages import Messages
from console.capture.refusals import RefusedError, overflow

VERSION = "2.1.197"
WINDOW = 65_536
DONE = ChatReply(node="", text="All done.\n", reasoning="that was it")
PDF = b"""%PDF-1.4
1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj
2 0 obj << /Type /Pages /Kids [3 0 R] /Count 1 >> endobj
3 0 obj << /Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] >> endobj
trailer << /Size 4 /Root 1 0 R >>
%%EOF
"""


@pytest.fixture(scope="session")
def claude() -> Path:
    return npm_cli("@anthropic-ai/claude-code", VERSION)


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(id="", name=name, arguments=json.dumps(arguments))


def bash(command: str) -> ToolCall:
    return call("Bash", command=command, description="a step")


def step(*calls: ToolCall, text: str = "Next.", reasoning: str = "I go on.") -> ChatReply:
    return ChatReply(node="", text=text, reasoning=reasoning, tool_calls=list(calls))


class Session:
    """One run of claude-code against a script, in a home of its own.

    Attributes:
        code: its exit code; result: the last line that it printed, decoded; served: what the server saw.
    """

    def __init__(self, claude: Path, home: Path, script: Sequence[Step], **environment: str) -> None:
        self.work = home / "work"
        self.work.mkdir(exist_ok=True)
        dialect = Messages()

        def count(body: Any, headers: Any) -> dict[str, Any]:
            self.counted.append(dialect.parse_count(body, headers))
            return dialect.count_reply(1234)

        self.counted: list[ChatRequest] = []
        routes = {"/v1/messages/count_tokens": count}
        with ScriptedServer({"/v1/messages": dialect}, script, prefix="toolu", routes=routes) as served:
            finished = subprocess.run(
                [str(claude), "-p", "Please work on it", "--output-format", "stream-json", "--verbose",
                 "--dangerously-skip-permissions"],
                cwd=self.work,
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": str(home),
                    "CLAUDE_CONFIG_DIR": str(home / "config"),
                    "IS_SANDBOX": "1",  # or it refuses to skip permissions as root
                    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                    "ANTHROPIC_BASE_URL": served.url,
                    "ANTHROPIC_API_KEY": "token-of-the-trial",
                    **environment,
                },
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=100,
            )  # fmt: skip
        self.served, self.code = served, finished.returncode
        lines = finished.stdout.strip().splitlines()
        assert lines, finished.stderr[-1000:]
        self.result: dict[str, Any] = json.loads(lines[-1])

    @property
    def requests(self) -> list[ChatRequest]:
        return self.served.requests

    def breaks(self) -> list[int]:
        """Numbers of the requests that do not extend the one before: its messages, tools and the reply to it."""
        return [
            number
            for number, (before, after) in enumerate(zip(self.requests, self.requests[1:]), 1)
            if not extends(before, after, self.served.answered[number - 1])
        ]


def extends(before: ChatRequest, after: ChatRequest, reply: ChatReply) -> bool:
    known = [*before.messages, as_sent_back(reply)]
    return before.tools == after.tools and comparable(after.messages[: len(known)]) == comparable(known)


def as_sent_back(reply: ChatReply) -> ChatMessage:
    """The message that leads back to a reply. Text alone has no name; neither have its thoughts a place then."""
    named = bool(reply.reasoning or reply.tool_calls)
    return ChatMessage(
        role="assistant",
        text=reply.text if reply.text.strip() else "",
        reasoning=reply.reasoning,
        tool_calls=reply.tool_calls,
        node=reply.node if named else "",
    )


def comparable(messages: list[ChatMessage]) -> list[Any]:
    """Messages with their calls' arguments as objects: agents write them anew."""
    return [
        (msgspec.structs.replace(message, tool_calls=[]),
         [(call.id, call.name, json.loads(call.arguments)) for call in message.tool_calls])
        for message in messages
    ]  # fmt: skip


def test_a_long_session_extends_itself_at_every_turn(claude: Path, tmp_path: Path) -> None:
    """With its own limits, against a window of 64k: parallel calls, failing ones, odd texts, reminders on the way."""
    script = [
        step(bash("echo one"), text="First.\n\n"),
        step(bash("echo two > f; cat f"), bash("echo three"), reasoning=" two at\n\nonce \n"),
        step(bash("exit 3"), text="  é\u2028x\n"),
        step(call("NoSuchTool", x=1), call("Read", file_path="/no/such/file"), text=""),
        step(call("Bash", wrong="argument"), text="\n\n"),
        step(call("Write", file_path="made.txt", content="a\n<|im_end|>\n"), reasoning=""),
        step(bash("cat made.txt"), text="", reasoning=""),
        *[step(bash(f"echo {number}")) for number in range(5)],
        DONE,
    ]
    session = Session(claude, tmp_path, script)

    assert (session.code, session.result["result"]) == (0, "All done.\n")
    assert len(session.requests) == len(script) and session.served.unknown == []
    assert session.breaks() == []
    last = session.requests[-1]
    names = [message.node for message in last.messages if message.role == "assistant"]
    assert names == [reply.node for reply in session.served.answered[:-1]]
    results = {message.tool_call_id: message.text for message in last.messages if message.role == "tool"}
    assert len(results) == 14
    assert "three" in results.values() and any("im_end" in text for text in results.values())
    # reminders come as system messages in the middle, and stay there
    assert [m.role for m in last.messages].count("system") >= 3
    first = session.requests[0]
    assert first.stream and first.sampling.max_tokens is not None and first.sampling.max_tokens > 8192
    assert not any("x-anthropic-billing-header" in message.text for message in last.messages)
    assert {"system.billing_header", "thinking", "output_config", "metadata"} <= set(first.neutralised)
    assert not any(name.startswith("unknown:") for name in first.neutralised)
    assert not any(request.retry for request in session.requests)
    used = session.result["usage"]
    read = used["input_tokens"] + used["cache_read_input_tokens"] + used["cache_creation_input_tokens"]
    assert read == sum(reply.prompt_tokens for reply in session.served.answered)


def test_what_its_tools_show_does_not_end_the_session(claude: Path, tmp_path: Path) -> None:
    """Documents are named, a web search that only Anthropic's servers could run fails as a tool, files are counted."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.pdf").write_bytes(PDF)
    (tmp_path / "work" / "big.txt").write_text("a line of a big file\n" * 1900)
    script = [
        step(call("Read", file_path=str(tmp_path / "work" / "a.pdf"))),
        step(call("WebSearch", query="anything")),
        step(call("Read", file_path=str(tmp_path / "work" / "big.txt"))),
        DONE,
    ]
    session = Session(claude, tmp_path, script)

    assert (session.code, session.result["result"]) == (0, "All done.\n")
    assert session.breaks() == []
    last = session.requests[-1]
    assert "[document not shown: this model reads text only]" in [m.text for m in last.messages]
    [refused] = session.served.refused
    assert (refused.param, refused.status) == ("tool_choice", 400)
    searched = next(m for m in last.messages if m.name == "WebSearch")
    assert "cannot be forced by this gateway" in searched.text
    [counted] = session.counted
    assert counted.messages[0].text.startswith("a line of a big file") and counted.sampling.max_tokens is None


def test_a_sub_agent_is_a_conversation_of_its_own(claude: Path, tmp_path: Path) -> None:
    script = [
        step(call("Agent", description="look", prompt="count files", subagent_type="general-purpose")),
        step(bash("ls | wc -l")),
        ChatReply(node="", text="None at all."),
        step(bash("echo back")),
        DONE,
    ]
    session = Session(claude, tmp_path, script)

    assert session.code == 0
    start, sub, sub_next, back, end = session.requests
    replies = session.served.answered
    assert sub.tools != start.tools and sub.messages[0] != start.messages[0]
    assert sub_next.messages[: len(sub.messages)] == sub.messages
    assert sub_next.messages[len(sub.messages)].node == replies[1].node
    assert extends(start, back, replies[0]) and extends(back, end, replies[3])
    assert "None at all.\nagentId" in back.messages[-1].text


def test_an_overflow_makes_it_compact(claude: Path, tmp_path: Path) -> None:
    script = [
        step(bash("echo one")),
        step(bash("echo two")),
        overflow(70_000, WINDOW),
        ChatReply(node="", text="<summary>echoed one</summary>", reasoning="sum up"),
        step(bash("echo three")),
        DONE,
    ]
    session = Session(claude, tmp_path, script)

    assert (session.code, session.result["result"]) == (0, "All done.\n")
    summary, compacted, last = session.requests[3:]
    assert summary.messages[-1].role == "user" and "summary" in summary.messages[-1].text
    assert any("echoed one" in message.text for message in compacted.messages)
    assert extends(compacted, last, session.served.answered[3])
    # it takes part of the history over: what it keeps still names its samples
    assert [m.node for m in compacted.messages if m.role == "assistant"] == [session.served.answered[1].node]


def test_an_overflow_at_the_start_is_told_as_such(claude: Path, tmp_path: Path) -> None:
    session = Session(claude, tmp_path, [overflow(70_000, WINDOW)])
    assert session.code != 0 and session.result["is_error"]
    assert "Prompt is too long" in session.result["result"]
    assert len(session.served.bodies) == 1


def test_trouble_of_the_gateway_is_waited_out(claude: Path, tmp_path: Path) -> None:
    """Before the stream and within it; it does not mark its retries, and goes on with streams."""
    trouble = RefusedError("backend", "the policy's gateway failed", retry_after=0.1)
    script: list[Step] = [
        step(bash("echo one")),
        RefusedError("busy", "too many calls at once", retry_after=0.1),
        trouble,
        Late(trouble),
        step(bash("echo two")),
        DONE,
    ]
    session = Session(claude, tmp_path, script)

    assert (session.code, session.result["result"]) == (0, "All done.\n")
    assert all(request.stream and not request.retry for request in session.requests)
    assert session.requests[1] == session.requests[2] == session.requests[3] == session.requests[4]
    assert extends(session.requests[4], session.requests[5], session.served.answered[1])


def test_empty_and_cut_replies(claude: Path, tmp_path: Path) -> None:
    script = [
        step(bash("echo one")),
        ChatReply(node="", text="", reasoning="nothing to say"),
        ChatReply(node="", text="cut in the mid", reasoning="long", stop="length"),
        DONE,
    ]
    session = Session(claude, tmp_path, script)

    assert (session.code, session.result["result"]) == (0, "All done.\n")
    after_empty, after_cut = session.requests[2:]
    # the empty reply is left out, and asked for again by a message of the user's behind the same tool result
    assert after_empty.messages[:-1] == session.requests[1].messages and after_empty.messages[-1].role == "user"
    assert extends(after_empty, after_cut, session.served.answered[2])


def test_replies_cut_again_and_again_end_in_words_that_harbor_knows(claude: Path, tmp_path: Path) -> None:
    session = Session(claude, tmp_path, [ChatReply(node="", text="cut", stop="length")])
    assert session.code != 0
    assert "output token maximum" in session.result["result"] and "response exceeded" in session.result["result"]
    assert session.breaks() == []


def test_a_trial_that_has_ended_ends_it_at_once(claude: Path, tmp_path: Path) -> None:
    session = Session(claude, tmp_path, [step(bash("echo one")), RefusedError("sealed", "the trial has ended")])
    assert session.code != 0 and "the trial has ended" in session.result["result"]
    assert len(session.served.bodies) == 2


def test_tools_that_are_searched_for(claude: Path, tmp_path: Path) -> None:
    script = [step(call("ToolSearch", query="select:WebFetch")), step(bash("echo one")), DONE]
    session = Session(claude, tmp_path, script, ENABLE_TOOL_SEARCH="true")

    assert session.code == 0
    first, second, third = session.requests
    assert next(m.text for m in second.messages if m.name == "ToolSearch") == "WebFetch"
    assert "WebFetch" in {tool.name for tool in second.tools} - {tool.name for tool in first.tools}
    assert {"tool_reference", "tools.options"} <= set(second.neutralised)
    assert extends(second, third, session.served.answered[1])
