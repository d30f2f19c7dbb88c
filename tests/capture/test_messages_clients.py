"""Real clients of the Anthropic dialect over real sockets: what they read, what they send back, and what they raise."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from scripted_server import Late, ScriptedServer, Step

from console.capture.chat import ChatMessage, ChatReply, ToolCall
from console.capture.dialects.messages import Messages
from console.capture.refusals import RefusalKind, RefusedError, overflow

os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", HARBOR_TELEMETRY="0")

PATH = "/v1/messages"
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
BASH: dict[str, Any] = {"name": "bash", "description": "runs", "input_schema": SCHEMA}
OPENAI_BASH: dict[str, Any] = {"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}
HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


def bash(command: str) -> ToolCall:
    return ToolCall(id="", name="bash", arguments=json.dumps({"command": command}))


ODD = "two\n\nlines event: error \u2028 é\U0001f600\n\n"
TURNS = [
    ChatReply(node="", text=ODD, reasoning="I think\n\nso ", tool_calls=[bash("ls"), bash("echo 'é' \u2028")]),
    ChatReply(node="", text="", reasoning="on", tool_calls=[bash("cat x")], cached_tokens=150),
    ChatReply(node="", text="done", reasoning="fine"),
]
"""A conversation of three turns: thoughts, text and two calls at once; thoughts and a call; thoughts and text."""


def server(script: Sequence[Step], **options: Any) -> ScriptedServer:
    dialect = Messages()

    def count(body: Any, headers: Any) -> dict[str, Any]:
        return dialect.count_reply(1000 * len(dialect.parse_count(body, headers).messages))

    return ScriptedServer({PATH: dialect}, script, prefix="toolu", routes={PATH + "/count_tokens": count}, **options)


def sdk(served: ScriptedServer, **options: Any) -> Any:
    import anthropic

    return anthropic.Anthropic(base_url=served.url, api_key="key", **options)


def assert_replayed(served: ScriptedServer, *, doubled: bool = False) -> None:
    """The last request leads back to every sample, word for word and by name.

    `doubled`: litellm puts the thoughts of a stream together twice; the name is whole.
    """
    replayed = [message for message in served.requests[-1].messages if message.role == "assistant"]
    assert len(replayed) == len(served.answered) - 1
    for message, reply in zip(replayed, served.answered, strict=False):
        expected = ChatMessage(
            role="assistant",
            text=reply.text,
            reasoning=reply.reasoning * (2 if doubled else 1),
            tool_calls=reply.tool_calls,
            node=reply.node,
        )
        assert arguments_as_objects(message) == arguments_as_objects(expected)
    results = [message for message in served.requests[-1].messages if message.role == "tool"]
    assert [(result.name, result.text) for result in results] == [
        ("bash", f"out of {call.id}") for reply in served.answered for call in reply.tool_calls
    ]


def arguments_as_objects(message: ChatMessage) -> tuple[Any, ...]:
    calls = [(call.id, call.name, json.loads(call.arguments)) for call in message.tool_calls]
    return (msgspec.structs.replace(message, tool_calls=[]), calls)


# ---- the anthropic SDK


def converse(answer: Callable[[list[dict[str, Any]]], Any]) -> list[Any]:
    """Hold a conversation until no tool is called; `answer` gives the SDK's message."""
    messages, answers = list(HI), []
    while not answers or answers[-1].stop_reason == "tool_use":
        answers.append(answer(messages))
        messages.append({"role": "assistant", "content": answers[-1].content})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": f"out of {block.id}"}
            for block in answers[-1].content
            if block.type == "tool_use"
        ]
        messages.append({"role": "user", "content": results})
    return answers


