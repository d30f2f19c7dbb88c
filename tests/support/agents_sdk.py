"""Clients of each dialect as agents use them: each keeps its own history and sends back what it was given."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
FUNCTION = {"name": "bash", "description": "Run a command.", "parameters": SCHEMA}
SYSTEM = "You work in a shell."


class Client:
    """One conversation.

    Args:
        url, key: of the gateway; stream: ask for events; options: of every request.

    Attributes:
        history: in the dialect's own words; said: the text of each reply.
    """

    def __init__(self, url: str, key: str, *, stream: bool, **options: Any) -> None:
        self.url, self.key, self.stream, self.options = url, key, stream, options
        self.history: list[Any] = []
        self.said: list[str] = []
        self.tools = True

    def ask(self) -> list[str]:
        """One call; ids of the tool calls in its reply. The reply enters the history."""
        raise NotImplementedError

    def answer(self, results: Sequence[tuple[str, str]]) -> None:
        """What the calls with these ids came to."""
        raise NotImplementedError

    def user(self, text: str) -> None:
        """The user says something."""
        self.history.append({"role": "user", "content": text})

    def work(self, result: Callable[[], str]) -> None:
        """Go on until a reply calls no tool."""
        while calls := self.ask():
            self.answer([(call, result()) for call in calls])


class ChatSdk(Client):
    """The OpenAI SDK on Chat Completions."""

    def __init__(self, *args: Any, **options: Any) -> None:
        import openai

        super().__init__(*args, **options)
        self._api = openai.OpenAI(base_url=f"{self.url}/v1", api_key=self.key, max_retries=0)
        self.history.append({"role": "system", "content": SYSTEM})

    def asked(self) -> dict[str, Any]:
        tools = {"tools": [{"type": "function", "function": FUNCTION}]} if self.tools else {}
        return {"model": "policy", "messages": self.history, "stream": self.stream, **tools, **self.options}

    def ask(self) -> list[str]:
        if self.stream:
            message = _put_together(self._api.chat.completions.create(**self.asked()))
        else:
            message = self._api.chat.completions.create(**self.asked()).choices[0].message.model_dump(exclude_none=True)
        self.history.append(message)
        self.said.append(message.get("content") or "")
        return [call["id"] for call in message.get("tool_calls") or []]

    def answer(self, results: Sequence[tuple[str, str]]) -> None:
        self.history += [{"role": "tool", "tool_call_id": call, "content": text} for call, text in results]


class ChatLitellm(ChatSdk):
    """litellm, by default on Chat Completions; the address that it puts its path behind is `base`."""

    model, base = "openai/policy", "/v1"

    def ask(self) -> list[str]:
        import litellm

        litellm.suppress_debug_info = True
        asked = self.asked() | {"model": self.model, "api_base": self.url + self.base, "api_key": self.key}
        response: Any = litellm.completion(**asked, num_retries=0, max_retries=0)
        if self.stream:
            response = litellm.stream_chunk_builder(list(response), messages=self.history)
        message = response.choices[0].message.model_dump(exclude_none=True)
        self.history.append(message)
        self.said.append(message.get("content") or "")
        return [call["id"] for call in message.get("tool_calls") or []]


class VllmLitellm(ChatLitellm):
    """litellm with the provider that is for engines of one's own."""

    model = "hosted_vllm/policy"


class MessagesLitellm(ChatLitellm):
    """litellm on Anthropic Messages."""

    model, base = "anthropic/policy", ""


class MessagesSdk(Client):
    """The anthropic SDK."""

    def __init__(self, *args: Any, **options: Any) -> None:
        import anthropic

        super().__init__(*args, **options)
        self._api = anthropic.Anthropic(base_url=self.url, api_key=self.key, max_retries=0)

    def ask(self) -> list[str]:
        tool = {"name": "bash", "description": "Run a command.", "input_schema": SCHEMA}
        asked: dict[str, Any] = {"model": "policy", "max_tokens": 2048, "system": SYSTEM, "messages": self.history}
        asked |= ({"tools": [tool]} if self.tools else {}) | self.options
        if self.stream:
            with self._api.messages.stream(**asked) as stream:
                message = stream.get_final_message()
        else:
            message = self._api.messages.create(**asked, timeout=60)
        self.history.append({"role": "assistant", "content": message.content})
        self.said.append("".join(block.text for block in message.content if block.type == "text"))
        return [block.id for block in message.content if block.type == "tool_use"]

    def answer(self, results: Sequence[tuple[str, str]]) -> None:
        blocks = [{"type": "tool_result", "tool_use_id": call, "content": text} for call, text in results]
        self.history.append({"role": "user", "content": blocks})


class ResponsesSdk(Client):
    """The OpenAI SDK on the Responses API."""

    def asked(self) -> dict[str, Any]:
        tools = {"tools": [{"type": "function", **FUNCTION, "strict": False}]} if self.tools else {}
        asked = {"input": self.history, "instructions": SYSTEM, "store": False, "stream": self.stream}
        return asked | {"include": ["reasoning.encrypted_content"], **tools, **self.options}

    def respond(self) -> Any:
        import openai

        api = openai.OpenAI(base_url=f"{self.url}/v1", api_key=self.key, max_retries=0)
        return api.responses.create(model="policy", **self.asked())

    def ask(self) -> list[str]:
        response = self.respond()
        if self.stream:
            *_, last = list(response)
            response = last.response
        output = [item if isinstance(item, dict) else item.model_dump(exclude_none=True) for item in response.output]
        self.history += output
        texts = [part["text"] for item in output if item["type"] == "message" for part in item["content"]]
        self.said.append("".join(texts))
        return [item["call_id"] for item in output if item["type"] == "function_call"]

    def answer(self, results: Sequence[tuple[str, str]]) -> None:
        self.history += [{"type": "function_call_output", "call_id": call, "output": text} for call, text in results]


class ResponsesLitellm(ResponsesSdk):
    """litellm on the Responses API."""

    def respond(self) -> Any:
        import litellm

        return litellm.responses(
            model="openai/policy", api_base=f"{self.url}/v1", api_key=self.key, num_retries=0, **self.asked()
        )


CLIENTS: dict[str, type[Client]] = {
    "openai SDK, chat": ChatSdk,
    "openai SDK, responses": ResponsesSdk,
    "anthropic SDK": MessagesSdk,
    "litellm openai/": ChatLitellm,
    "litellm hosted_vllm/": VllmLitellm,
    "litellm anthropic/": MessagesLitellm,
    "litellm responses": ResponsesLitellm,
}


def _put_together(events: Any) -> dict[str, Any]:
    """The message of a streamed reply, as agents put it together."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: dict[int, dict[str, Any]] = {}
    for event in events:
        for choice in event.choices:
            delta = choice.delta.model_dump(exclude_none=True)
            message["content"] += delta.get("content") or ""
            if delta.get("reasoning_content"):
                message["reasoning_content"] = message.get("reasoning_content", "") + delta["reasoning_content"]
            for part in delta.get("tool_calls") or []:
                whole = calls.setdefault(part["index"], {"type": "function", "function": {"name": "", "arguments": ""}})
                if part.get("id"):
                    whole["id"] = part["id"]
                for key, value in part["function"].items():
                    whole["function"][key] += value
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
        assert all(isinstance(json.loads(made["function"]["arguments"]), dict) for made in message["tool_calls"])
    return message
