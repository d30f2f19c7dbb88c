"""From a request to the ids that are sent to the sampler: the bridge where it holds, else the whole conversation."""

from __future__ import annotations

import logging
from array import array
from typing import TYPE_CHECKING, Any

import msgspec

from console.capture.chat import ChatMessage, ChatRequest
from console.capture.refusals import RefusedError, overflow, traced
from console.capture.sampler import model_input

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from console.capture.graph import Graph, Match, Node
    from console.capture.rendering import PolicyRenderer
    from console.capture.workers import Workers

BYTES_A_TOKEN = 16
"""No real text has tokens this long on average. What is longer than a window of such tokens is not even encoded."""
LARGEST_WINDOW = 2**20
CHARS_A_TOKEN = 4

log = logging.getLogger(__name__)


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A request as ids.

    Attributes:
        match: how it relates to what was captured; parent: the node whose end the ids begin with; reason: why there is
            none, "" with one; new: the ids behind the parent's end; tokens: of the whole prompt.
        input: the whole prompt as the sampler takes it.
    """

    match: Match
    parent: Node | None
    reason: str
    new: array[int]
    tokens: int
    input: Any

    @property
    def cached(self) -> int:
        """Tokens of the prompt that an earlier call of the trial had."""
        return self.tokens - len(self.new)


class Prompts:
    """Makes the prompts of one trial.

    Args:
        graph: the trial's; renderer: the policy's, which is used in the thread of `workers` only; trial: names whose
            turn it is there.
    """

    def __init__(self, graph: Graph, renderer: PolicyRenderer, workers: Workers, trial: Hashable) -> None:
        self._graph, self._renderer, self._workers, self._trial = graph, renderer, workers, trial
        self._ends = frozenset(renderer.sampling_stop())

    async def build(self, request: ChatRequest, window: int | None) -> Prompt:
        """The prompt of a request. Changes nothing in the graph.

        Raises:
            RefusedError: request for a conversation that cannot be rendered, overflow for one that is far too long to
                be worth it, busy when too much waits to be rendered.
        """
        match = self._graph.match(request)
        if match.parent is not None:
            bridged = await self._bridged(request, match, match.parent, window)
            if bridged is not None:
                return bridged
        _check_length(request.messages, request, window)
        ids, given = await self._work(_rendered, self._renderer, request)
        parent, new = self._graph.token_parent(ids, match)
        reason = "" if parent is not None else match.reason or self._unbridged(match.parent)
        return Prompt(match=match, parent=parent, reason=reason, new=new, tokens=len(ids), input=given)

    async def _bridged(self, request: ChatRequest, match: Match, parent: Node, window: int | None) -> Prompt | None:
        if not self._renderer.bridges or not self._ended(parent):
            return None
        _check_length(request.messages[match.known :], request, window)
        made = await self._work(_extended, self._renderer, request.messages, match.known, parent)
        if made is None:
            return None
        new, given = made
        tokens = parent.prompt_tokens + len(parent.tokens_T) + len(new)
        return Prompt(match=match, parent=parent, reason="", new=new, tokens=tokens, input=given)

    def _unbridged(self, parent: Node | None) -> str:
        """Why a conversation that goes on from a node is not bridged."""
        if self._renderer.history_thinking == "template":
            return "template"
        if self._renderer.bridges and parent is not None and not self._ended(parent):
            return "truncated"
        return "renderer"

    def _ended(self, node: Node) -> bool:
        """Whether the node's sample ends a turn, so that another can follow it."""
        return bool(node.tokens_T) and node.tokens_T[-1] in self._ends

    async def _work(self, work: Any, *args: Any) -> Any:
        try:
            return await self._workers.run(self._trial, work, *args)
        except RefusedError:
            raise
        except Exception as error:
            # Renderers take what agents send at its word; what one cannot render fails here every time.
            log.warning("a conversation cannot be rendered: %s", traced(error))
            raise RefusedError(
                "request", f"the conversation cannot be rendered: {type(error).__name__}", param="messages"
            ) from error


def _rendered(renderer: PolicyRenderer, request: ChatRequest) -> tuple[array[int], Any]:
    ids = renderer.render(request.messages, request.tools)
    return ids, model_input(ids)


def _extended(
    renderer: PolicyRenderer, messages: Sequence[ChatMessage], known: int, parent: Node
) -> tuple[array[int], Any] | None:
    new = renderer.extend(messages[known - 1], messages[known:], parent.tokens_T[-1])
    if new is None:
        return None
    ids = parent.end()
    ids.extend(new)
    return new, model_input(ids)


def _check_length(messages: Sequence[ChatMessage], request: ChatRequest, window: int | None) -> None:
    """Encoding a body of digits takes seconds for each megabyte, in which every other trial waits."""
    room = window if window is not None else LARGEST_WINDOW
    size = sum(len(message.text) + len(message.reasoning) for message in messages)
    size += sum(len(call.arguments) for message in messages for call in message.tool_calls)
    if size > BYTES_A_TOKEN * room:
        raise overflow(size // CHARS_A_TOKEN, room)
