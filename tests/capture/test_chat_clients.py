"""Real clients of Chat Completions over real sockets: what they read, what they send back, and what they raise."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from scripted_server import Late, ScriptedServer, Step

from console.capture.chat import ChatMessage, ChatReply, ToolCall
from console.capture.dialects.chat import Chat
from console.capture.refusals import RefusalKind, RefusedError, overflow

os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", HARBOR_TELEMETRY="0")

PATH = "/v1/chat/completions"
BASH: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "bash",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}


def bash(command: str) -> ToolCall:
    return ToolCall(id="", name="bash", arguments=json.dumps({"command": command}))


ODD = "two\n\nlines [DONE] \u2028 é\U0001f600\n\n"
TURNS = [
    ChatReply(node="", text=ODD, reasoning="I think\n[DONE]", tool_calls=[bash("ls"), bash("echo [DONE] é")]),
    ChatReply(node="", text="<think>said aloud</think>and then", tool_calls=[bash("cat 'x'")]),
    ChatReply(node="", text="done"),
]
"""A conversation of three turns: text, thoughts and two calls at once; tags that are text, and a call; text alone."""


def server(script: Sequence[Step], **options: Any) -> ScriptedServer:
    return ScriptedServer({PATH: Chat()}, script, **options)


Answer = Callable[[list[dict[str, Any]]], dict[str, Any]]


def converse(answer: Answer, turns: int = 3) -> list[dict[str, Any]]:
    """Hold a conversation of so many turns; `answer` gives an assistant's message as its client has it."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]
    for _ in range(turns):
        message = answer(messages)
        messages.append(message)
        for call in message.get("tool_calls") or []:
            assert "command" in json.loads(call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"out of {call['id']}"})
    return messages


def assert_replayed(served: ScriptedServer) -> None:
    """The last request leads back to every sample: word for word, and by name where there were calls."""
    replayed = [message for message in served.requests[-1].messages if message.role == "assistant"]
    assert len(replayed) == len(served.answered) - 1 == 2
    for message, reply in zip(replayed, served.answered, strict=False):
        expected = ChatMessage(
            role="assistant",
            text=reply.text,
            reasoning=reply.reasoning,
            tool_calls=reply.tool_calls,
            node=reply.node,
        )
        assert message == expected
    outputs = [message for message in served.requests[-1].messages if message.role == "tool"]
    assert [output.name for output in outputs] == ["bash"] * 3
    assert [output.tool_call_id for output in outputs] == [c.id for r in served.answered for c in r.tool_calls]


def openai_client(served: ScriptedServer, **options: Any) -> Any:
    import openai

    return openai.OpenAI(base_url=served.url + "/v1", api_key="key", **options)


# ---- the openai SDK


def test_openai_three_turns() -> None:
    with server(TURNS) as served, openai_client(served) as client:

        def answer(messages: list[dict[str, Any]]) -> dict[str, Any]:
            completion = client.chat.completions.create(model="m", messages=messages, tools=[BASH], max_tokens=500)
            assert completion.usage.prompt_tokens == 100 * (len(served.bodies))
            return dict(completion.choices[0].message.model_dump())

        messages = converse(answer)

        assert messages[-1]["content"] == "done"
        assert_replayed(served)
        assert served.requests[0].sampling.max_tokens == 500


@pytest.mark.parametrize("chunk", [0, 7])
def test_openai_three_turns_streamed(chunk: int) -> None:
    """With keep-alives, one of them right before the events; and in pieces that cut lines."""
    with server(TURNS, keepalives=3, chunk=chunk) as served, openai_client(served) as client:

        def answer(messages: list[dict[str, Any]]) -> dict[str, Any]:
            options = {"model": "m", "messages": messages, "tools": [BASH], "stream_options": {"include_usage": True}}
            with client.chat.completions.stream(**options) as stream:
                completion = stream.get_final_completion()
            assert completion.usage.total_tokens == completion.usage.prompt_tokens + 20
            return dict(completion.choices[0].message.model_dump())

        messages = converse(answer)

        assert messages[-1]["content"] == "done"
        assert_replayed(served)


def test_openai_reads_usage_finish_reason_and_log_probs() -> None:
    said = ChatReply(
        node="",
        text="né",
        stop="length",
        cached_tokens=90,
        reasoning_tokens=5,
        token_logprobs=[("n", -0.25), ("é", 0.0)],
    )
    with server([said]) as served, openai_client(served) as client:
        options: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "logprobs": True}
        whole = client.chat.completions.create(**options)
        parts = list(client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))

    for usage in (whole.usage, parts[-1].usage):
        assert usage.prompt_tokens_details.cached_tokens == 90
        assert usage.completion_tokens_details.reasoning_tokens == 5
    assert whole.choices[0].finish_reason == parts[-2].choices[0].finish_reason == "length"
    content = [c.choices[0].logprobs.content for c in parts[:-1] if c.choices[0].logprobs]
    assert [
        [(t.token, t.logprob, t.bytes) for t in part] for part in [whole.choices[0].logprobs.content, *content]
    ] == [[("n", -0.25, [110]), ("é", 0.0, [195, 169])]] * 2


def test_openai_lists_models() -> None:
    with server(TURNS) as served, openai_client(served) as client:
        assert [model.id for model in client.models.list()] == ["policy"]


def test_openai_marks_its_retries() -> None:
    busy = RefusedError("busy", "too many calls at once", retry_after=0.01)
    with server([busy, busy, TURNS[2]]) as served, openai_client(served) as client:
        completion = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])

    assert completion.choices[0].message.content == "done"
    assert [request.retry for request in served.requests] == [False, True, True]


