"""Checks a try's file of captured calls by itself: what was sent to the sampler, stored, and trained are the same ids.

Shares nothing with the part that writes the files but their format.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections import Counter

import msgspec

from console.errors import RecordingError
from console.records.capture_format import Sealed
from console.records.captured_calls import CapturedTrialFile, KeptCall

LOGPROB_SLACK = 1e-4
"""Log-probs of certain tokens come out a little above zero."""
PROBLEMS = 200


class _Node(msgspec.Struct):
    """A call: `prompt` tokens were sent, the last of them `new` behind all of `parent`; `tokens` were sampled."""

    parent: _Node | None
    prompt: int
    new: array[int]
    tokens: array[int]
    answered: bool

    def end(self) -> array[int]:
        """All ids up to the end of the sample."""
        parts: list[array[int]] = []
        node: _Node | None = self
        while node is not None:
            parts += [node.tokens, node.new]
            node = node.parent
        ids = array("i")
        for part in reversed(parts):
            ids += part
        return ids


def check_tokens(file: CapturedTrialFile) -> list[str]:
    """What is wrong with a file that was looked at to its end, one line each, `PROBLEMS` at most; empty for nothing.

    Each call: its parent precedes it and was answered, `prompt_tokens` is the length of the chain, ids and log-probs
    are of equal length, log-probs finite and not above zero. Of a sealed file: every answered call is in exactly one
    segment or excluded by name, each call of a segment goes on exactly where the one before it ended, and the counts
    are right. Raises OSError.
    """
    problems = _Problems()
    if file.damage:
        problems.add(file.damage)
    for oddity in file.oddities:
        problems.add(oddity)
    nodes: dict[str, _Node] = {}
    try:
        for call in file:
            nodes[call.intent.node] = _check_call(call, nodes, problems)
            if call.outcome is None and file.sealed is not None:
                problems.add(f"{_name(call)} has no outcome, and the trial is sealed")
    except RecordingError as error:
        problems.add(str(error))
    if file.opened is None and len(file):
        problems.add("the file does not say what it is of")
    if file.opened is not None and file.opened.key != file.key:
        problems.add(f"the file is of {file.opened.key[:80]}")
    if file.sealed is not None:
        _check_sealed(file.sealed, nodes, problems)
    return problems.found


class _Problems:
    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, problem: str) -> None:
        if len(self.found) < PROBLEMS:
            self.found.append(problem)


def _name(call: KeptCall) -> str:
    return f"call {call.intent.call} ({call.intent.node})"


def _check_call(call: KeptCall, nodes: dict[str, _Node], problems: _Problems) -> _Node:
    intent, outcome, name = call.intent, call.outcome, _name(call)
    parent = None
    if intent.parent:
        parent = nodes.get(intent.parent)
        if parent is None:
            problems.add(f"{name} extends {intent.parent[:80]}, which is not there before it")
        elif not parent.answered:
            problems.add(f"{name} extends {intent.parent}, which was not answered")
    new, tokens, logprobs = array("i"), array("i"), array("f")
    try:
        new, tokens, logprobs = call.prompt_new(), call.tokens(), call.logprobs()
    except ValueError:
        problems.add(f"{name} has torn ids or log-probs")
    prompt = len(new) + (parent.prompt + len(parent.tokens) if parent is not None else 0)
    if prompt != intent.prompt_tokens:
        problems.add(f"{name} was sent {intent.prompt_tokens} tokens, and its chain has {prompt}")
    if outcome is not None:
        if len(tokens) != len(logprobs):
            problems.add(f"{name} has {len(tokens)} ids and {len(logprobs)} log-probs")
        if not all(math.isfinite(one) and one <= LOGPROB_SLACK for one in logprobs):
            problems.add(f"{name} has log-probs that are not finite, or above zero")
        if outcome.pieces and len(outcome.pieces) != len(tokens):
            problems.add(f"{name} has texts of {len(outcome.pieces)} tokens, and {len(tokens)} tokens")
    if min(new, default=0) < 0 or min(tokens, default=0) < 0:
        problems.add(f"{name} has ids below zero")
    return _Node(parent, prompt, new, tokens, call.answered)


def _check_sealed(sealed: Sealed, nodes: dict[str, _Node], problems: _Problems) -> None:
    trained = Counter(node for segment in sealed.segments for node in segment.nodes)
    excluded = Counter(node for names in sealed.excluded_nodes.values() for node in names)
    for node, times in trained.items():
        if times > 1:
            problems.add(f"{node} is a target {times} times")
        if node not in nodes:
            problems.add(f"{node} is trained and is not there")
        elif not nodes[node].answered:
            problems.add(f"{node} is trained and was not answered")
    for node, times in excluded.items():
        if times > 1 or node in trained:
            problems.add(f"{node} is left out {times} times, and a target {trained[node]} times")
        if node not in nodes:
            problems.add(f"{node} is left out and is not there")
    answered = [name for name, node in nodes.items() if node.answered]
    for name in answered:
        if name not in trained and name not in excluded:
            problems.add(f"{name} is neither trained nor left out by name")
    samples = sum(len(nodes[name].tokens) > 0 for name in answered)  # an answer of no tokens is none
    if sealed.calls != samples:
        problems.add(f"the seal counts {sealed.calls} answered calls, and there are {samples}")
    for reason in sealed.excluded.keys() | sealed.excluded_nodes.keys():
        count, names = sealed.excluded.get(reason, 0), sealed.excluded_nodes.get(reason, [])
        if count != len(names):
            problems.add(f"{count} calls are left out as {reason}, and {len(names)} are named")
    for segment in sealed.segments:
        if not segment.nodes:
            problems.add("a segment has no calls")
        for first, second in itertools.pairwise(segment.nodes):
            before, after = nodes.get(first), nodes.get(second)
            if before is None or after is None or after.parent is before:
                continue
            ids = before.end()
            if after.prompt < len(ids) or after.end()[: len(ids)] != ids:
                problems.add(f"{second} does not begin with all of {first}")
