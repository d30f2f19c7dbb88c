"""A chat request and its reply as the capture gateway has them, whatever dialect an agent speaks.

Dialects turn HTTP bodies into `ChatRequest` and `ChatReply` back into bodies and streams; graph, bridge, sampling and
records know these types only. Nothing here imports a framework.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Role = Literal["system", "user", "assistant", "tool"]
Stop = Literal["stop", "length", "tool_calls"]


class ToolCall(msgspec.Struct, kw_only=True):
    """A call that the policy made. `arguments` is a JSON object as text; `id` is minted by us, or the agent's own."""

    id: str
    name: str
    arguments: str


class ToolSpec(msgspec.Struct, kw_only=True, frozen=True):
    """A tool that the agent offers. `parameters` is its JSON schema."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}


class ChatMessage(msgspec.Struct, kw_only=True):
    """One message.

    Attributes:
        text: what is said; parts that are not text were refused before.
        reasoning: of an assistant's message, as we gave it and the agent sends it back.
        tool_calls: of an assistant's message; tool_call_id: of a tool's, which call it answers; name: of the tool.
        node: name of the captured sample that an id or a signature of ours in this message points to, "" for none.
    """

    role: Role
    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = []
    tool_call_id: str = ""
    name: str = ""
    node: str = ""


class Sampling(msgspec.Struct, kw_only=True, frozen=True):
    """Sampling parameters of a request; None where the agent gave none. Types are checked, ranges are not yet."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()


class ChatRequest(msgspec.Struct, kw_only=True):
    """A request for one reply.

    Attributes:
        dialect: chat, responses or messages; model: what the agent calls it, recorded and never used to route.
        messages: in order, system messages where they stand; tools: in the agent's order.
        stream: the reply is wanted as events; stream_usage: and its usage with them (an option of Chat Completions).
        logprobs: the agent wants the log-prob of each sampled token.
        neutralised: fields that were understood and have no effect here, for the record.
        retry: the client says that it sends this again (`x-stainless-retry-count` above 0).
        echo: what the dialect needs again for the reply (Responses: tools, metadata and so on).
    """

    dialect: str
    model: str = ""
    messages: list[ChatMessage] = []
    tools: list[ToolSpec] = []
    sampling: Sampling = Sampling()
    stream: bool = False
    stream_usage: bool = False
    logprobs: bool = False
    neutralised: list[str] = []
    retry: bool = False
    echo: dict[str, Any] = {}


class ChatReply(msgspec.Struct, kw_only=True):
    """What goes back to the agent.

    Attributes:
        node: name of the sample in the trial's graph; ids and signatures that dialects mint are made of it (`ids.py`).
        text: visible text, raw where a tool call could not be parsed; reasoning: thoughts without their tags.
        stop: why it ended; stop_string: the agent's own stop string that ended it, "" for none.
        prompt_tokens, sampled_tokens: counts; cached_tokens: of the prompt, those that an earlier call of the trial
            had; reasoning_tokens: of the sampled ones.
        token_logprobs: text and log-prob of each sampled token, when the request wanted them.
        created: Unix seconds; model: the policy's name.
    """

    node: str
    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = []
    stop: Stop = "stop"
    stop_string: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    sampled_tokens: int = 0
    reasoning_tokens: int = 0
    token_logprobs: list[tuple[str, float]] = []
    created: float = 0.0
    model: str = ""