def ask(messages: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    return {"model": "claude-x", "max_tokens": 64_000, "messages": messages, "tools": [BASH], **options}


THINKING: list[dict[str, Any]] = [{}, {"thinking": {"type": "enabled", "budget_tokens": 2000}}]


@pytest.mark.parametrize("options", THINKING, ids=["plain", "thinking"])
def test_sdk_three_turns(options: dict[str, Any]) -> None:
    with server(TURNS) as served, sdk(served) as client:
        answers = converse(lambda messages: client.messages.create(**ask(messages, **options), timeout=60))

        assert_replayed(served)
    assert [answer.stop_reason for answer in answers] == ["tool_use", "tool_use", "end_turn"]
    assert [[block.type for block in answer.content] for answer in answers] == [
        ["thinking", "text", "tool_use", "tool_use"], ["thinking", "tool_use"], ["thinking", "text"],
    ]  # fmt: skip
    assert answers[0].content[3].input == {"command": "echo 'é' \u2028"}
    assert served.requests[0].sampling.max_tokens == 64_000
    assert_usage(answers)


@pytest.mark.parametrize("chunk", [0, 7])
def test_sdk_three_turns_streamed(chunk: int) -> None:
    """With keep-alives, and in pieces that cut lines and characters."""
    with server(TURNS, keepalives=3, chunk=chunk) as served, sdk(served) as client:

        def answer(messages: list[dict[str, Any]]) -> Any:
            with client.messages.stream(**ask(messages)) as stream:
                return stream.get_final_message()

        answers = converse(answer)

        assert_replayed(served)
        assert all(request.stream for request in served.requests)
    assert answers[-1].content[-1].text == "done"
    assert_usage(answers)


def assert_usage(answers: list[Any]) -> None:
    for number, answer in enumerate(answers, 1):
        usage = answer.usage
        assert usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens == 100 * number
        assert usage.output_tokens == 20
    assert answers[1].usage.cache_read_input_tokens == 150


async def test_sdk_async_stream_reads_each_event() -> None:
    import anthropic

    with server(TURNS, keepalives=2) as served:
        async with anthropic.AsyncAnthropic(base_url=served.url, api_key="key") as client:
            async with client.messages.stream(**ask(HI)) as stream:
                kinds = [event.type async for event in stream]
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    assert {"thinking", "signature", "text", "input_json", "message_delta"} <= set(kinds)


def test_sdk_sees_nothing_but_thoughts_and_emptiness() -> None:
    script = [ChatReply(node="", reasoning="only"), ChatReply(node=""), ChatReply(node="", stop="length")]
    with server(script) as served, sdk(served) as client:
        first, second, third = (client.messages.create(**ask(HI), timeout=60) for _ in range(3))
    assert [block.type for block in first.content] == ["thinking"]
    assert [block.text for block in second.content] == [""]
    assert (second.stop_reason, third.stop_reason) == ("end_turn", "max_tokens")


def test_sdk_without_thinking_finds_the_answer_first() -> None:
    with server(TURNS[2:]) as served, sdk(served) as client:
        answer = client.messages.create(**ask(HI, thinking={"type": "disabled"}), timeout=60)
    assert answer.content[0].text == "done"


def test_sdk_stop_sequences() -> None:
    with server([ChatReply(node="", text="a", stop_string="END")]) as served, sdk(served) as client:
        answer = client.messages.create(**ask(HI, stop_sequences=["END"]), timeout=60)
        assert served.requests[0].sampling.stop == ("END",)
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "END")


def test_sdk_counts_tokens_and_lists_models() -> None:
    with server(TURNS) as served, sdk(served) as client:
        counted = client.messages.count_tokens(model="m", messages=HI, system="s", tools=[BASH])
        assert counted.input_tokens == 2000
        assert [model.id for model in client.models.list()] == ["policy"]


def test_sdk_marks_its_retries() -> None:
    busy = RefusedError("busy", "too many calls at once", retry_after=0.01)
    with server([busy, busy, TURNS[2]]) as served, sdk(served) as client:
        answer = client.messages.create(**ask(HI), timeout=60)
        assert [request.retry for request in served.requests] == [False, True, True]
    assert answer.content[-1].text == "done"


# ---- what each refusal becomes: the SDK's exception, its type, how often it is tried; litellm's exception