# ---- what each refusal becomes: the client's exception, and how often it is tried

KINDS: list[tuple[RefusalKind, str, int, str]] = [
    ("request", "BadRequestError", 1, "BadRequestError"),
    ("overflow", "BadRequestError", 1, "ContextWindowExceededError"),
    ("auth", "AuthenticationError", 1, "AuthenticationError"),
    ("early", "ConflictError", 3, "APIError"),
    ("sealed", "APIStatusError", 1, "APIError"),
    ("not_found", "NotFoundError", 1, "NotFoundError"),
    ("too_large", "APIStatusError", 1, "BadRequestError"),
    ("busy", "RateLimitError", 3, "RateLimitError"),
    ("backend", "InternalServerError", 3, "ServiceUnavailableError"),
    ("no_logprobs", "InternalServerError", 3, "ServiceUnavailableError"),
    ("capture", "InternalServerError", 3, "ServiceUnavailableError"),
]


def refusal_of(kind: RefusalKind) -> RefusedError:
    if kind == "overflow":
        return overflow(70_000, 65_536)
    retry_after = 0.01 if kind in {"early", "busy", "backend", "no_logprobs", "capture"} else None
    return RefusedError(kind, "words for the agent", retry_after=retry_after)


@pytest.mark.parametrize(("kind", "raised", "tries", "by_litellm"), KINDS)
def test_refusals(kind: RefusalKind, raised: str, tries: int, by_litellm: str) -> None:
    import litellm
    import openai

    messages = [{"role": "user", "content": "hi"}]
    refusal = refusal_of(kind)
    with server([refusal]) as served:
        with openai_client(served) as client, pytest.raises(openai.APIStatusError) as by_sdk:
            client.chat.completions.create(model="m", messages=messages)
        assert type(by_sdk.value).__name__ == raised
        assert len(served.bodies) == tries
        assert refusal.message.splitlines()[-1] in str(by_sdk.value.body["message"])

        for prefix, expected in (("openai", tries), ("hosted_vllm", 1)):
            served.bodies.clear()
            with pytest.raises(openai.OpenAIError) as mapped:
                litellm.completion(model=f"{prefix}/m", api_base=served.url + "/v1", api_key="k", messages=messages)
            assert (type(mapped.value).__name__, len(served.bodies)) == (by_litellm, expected)
            assert refusal.message.splitlines()[-1] in str(mapped.value)


@pytest.mark.parametrize("kind", ["overflow", "backend"])
def test_failure_in_a_stream(kind: RefusalKind) -> None:
    import litellm
    import openai

    ask: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    refusal = refusal_of(kind)
    with server([Late(refusal)]) as served, openai_client(served) as client:
        with pytest.raises(openai.APIError) as raised:
            list(client.chat.completions.create(model="m", **ask))
        assert raised.value.message == refusal.message
        assert raised.value.code == {"overflow": "context_length_exceeded", "backend": "service_unavailable"}[kind]
        for prefix in ("openai", "hosted_vllm"):
            with pytest.raises(Exception, match=refusal.message.splitlines()[-1]):
                list(litellm.completion(model=f"{prefix}/m", api_base=served.url + "/v1", api_key="k", **ask))
        assert len(served.bodies) == 3  # nobody tries again by itself


def test_a_used_up_budget_as_a_bad_request_is_not_tried_again() -> None:
    import litellm
    import openai

    messages = [{"role": "user", "content": "hi"}]
    with server([RefusedError("budget", "the trial's budget of 10 calls is used up", status=400)]) as served:
        with openai_client(served) as client, pytest.raises(openai.BadRequestError) as raised:
            client.chat.completions.create(model="m", messages=messages)
        assert raised.value.code == "insufficient_quota"
        with pytest.raises(litellm.BadRequestError):
            litellm.completion(model="openai/m", api_base=served.url + "/v1", api_key="k", messages=messages)
        assert len(served.bodies) == 2


# ---- litellm


@pytest.mark.parametrize("prefix", ["openai", "hosted_vllm"])
def test_litellm_three_turns(prefix: str) -> None:
    import litellm

    with server(TURNS) as served:

        def answer(messages: list[dict[str, Any]]) -> dict[str, Any]:
            completion: Any = litellm.completion(
                model=f"{prefix}/m", api_base=served.url + "/v1", api_key="k", messages=messages, tools=[BASH]
            )
            return dict(completion.choices[0].message.model_dump())

        messages = converse(answer)

        assert messages[-1]["content"] == "done"
        assert_replayed(served)


@pytest.mark.parametrize("prefix", ["openai", "hosted_vllm"])
@pytest.mark.parametrize("chunk", [0, 11])
def test_litellm_three_turns_streamed(prefix: str, chunk: int) -> None:
    import litellm

    with server(TURNS, keepalives=3, chunk=chunk) as served:

        def answer(messages: list[dict[str, Any]]) -> dict[str, Any]:
            parts = litellm.completion(
                model=f"{prefix}/m",
                api_base=served.url + "/v1",
                api_key="k",
                messages=messages,
                tools=[BASH],
                stream=True,
                stream_options={"include_usage": True},
            )
            completion: Any = litellm.stream_chunk_builder(list(parts))
            assert completion.usage.total_tokens == completion.usage.prompt_tokens + 20
            return dict(completion.choices[0].message.model_dump())

        messages = converse(answer)

        assert messages[-1]["content"] == "done"
        assert_replayed(served)
