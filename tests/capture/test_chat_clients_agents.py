"""Agents on Chat Completions over real sockets: mini-swe-agent, and the class with which Harbor's terminus-2 asks."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from scripted_server import ScriptedServer, Step

from console.capture.chat import ChatMessage, ChatReply, ToolCall
from console.capture.dialects.chat import Chat
from console.capture.refusals import overflow

os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", HARBOR_TELEMETRY="0", MSWEA_SILENT_STARTUP="1")


def server(*script: Step) -> ScriptedServer:
    return ScriptedServer({"/v1/chat/completions": Chat()}, script)


def said(text: str, *commands: str, **fields: Any) -> ChatReply:
    calls = [ToolCall(id="", name="bash", arguments=json.dumps({"command": command})) for command in commands]
    return ChatReply(node="", text=text, tool_calls=calls, **fields)


def replayed(served: ScriptedServer) -> list[ChatMessage]:
    return [message for message in served.requests[-1].messages if message.role == "assistant"]


def as_message(reply: ChatReply, *, named: bool = True) -> ChatMessage:
    return ChatMessage(
        role="assistant",
        text=reply.text,
        reasoning=reply.reasoning,
        tool_calls=reply.tool_calls,
        node=reply.node if named else "",
    )


# ---- mini-swe-agent


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mini-swe-agent's settings in a directory of the test's; a key for Harbor's class, which takes none."""
    monkeypatch.setenv("MSWEA_GLOBAL_CONFIG_DIR", str(tmp_path / "mini"))
    monkeypatch.setenv("OPENAI_API_KEY", "key")


def mini(served: ScriptedServer, directory: Path, prefix: str = "openai") -> Any:
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.models.litellm_model import LitellmModel

    model = LitellmModel(
        model_name=f"{prefix}/policy",
        model_kwargs={"api_base": served.url + "/v1", "api_key": "key", "temperature": 0.8, "drop_params": True},
        cost_tracking="ignore_errors",
    )
    templates = {"system_template": "You are an agent.", "instance_template": "Task: {{ task }}"}
    return DefaultAgent(model, LocalEnvironment(cwd=str(directory)), **templates)


@pytest.mark.parametrize("prefix", ["openai", "hosted_vllm"])
def test_mini_swe_agent_three_turns(tmp_path: Path, prefix: str) -> None:
    script = [
        said("Two at once.\n\n", "echo 'one ä' > a.txt", "wc -c < a.txt", reasoning="first\nthink [DONE]"),
        said("", "cat a.txt"),
        said("Sent in.", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat a.txt", reasoning="done"),
    ]
    with server(*script) as served:
        outcome = mini(served, tmp_path, prefix).run("write a file")

    assert outcome == {"exit_status": "Submitted", "submission": "one ä\n"}
    assert len(served.requests) == 3 and not served.refused
    assert replayed(served) == [as_message(reply) for reply in served.answered[:2]]
    outputs = [message for message in served.requests[-1].messages if message.role == "tool"]
    assert [output.tool_call_id for output in outputs] == [c.id for r in served.answered[:2] for c in r.tool_calls]
    assert [output.name for output in outputs] == ["bash"] * 3
    assert "<output>\n7\n</output>" in outputs[1].text and "one ä" in outputs[2].text
    assert served.requests[0].sampling.temperature == 0.8


def test_mini_swe_agent_asks_again_after_a_reply_without_a_call(tmp_path: Path) -> None:
    bad_call = "<tool_call>\n<function=bash>\n<parameter=command>ls"
    with server(said(bad_call), said("", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")) as served:
        outcome = mini(served, tmp_path).run("go")

    assert outcome["exit_status"] == "Submitted"
    assert [message.role for message in served.requests[-1].messages] == ["system", "user", "user"]


def test_mini_swe_agent_stops_at_once_when_the_window_is_full(tmp_path: Path) -> None:
    import litellm

    with server(said("", "true"), overflow(70_000, 65_536)) as served:
        with pytest.raises(litellm.ContextWindowExceededError) as raised:
            mini(served, tmp_path).run("go")

    assert len(served.bodies) == 2
    assert "prompt is too long: 70000 tokens > 65536 maximum" in str(raised.value).splitlines()[1:]


# ---- Harbor


async def test_harbor_three_turns_with_rollout_details() -> None:
    from harbor.llms.chat import Chat as HarborChat
    from harbor.llms.lite_llm import LiteLLM

    script = [
        said('{"keystrokes": "ls\\n"}', reasoning="look", token_logprobs=[("a", -0.5), ("b", -1.5)], cached_tokens=40),
        said("\n\n<think>aloud</think> more ", token_logprobs=[("c", 0.0)]),
        said("done"),
    ]
    with server(*script) as served:
        llm = LiteLLM(
            "openai/policy",
            api_base=served.url + "/v1",
            temperature=0.8,
            collect_rollout_details=True,
            session_id="s-1",
            reasoning_effort="high",
        )
        chat = HarborChat(llm, interleaved_thinking=True)
        answers = [await chat.chat(f"prompt {number}") for number in range(3)]

    assert [answer.logprobs for answer in answers] == [[-0.5, -1.5], [0.0], []]
    assert [answer.reasoning_content for answer in answers] == ["look", None, None]
    assert answers[0].usage.cache_tokens == 40
    assert chat.total_input_tokens == 100 + 200 + 300
    assert len(served.bodies) == 3 and not served.refused
    assert replayed(served) == [as_message(reply, named=False) for reply in served.answered[:2]]
    assert all(request.logprobs for request in served.requests)
    assert {"return_token_ids", "session_id"} <= set(served.requests[0].neutralised)


async def test_harbor_knows_a_full_window_and_a_truncated_reply() -> None:
    from harbor.llms.base import ContextLengthExceededError, OutputLengthExceededError
    from harbor.llms.lite_llm import LiteLLM

    with server(overflow(70_000, 65_536), said("half a", stop="length")) as served:
        llm = LiteLLM("openai/policy", api_base=served.url + "/v1")
        with pytest.raises(ContextLengthExceededError):
            await llm.call("prompt")
        with pytest.raises(OutputLengthExceededError) as truncated:
            await llm.call("prompt")

    assert truncated.value.truncated_response == "half a"
    assert len(served.bodies) == 2