KINDS: list[tuple[RefusalKind, str, int, str]] = [
    ("request", "BadRequestError", 1, "BadRequestError"),
    ("overflow", "BadRequestError", 1, "ContextWindowExceededError"),
    ("auth", "AuthenticationError", 1, "AuthenticationError"),
    ("early", "ConflictError", 3, "APIConnectionError"),
    ("sealed", "APIStatusError", 1, "APIConnectionError"),
    ("not_found", "NotFoundError", 1, "NotFoundError"),
    ("too_large", "ContentTooLargeError", 1, "BadRequestError"),
    ("busy", "RateLimitError", 3, "RateLimitError"),
    ("backend", "ServiceUnavailableError", 3, "InternalServerError"),
    ("no_logprobs", "ServiceUnavailableError", 3, "InternalServerError"),
    ("capture", "ServiceUnavailableError", 3, "InternalServerError"),
]


def refusal_of(kind: RefusalKind) -> RefusedError:
    if kind == "overflow":
        return overflow(70_000, 65_536)
    again = kind in {"early", "busy", "backend", "no_logprobs", "capture"}
    return RefusedError(kind, "words for the agent", retry_after=0.01 if again else None)


@pytest.mark.parametrize(("kind", "raised", "tries", "by_litellm"), KINDS)
def test_refusals(kind: RefusalKind, raised: str, tries: int, by_litellm: str) -> None:
    import anthropic
    import litellm

    refusal = refusal_of(kind)
    words = refusal.message.splitlines()[-1]
    with server([refusal]) as served:
        with sdk(served) as client, pytest.raises(anthropic.APIStatusError) as by_sdk:
            client.messages.create(**ask(HI), timeout=60)
        assert (type(by_sdk.value).__name__, len(served.bodies)) == (raised, tries)
        assert by_sdk.value.body == Messages().error(refusal)

        served.bodies.clear()
        with pytest.raises(Exception, match=words) as mapped:
            litellm.completion(model="anthropic/m", api_base=served.url, api_key="k", messages=HI)
        assert (type(mapped.value).__name__, len(served.bodies)) == (by_litellm, 1)


@pytest.mark.parametrize("kind", ["overflow", "backend"])
def test_failure_in_a_stream(kind: RefusalKind) -> None:
    import anthropic
    import litellm

    refusal = refusal_of(kind)
    words = refusal.message.splitlines()[-1]
    with server([Late(refusal)]) as served, sdk(served) as client:
        with pytest.raises(anthropic.APIError, match=words):
            list(client.messages.create(**ask(HI), stream=True))
        with pytest.raises(Exception, match=words):
            list(litellm.completion(model="anthropic/m", api_base=served.url, api_key="k", messages=HI, stream=True))
        assert len(served.bodies) == 2  # nobody tries again by itself


# ---- litellm


def litellm_ask(served: ScriptedServer, messages: list[dict[str, Any]], options: dict[str, Any]) -> Any:
    import litellm

    answer: Any = litellm.completion(
        model="anthropic/claude-sonnet-4-5",
        api_base=served.url,
        api_key="k",
        messages=messages,
        tools=[OPENAI_BASH],
        max_tokens=4000,
        **options,
    )
    return litellm.stream_chunk_builder(list(answer)) if options.get("stream") else answer


LITELLM: list[dict[str, Any]] = [
    {},
    {"thinking": {"type": "enabled", "budget_tokens": 2000}},
    {"stream": True},
    {"stream": True, "thinking": {"type": "enabled", "budget_tokens": 2000}},
]


@pytest.mark.parametrize("options", LITELLM, ids=["plain", "thinking", "streamed", "streamed-thinking"])
def test_litellm_three_turns(options: dict[str, Any]) -> None:
    with server(TURNS, keepalives=2) as served:
        messages: list[dict[str, Any]] = [{"role": "system", "content": "s"}, *HI]
        for number in (1, 2, 3):
            answer = litellm_ask(served, messages, options)
            assert answer.usage.prompt_tokens == 100 * number
            assert answer.usage.completion_tokens == 20
            message = answer.choices[0].message.model_dump()
            messages.append(message)
            for call in message.get("tool_calls") or []:
                assert "command" in json.loads(call["function"]["arguments"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"out of {call['id']}"})

        assert messages[-1]["content"] == "done"
        assert_replayed(served, doubled=bool(options.get("stream")))
        assert served.requests[-1].messages[0] == ChatMessage(role="system", text="s")
