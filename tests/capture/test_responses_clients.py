"""Real clients of the Responses API over real sockets: what they read, what they send back, and what they raise."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import openai
import pytest
from scripted_server import Late, ScriptedServer, Step

from console.capture.chat import ChatReply, ToolCall
from console.capture.dialects.responses import Responses
from console.capture.refusals import RefusalKind, RefusedError, overflow

os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", HARBOR_TELEMETRY="0")

PATH = "/v1/responses"
BASH: dict[str, Any] = {
    "type": "function",
    "name": "bash",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    "strict": False,
}
TOOLS: list[dict[str, Any]] = [BASH, {"type": "custom", "name": "patch"}, {"type": "web_search"}]
PATCH = "*** Begin\n+é\n"


def bash(command: str) -> ToolCall:
    return ToolCall(id="", name="bash", arguments=json.dumps({"command": command}))


ODD = "two\n\nlines [DONE] \u2028 é\U0001f600\n\n"
TURNS = [
    ChatReply(node="", text=ODD, reasoning="I think\n[DONE]", tool_calls=[bash("ls"), bash("echo é")]),
    ChatReply(
        node="", tool_calls=[ToolCall(id="", name="patch", arguments=json.dumps({"input": PATCH}))], reasoning="again"
    ),
    ChatReply(node="", text="done"),
]
"""A conversation of three turns: text, thoughts and two calls at once; a free-form call; text alone."""


def server(script: Sequence[Step], **options: Any) -> ScriptedServer:
    return ScriptedServer({PATH: Responses()}, script, **options)


def client(served: ScriptedServer, retries: int = 0) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key="k", max_retries=retries, timeout=20)


def results(output: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": f"out of {item['call_id']}"}
        for item in output
        if item["type"] in ("function_call", "custom_tool_call")
    ]


def check(served: ScriptedServer, turns: int = 3) -> None:
    """Each request holds every reply before it, whole and under its node."""
    assert len(served.requests) == turns and not served.refused and not served.unknown
    for number, request in enumerate(served.requests):
        replies = [message for message in request.messages if message.role == "assistant"]
        assert len(replies) == number
        for message, reply in zip(replies, served.answered, strict=False):
            assert (message.node, message.text, message.reasoning) == (reply.node, reply.text, reply.reasoning)
            assert [call.id for call in message.tool_calls] == [call.id for call in reply.tool_calls]
            for back, call in zip(message.tool_calls, reply.tool_calls, strict=True):
                assert (back.name, json.loads(back.arguments)) == (call.name, json.loads(call.arguments))
    tools = [message for message in served.requests[-1].messages if message.role == "tool"]
    assert [(tool.name, tool.text) for tool in tools] == [
        (call.name, f"out of {call.id}") for reply in served.answered[: turns - 1] for call in reply.tool_calls
    ]


@pytest.mark.parametrize(("way", "chunk"), [("create", 0), ("events", 0), ("events", 7), ("stream", 0), ("stream", 7)])
def test_openai_sdk(way: str, chunk: int) -> None:
    with server(TURNS, chunk=chunk) as served:
        api = client(served).responses
        given: list[Any] = [{"role": "developer", "content": "s"}, {"role": "user", "content": "hi"}]
        for turn in TURNS:
            asked: dict[str, Any] = {
                "model": "m", "input": given, "tools": TOOLS, "store": False, "reasoning": {"summary": "auto"},
                "include": ["reasoning.encrypted_content"],
            }  # fmt: skip
            if way == "create":
                response = api.create(**asked)
            elif way == "events":
                *_, last = list(api.create(**asked, stream=True))
                assert last.type == "response.completed"
                response = last.response
            else:
                with api.stream(**asked) as events:
                    response = events.get_final_response()
            assert response.output_text == turn.text
            assert response.usage is not None and response.usage.output_tokens_details.reasoning_tokens == 0
            output = [item.model_dump(exclude_none=True) for item in response.output]
            given += [*output, *results(output)]
        check(served)
        assert all(request.neutralised == ["tools.web_search"] for request in served.requests)


def test_openai_sdk_sends_again_and_says_so() -> None:
    with server([RefusedError("backend", "gone", retry_after=0.01), ChatReply(node="", text="x")]) as served:
        assert client(served, retries=2).responses.create(model="m", input="hi").output_text == "x"
        assert [request.retry for request in served.requests] == [False, True]


ERRORS: list[tuple[RefusedError, type[openai.APIStatusError]]] = [
    (overflow(70000, 65536), openai.BadRequestError),
    (RefusedError("auth", "unknown token"), openai.AuthenticationError),
    (RefusedError("sealed", "the trial has ended"), openai.APIStatusError),
    (RefusedError("budget", "used up"), openai.BadRequestError),
    (RefusedError("backend", "gone", retry_after=1), openai.InternalServerError),
]


@pytest.mark.parametrize(("refusal", "raised"), ERRORS)
@pytest.mark.parametrize("stream", [False, True])
def test_openai_sdk_raises(refusal: RefusedError, raised: type[openai.APIStatusError], stream: bool) -> None:
    with server([refusal]) as served, pytest.raises(raised) as error:
        client(served).responses.create(model="m", input="hi", stream=stream)
    assert error.value.status_code == refusal.status
    assert refusal.message.splitlines()[-1] in error.value.message.replace("\\n", "\n")


def test_openai_sdk_names_the_field_that_is_refused() -> None:
    with server(TURNS) as served, pytest.raises(openai.BadRequestError) as error:
        client(served).responses.create(model="m", input="hi", previous_response_id="resp_1")
    assert (error.value.param, error.value.type) == ("previous_response_id", "invalid_request_error")


LATE: list[tuple[RefusalKind, float | None]] = [("backend", 1), ("overflow", None), ("capture", None)]


@pytest.mark.parametrize(("kind", "retry_after"), LATE)
def test_openai_sdk_raises_within_a_stream(kind: RefusalKind, retry_after: float | None) -> None:
    with server([Late(RefusedError(kind, "what happened", retry_after=retry_after))]) as served:
        api = client(served).responses
        with pytest.raises(openai.APIError, match="what happened"):
            list(api.create(model="m", input="hi", stream=True))
        with api.stream(model="m", input="hi") as events, pytest.raises(openai.APIError, match="what happened"):
            events.get_final_response()


def test_openai_sdk_sees_a_reply_that_was_cut_off() -> None:
    with server([ChatReply(node="", text="cut", stop="length")]) as served:
        response = client(served).responses.create(model="m", input="hi", max_output_tokens=20)
        assert (response.status, response.output_text) == ("incomplete", "cut")
        *_, last = list(client(served).responses.create(model="m", input="hi", stream=True))
        assert last.type == "response.incomplete"


@pytest.mark.parametrize("stream", [False, True])
def test_litellm(stream: bool) -> None:
    import litellm

    with server(TURNS) as served:
        given: list[Any] = [{"role": "user", "content": "hi"}]
        for _ in TURNS:
            response = litellm.responses(
                model="openai/m", input=given, tools=TOOLS, api_base=f"{served.url}/v1", api_key="k", stream=stream
            )
            if stream:
                *_, last = list(response)
                response = last.response
            output = [
                item if isinstance(item, dict) else item.model_dump(exclude_none=True) for item in response.output
            ]
            given += [*output, *results(output)]
        check(served)


def test_litellm_knows_an_overflow() -> None:
    import litellm

    with server([overflow(70000, 65536)]) as served, pytest.raises(litellm.ContextWindowExceededError):
        litellm.responses(model="openai/m", input="hi", api_base=f"{served.url}/v1", api_key="k", num_retries=0)
