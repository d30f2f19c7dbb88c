"""An agent's side of a trial against a real message graph, with a toy renderer and scripted replies."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from console.capture.chat import ChatMessage, ChatReply, ChatRequest, ToolCall, ToolSpec
from console.capture.graph import Graph, Match, Node
from console.capture.ids import new_node, tool_call_id

START, END = 1, 2
ROLES = {"system": 3, "user": 4, "assistant": 5, "tool": 6}
BASH = ToolSpec(name="bash", parameters={"type": "object", "properties": {"command": {"type": "string"}}})
READ = ToolSpec(name="read", parameters={"type": "object", "properties": {"path": {"type": "string"}}})


def system(text: str) -> ChatMessage:
    return ChatMessage(role="system", text=text)


def user(text: str) -> ChatMessage:
    return ChatMessage(role="user", text=text)


def tool(text: str, call: str = "") -> ChatMessage:
    return ChatMessage(role="tool", text=text, tool_call_id=call)


def assistant(text: str, *calls: tuple[str, str], **fields: Any) -> ChatMessage:
    tool_calls = [ToolCall(id=f"own-{i}", name=name, arguments=args) for i, (name, args) in enumerate(calls)]
    return ChatMessage(role="assistant", text=text, tool_calls=tool_calls, **fields)


def encode(text: str) -> list[int]:
    return [10 + ord(c) % 50 for c in text]


def render(messages: Sequence[ChatMessage]) -> list[int]:
    ids: list[int] = []
    for m in messages:
        ids += [START, ROLES[m.role], *encode(m.text)]
        for call in m.tool_calls:
            ids += [7, *encode(call.name), *encode(call.arguments)]
        ids.append(END)
    return ids


SUFFIX = [START, ROLES["assistant"]]


@dataclass
class Answer:
    """What the agent got: the node, and the reply as a message that it may send back word for word."""

    node: Node
    match: Match
    message: ChatMessage


@dataclass
class Trial:
    """One trial's graph; `sent` has the whole prompt of each call as the sampler got it."""

    graph: Graph = field(default_factory=Graph)
    sent: dict[str, list[int]] = field(default_factory=dict)
    number: int = 0

    def ask(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSpec] = (),
        *,
        say: str = "ok",
        calls: Sequence[tuple[str, str]] = (),
        reasoning: str = "",
        tokens: Sequence[int] | None = None,
        stop: str = "stop",
        delivered: bool = True,
        bridge: bool = True,
        policy_version: int | None = None,
    ) -> Answer:
        """One call. `tokens`: what was sampled, by default the reply's text and the end token."""
        request = ChatRequest(dialect="chat", messages=list(messages), tools=list(tools))
        match = self.graph.match(request)
        name, number = new_node(self.number), self.number
        self.number += 1
        parent, reason = match.parent, match.reason
        if parent is not None and bridge:
            new = render(messages[match.known :]) + SUFFIX
            sent = self.sent[parent.name] + list(parent.tokens_T) + new
            prompt_new = array("i", new)
        else:
            sent = [8] * len(tools) + render(messages) + SUFFIX
            parent, prompt_new = self.graph.token_parent(array("i", sent), match)
            reason = "" if parent is not None else reason or "template"
        if tokens is None:
            tokens = encode(say) + ([] if stop == "length" else [END])
        reply = ChatReply(
            node=name, text=say, reasoning=reasoning,
            tool_calls=[
                ToolCall(id=tool_call_id(name, i), name=n, arguments=a) for i, (n, a) in enumerate(calls)
            ],
        )  # fmt: skip
        first = sum(len(n.tokens_T) for n in self.graph.nodes)
        node = self.graph.add(
            name=name, number=number, match=match, parent=parent, reason=reason,
            prompt_new=prompt_new, tokens_T=array("i", tokens),
            logprobs_T=array("f", [-(first + k) / 4096 for k in range(len(tokens))]),  # no two are alike
            stop_reason=stop, reply=reply, policy_version=policy_version,
        )  # fmt: skip
        self.sent[name] = sent
        if delivered:
            self.graph.delivered(name)
        back = ChatMessage(role="assistant", text=say, reasoning=reasoning, tool_calls=reply.tool_calls, node=name)
        return Answer(node, match, back)
