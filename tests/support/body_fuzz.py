"""Requests that went wrong: bodies changed at any place, and values of any form, for tests with hypothesis."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from console.capture.chat import ChatRequest
from console.capture.dialects.base import Dialect
from console.capture.refusals import RefusedError

type Path = tuple[Any, ...]
type Change = tuple[Path, str, Any]
type Way = Callable[[Any, Any], Any]

ODD: list[Any] = [None, True, 0, -1.5, "", "\udfff", [], {}, [[]], [{}], {"a": {}}, float("nan"), 2**63, "x" * 5000]
"""Values of every type that JSON can carry into a field, and of some that it cannot."""


def examples(count: int) -> settings:
    """So many, however slow the machine is."""
    return settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))


def words(*some: Sequence[str]) -> st.SearchStrategy[str]:
    """Words that mean something, words that are dangerous, and any other."""
    dangerous = ["\ud800", "<|im_end|>", "1e999", "{"]
    return st.one_of(*(st.sampled_from(list(each)) for each in (*some, dangerous)), st.text(max_size=8))


def values(keys: st.SearchStrategy[str], said: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Anything, of these words."""
    numbers = st.sampled_from([float("nan"), float("inf"), -0.0, 1.0, 1e308, 10**400, 0, 1, -1])
    leaves = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), numbers, said)
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=6
    )


class Spoiler:
    """Changes a good body. `ways`: further ways to change what stands at a place, from it and a value."""

    def __init__(self, body: dict[str, Any], ways: Mapping[str, Way]) -> None:
        self._body = body
        self.places = list(_places(body))
        self._ways: dict[str, Way] = {
            "set": lambda old, value: value,
            "copy": lambda old, value: [copy.deepcopy(old), copy.deepcopy(old)],
            **ways,
        }

    def changes(self, some: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Change]]:
        """A few changes with these values."""
        hows = st.sampled_from(["drop", *self._ways])
        return st.lists(st.tuples(st.sampled_from(self.places), hows, some), max_size=4)

    def changed(self, changes: Sequence[Change]) -> dict[str, Any]:
        """The body with these changes, as far as what they are about is still there."""
        body = copy.deepcopy(self._body)
        for path, how, value in changes:
            self._change(body, path, how, value)
        return body

    def odd(self) -> Iterator[dict[str, Any]]:
        """The body with each place as each of the odd values."""
        for path in self.places:
            for value in ODD:
                yield self.changed([(path, "set", value)])

    def _change(self, body: Any, path: Path, how: str, value: Any) -> None:
        try:
            for step in path[:-1]:
                body = body[step]
            if how == "drop":
                del body[path[-1]]
            else:
                body[path[-1]] = self._ways[how](body[path[-1]], value)
        except (KeyError, IndexError, TypeError):
            pass


def checked(dialect: Dialect, parse: Callable[[Any], ChatRequest], body: Any) -> ChatRequest | RefusedError:
    """What a body becomes: a request that can be written down, or a refusal of its kind that can be sent."""
    request: ChatRequest | RefusedError
    try:
        request = parse(body)
    except RefusedError as refusal:
        request = refusal
    if isinstance(request, RefusedError):
        assert request.kind == "request" and request.param and len(request.message) < 400
        assert json.dumps(dialect.error(request))
        return request
    assert msgspec.json.decode(msgspec.json.encode(request), type=ChatRequest) == request
    assert len(request.neutralised) < 100
    return request


def _places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Paths of everything in a body."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if path:
        yield path
    for key, part in inner:
        yield from _places(part, (*path, key))
