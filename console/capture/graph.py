"""A trial's captured samples and how they follow each other.

A *node* is one sample with the tokens that were new in its prompt; its prompt is its parent's prompt and sample and
these. Two relations hold it: `parent` says whose tokens its prompt begins with, `extends` whose conversation it goes
on with. They differ where a prompt had to be rendered in full.

A request extends a node when its messages are the node's request, a replay of the node's reply, and new messages of
which none is an assistant's, under the same tools. What counts as a replay is in `history`. Ids that we minted choose
between nodes of equal content; they never stand in for content.

Not safe for threads, and does no I/O.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec

from console.capture.chat import ChatMessage, ChatReply, ChatRequest
from console.capture.history import Keys, content, thoughts
from console.errors import CaptureError


class Node:
    """One captured sample.

    Attributes:
        name, number: of the call; parent: node whose prompt and sample this prompt begins with.
        prompt_new: ids of the prompt behind the parent's end; tokens_T, logprobs_T: sampled ids and their log-probs.
        prompt_tokens: of the whole prompt; stop_reason: stop or length.
        reason: why it has no parent, "" with one; delivered: its reply was handed to the agent's connection.
        extends: node whose conversation it goes on with; related: without one, the node it has to do with, if any.
        used: a later call of the agent had this node's reply.
        count: messages of its request; tools, system, request: digests of them, see `history.Keys`.
    """

    __slots__ = (
        "count", "delivered", "extends", "foreign", "logprobs_T", "name", "number", "parent", "prompt_new",
        "prompt_tokens", "reason", "related", "request", "stop_reason", "system", "thoughts", "tokens_T", "tools",
        "used",
    )  # fmt: skip

    def __init__(
        self,
        *,
        name: str,
        number: int,
        keys: Keys,
        parent: Node | None,
        extends: Node | None,
        related: Node | None,
        reason: str,
        prompt_new: array[int],
        tokens_T: array[int],
        logprobs_T: array[float],
        stop_reason: str,
        reasoning: str,
    ) -> None:
        self.name, self.number, self.reason, self.stop_reason = name, number, reason, stop_reason
        self.parent, self.extends, self.related = parent, extends, related
        self.prompt_new, self.tokens_T, self.logprobs_T = prompt_new, tokens_T, logprobs_T
        self.prompt_tokens: int = len(prompt_new) + (parent.prompt_tokens + len(parent.tokens_T) if parent else 0)
        self.count, self.tools, self.system, self.request = len(keys.messages), keys.tools, keys.system, keys.request
        self.delivered = self.used = False
        self.thoughts = thoughts(reasoning)
        # Thoughts of the assistant's messages that the conversation came with.
        self.foreign: tuple[tuple[int, int], ...] = ()
        if extends is None:
            self.foreign = tuple(
                (index, thoughts(message.reasoning))
                for index, message in enumerate(keys.messages)
                if message.role == "assistant"
            )

    def __repr__(self) -> str:
        return f"<node {self.name} of {self.prompt_tokens} + {len(self.tokens_T)} tokens>"

    def prompt(self) -> array[int]:
        """The ids that were sent to the sampler, as a new array."""
        chain = self.chain()
        ids = array("i")
        for node in chain[:-1]:
            ids.extend(node.prompt_new)
            ids.extend(node.tokens_T)
        ids.extend(self.prompt_new)
        return ids

    def end(self) -> array[int]:
        """Prompt and sample, as a new array."""
        ids = self.prompt()
        ids.extend(self.tokens_T)
        return ids

    def chain(self) -> list[Node]:
        """The nodes whose tokens the prompt consists of, from the first, and this one."""
        chain: list[Node] = []
        node: Node | None = self
        while node is not None:
            chain.append(node)
            node = node.parent
        chain.reverse()
        return chain

    def agrees(self, messages: Sequence[ChatMessage]) -> bool:
        """Whether the thoughts in `messages`, which extend this node, are missing or those that were given."""
        node: Node | None = self
        while node is not None:
            given = [(node.count, node.thoughts), *node.foreign]
            if any(thoughts(messages[at].reasoning) not in (0, known) for at, known in given):
                return False
            node = node.extends
        return True


class Match(msgspec.Struct, kw_only=True):
    """How a request relates to what was captured.

    Attributes:
        parent: the node that it extends; known: messages of the request that the parent's prompt and reply cover.
        reason: "" with a parent, else first, tools, system, rewritten, compacted or truncated.
        fresh: indices of the messages that no earlier call of the trial had.
        related: without a parent, the node whose conversation it comes from; replayed: and its reply is in it.
        keys: digests of the request.
    """

    parent: Node | None = None
    known: int = 0
    reason: str = ""
    fresh: list[int] = []
    related: Node | None = None
    replayed: bool = False
    keys: Keys


class Graph:
    """The samples of one trial, in the order in which they came."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.policy_version: int | None = None
        self._by_name: dict[str, Node] = {}
        self._by_request: dict[bytes, list[Node]] = {}
        self._by_answer: dict[bytes, list[Node]] = {}
        self._by_plain_request: dict[bytes, Node] = {}
        self._by_plain_answer: dict[bytes, Node] = {}
        self._by_reply: dict[bytes, Node] = {}
        self._longest: dict[tuple[bytes, bytes], tuple[int, Node]] = {}
        self._had: set[bytes] = set()
        self._said: set[bytes] = set()

    def match(self, request: ChatRequest) -> Match:
        """The node that a request extends, or why it extends none. Changes nothing."""
        messages = request.messages
        keys = Keys(messages, request.tools)
        last = _last_assistant(messages)
        match = self._matched(messages, keys, last)
        match.fresh = [
            index
            for index in range(match.known, len(messages))
            if keys.chain[index] not in self._had
            and (match.parent is not None or content(messages[index]) not in self._said)
        ]
        return match

    def asked(self, match: Match) -> None:
        """The call's intent is written down: no later call's `fresh` has its messages. `add` does it too."""
        messages = match.keys.messages
        for index in range(match.known, len(messages)):
            if match.keys.chain[index] not in self._had:
                self._had.add(match.keys.chain[index])
                self._said.add(content(messages[index]))

    def token_parent(self, prompt: array[int], match: Match) -> tuple[Node | None, array[int]]:
        """Of the conversation that a request goes on with, the latest node whose end the prompt begins with.

        For prompts that were rendered in full. Returns the node, or None, and the ids of the prompt behind its end.
        """
        fits: dict[Node, bool] = {}
        node = match.parent
        while node is not None:
            steps: list[Node] = []
            step: Node | None = node
            while step is not None and step not in fits:
                steps.append(step)
                step = step.parent
            for step in reversed(steps):
                fits[step] = (step.parent is None or fits[step.parent]) and _stands_in(prompt, step)
            if fits[node]:
                return node, prompt[node.prompt_tokens + len(node.tokens_T) :]
            node = node.extends
        return None, prompt

    def add(
        self,
        *,
        name: str,
        number: int,
        match: Match,
        parent: Node | None,
        reason: str,
        prompt_new: array[int],
        tokens_T: array[int],
        logprobs_T: array[float],
        stop_reason: str,
        reply: ChatReply,
        policy_version: int | None = None,
    ) -> Node:
        """Keep a sample.

        Args:
            match: of the request; parent: the node that `prompt_new` follows, None when it is the whole prompt.
            reason: why there is no parent, "" with one.
            policy_version: of the weights that sampled, None when it is not known.

        Raises:
            CaptureError: tokens and log-probs differ in length, the name is taken, or the trial was sampled from
                other weights before.
        """
        if len(tokens_T) != len(logprobs_T):
            raise CaptureError(f"sample {name} has {len(tokens_T)} tokens and {len(logprobs_T)} log-probs")
        if name in self._by_name:
            raise CaptureError(f"sample {name} was captured twice")
        if policy_version is not None:
            if self.policy_version not in (None, policy_version):
                raise CaptureError(
                    f"sample {name} is of policy version {policy_version}, the trial's others of {self.policy_version}"
                )
            self.policy_version = policy_version
        keys = match.keys
        node = Node(
            name=name, number=number, keys=keys, parent=parent, extends=match.parent, related=match.related,
            reason=reason, prompt_new=prompt_new, tokens_T=tokens_T, logprobs_T=logprobs_T, stop_reason=stop_reason,
            reasoning=reply.reasoning,
        )  # fmt: skip
        if match.parent is not None:
            match.parent.used = True
        if match.related is not None and match.replayed:
            match.related.used = True
        self.asked(match)
        self._index(node, keys, reply)
        return node

    def delivered(self, name: str) -> None:
        """The reply of a node was handed to the agent's connection; unknown names are nobody's."""
        if name in self._by_name:
            self._by_name[name].delivered = True

    def _index(self, node: Node, keys: Keys, reply: ChatReply) -> None:
        answer = keys.answered(reply.text, reply.tool_calls)
        self.nodes.append(node)
        self._by_name[node.name] = node
        self._by_request.setdefault(keys.request, []).append(node)
        self._by_answer.setdefault(answer, []).append(node)
        self._by_plain_request[keys.request[: Keys.PLAIN]] = node
        self._by_plain_answer[answer[: Keys.PLAIN]] = node
        said = content(ChatMessage(role="assistant", text=reply.text, tool_calls=reply.tool_calls))
        self._said.add(said)
        if reply.text.strip() or reply.tool_calls:
            self._by_reply[said] = node
        # A conversation's length counts from its second call: before that there is nothing to compact.
        if node.extends is not None or node.foreign:
            who = (node.system, node.tools)
            if node.count + 1 >= self._longest.get(who, (0, node))[0]:
                self._longest[who] = (node.count + 1, node)

    def _matched(self, messages: Sequence[ChatMessage], keys: Keys, last: int | None) -> Match:
        if not self.nodes:
            return Match(reason="first", keys=keys)
        found = self._by_answer.get(keys.chain[last], []) if last is not None else []
        if last is not None and found:
            with_tools = [node for node in found if node.tools == keys.tools]
            fit = [node for node in with_tools if node.agrees(messages)]
            best = _best(fit or with_tools or found, messages[last].node)
            if not with_tools:
                return Match(reason="tools", related=best, replayed=True, keys=keys)
            if not fit:
                return Match(reason="rewritten", related=best, replayed=True, keys=keys)
            if best.stop_reason == "length":
                return Match(reason="truncated", related=best, replayed=True, keys=keys)
            return Match(parent=best, known=last + 1, keys=keys)
        return self._unmatched(messages, keys, last)

    def _unmatched(self, messages: Sequence[ChatMessage], keys: Keys, last: int | None) -> Match:
        """Why a request, whose last assistant's message is no captured reply in its place, begins anew."""
        twins = self._by_request.get(keys.request, [])
        for twin in reversed(twins):
            if twin.tools == keys.tools and twin.extends is None:  # asked again: as before
                return Match(reason=twin.reason, related=twin.related, keys=keys)
        if twins:
            return Match(reason="tools", related=twins[-1], keys=keys)
        if last is not None:
            related = self._by_plain_answer.get(keys.chain[last][: Keys.PLAIN])
            if related is not None:
                reason = "system" if related.tools == keys.tools else "tools"
                return Match(reason=reason, related=related, replayed=True, keys=keys)
        related = self._by_plain_request.get(keys.request[: Keys.PLAIN])
        spoken = any(message.role != "system" for message in messages)
        if related is not None and spoken and keys.tools and related.tools == keys.tools:
            return Match(reason="system", related=related, keys=keys)
        at, related = self._replayed(messages, keys)
        if related is not None:
            reason = "compacted" if at < related.count else "rewritten"  # less stands before it than did
            return Match(reason=reason, related=related, replayed=True, keys=keys)
        length, longest = self._longest.get((keys.system, keys.tools), (0, None))
        if longest is not None and len(messages) < length and (keys.system or keys.tools):
            return Match(reason="compacted", related=longest, keys=keys)
        for index in range(len(messages) - 2, -1, -1):  # asked again with more, and without the reply
            asked = [n for n in self._by_request.get(keys.chain[index], ()) if n.tools == keys.tools]
            if asked:
                reason = "compacted" if len(messages) < length else "rewritten"
                return Match(reason=reason, related=asked[-1], keys=keys)
        return Match(reason="first", keys=keys)

    def _replayed(self, messages: Sequence[ChatMessage], keys: Keys) -> tuple[int, Node | None]:
        """Index and node of the latest captured reply: in its place, named by an id of ours, or by what it says."""
        assistants = [index for index in range(len(messages) - 1, -1, -1) if messages[index].role == "assistant"]
        for index in assistants:
            node = self._by_plain_answer.get(keys.chain[index][: Keys.PLAIN])
            if node is not None:
                return index, node
        for index in assistants:
            node = self._by_name.get(messages[index].node) or self._by_reply.get(content(messages[index]))
            if node is not None:
                return index, node
        return 0, None


def _last_assistant(messages: Sequence[ChatMessage]) -> int | None:
    return next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role == "assistant"), None)


def _best(nodes: Sequence[Node], named: str) -> Node:
    """Of nodes with equal conversations the named one, then one that can be extended, a delivered one, the latest."""
    return max(nodes, key=lambda n: (n.name == named, n.stop_reason != "length", n.delivered, n.number))


def _stands_in(prompt: array[int], node: Node) -> bool:
    """Whether the node's own ids stand in the prompt where they stand in the node's chain."""
    at = node.prompt_tokens - len(node.prompt_new)
    mid, end = node.prompt_tokens, node.prompt_tokens + len(node.tokens_T)
    return end <= len(prompt) and prompt[at:mid] == node.prompt_new and prompt[mid:end] == node.tokens_T
