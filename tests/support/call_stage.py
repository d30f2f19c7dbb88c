"""One trial's calls on a stage: the real service, graph, renderer and journal, and a sampler that is scripted."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from qwen_tokenizer import qwen_renderer, qwen_tokenizer
from scripted_sampler import Scripted, ScriptedSampler

from console.capture.base import CallReport
from console.capture.calls import PendingCall, TrialCalls
from console.capture.chat import ChatMessage, ChatReply, ChatRequest, Sampling, ToolSpec
from console.capture.journal import CallJournal
from console.capture.rendering import PolicyRenderer
from console.capture.service import CallService
from console.capture.settings import CallSettings
from console.records.capture_format import Opened
from console.records.captured_calls import CapturedTrialFile

KEY = "s0.g0.t0.y0"
SECRET = "t0ken-of-this-trial-0123456789abcdef"
BASH = ToolSpec(
    name="bash",
    description="Run a command.",
    parameters={"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)
_renderers: dict[str, PolicyRenderer] = {}


def policy_renderer(name: str = "qwen3_5", history_thinking: str = "keep") -> PolicyRenderer:
    """One for all tests of a process: making it takes a moment."""
    key = f"{name} {history_thinking}"
    if key not in _renderers:
        _renderers[key] = PolicyRenderer(qwen_renderer(name), name=name, history_thinking=history_thinking)  # type: ignore[arg-type]
    return _renderers[key]


def called(command: str, thought: str = "Let me look.") -> str:
    """A sample that calls the tool."""
    return (
        f"{thought}\n</think>\n\nI run it.\n\n<tool_call>\n<function=bash>\n<parameter=command>\n{command}\n"
        "</parameter>\n</function>\n</tool_call>"
    )


def said(text: str, thought: str = "Hm.") -> str:
    """A sample that only says something."""
    return f"{thought}\n</think>\n\n{text}"


class Stage:
    """A trial and its agent's side.

    Attributes:
        sampler, service, calls: the parts; reports: what the engine was told; journal: of the run.
    """

    def __init__(
        self,
        directory: Path,
        replies: Sequence[Scripted] = (),
        *,
        sampler: Any = None,
        renderer: PolicyRenderer | None = None,
        service: CallService | None = None,
        key: str = KEY,
        started: bool = True,
        outage: Any = lambda since: 0.0,
        policy_version: int | None = 3,
        **settings: Any,
    ) -> None:
        self.directory = directory
        self.sampler = sampler or ScriptedSampler(qwen_tokenizer(), replies, otherwise=said("Done."))
        self.service = service or CallService(
            renderer or policy_renderer(), CallSettings(**{"window": 8192} | settings), outage=outage
        )
        self.journal = CallJournal(directory)
        self.trial_journal = self.journal.open_trial(Opened(key=key, step=0))
        self.reports: list[CallReport] = []
        self.calls = TrialCalls(
            self.service,
            self.sampler,
            self.trial_journal,
            key=key,
            secret=SECRET,
            on_call=self.reports.append,
            policy_version=policy_version,
        )
        if started:
            self.calls.start()

    @property
    def figures(self) -> Any:
        return self.service.figures

    async def ask(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
        """A call to its end, delivered."""
        pending = await self.begin(messages, **options)
        reply = await pending.reply()
        pending.delivered()
        return reply

    async def begin(
        self, messages: Sequence[ChatMessage], *, retry: bool = False, tools: Sequence[ToolSpec] = (), **sampling: Any
    ) -> PendingCall:
        """Take a call up."""
        request = ChatRequest(
            dialect="chat",
            model="policy",
            messages=list(messages),
            tools=list(tools),
            sampling=Sampling(**sampling),
            retry=retry,
        )
        return await self.calls.begin(request, digest(request))

    def file(self) -> CapturedTrialFile:
        """What an independent reader finds on the disk."""
        found = CapturedTrialFile(self.trial_journal.path)
        assert found.refresh()
        return found

    async def close(self) -> None:
        """End everything."""
        self.calls.stop()
        await self.journal.close()
        self.service.close()


def digest(request: ChatRequest) -> bytes:
    """As the server computes it: of the dialect and the body, in which a retry looks like the first try."""
    return hashlib.sha256(msgspec.msgpack.encode(msgspec.structs.replace(request, retry=False))).digest()


def user(text: str) -> ChatMessage:
    return ChatMessage(role="user", text=text)


def system(text: str) -> ChatMessage:
    return ChatMessage(role="system", text=text)


def echo(reply: ChatReply) -> ChatMessage:
    """The reply as an agent sends it back."""
    return ChatMessage(
        role="assistant", text=reply.text, reasoning=reply.reasoning, tool_calls=list(reply.tool_calls), node=reply.node
    )


def result(reply: ChatReply, text: str) -> ChatMessage:
    """What the reply's tool call came to."""
    return ChatMessage(role="tool", text=text, tool_call_id=reply.tool_calls[0].id, name=reply.tool_calls[0].name)


async def turns(times: int = 20) -> None:
    """Let the loop turn."""
    for _ in range(times):
        await asyncio.sleep(0)
