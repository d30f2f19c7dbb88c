"""Which request goes where. Agents append to the address they are given what they think belongs there: a doubled `/v1`,
slashes, a query, a model's name of their own; all of that is taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

Action = Literal["call", "count", "models", "model", "base", "none"]

READ = ("GET", "HEAD")
CALL = ("POST",)

_CALLS = {("chat", "completions"): "chat", ("responses",): "responses", ("messages",): "messages"}


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request leads.

    Attributes:
        action: call (a reply is wanted), count (tokens of a prompt), models, model (one of them), base (somebody looks
            whether anybody is there), none (no such path).
        dialect: in which it is answered, errors too; methods: that it takes.
    """

    action: Action
    dialect: str
    methods: tuple[str, ...] = READ


def resolve(path: str, prefix: str, headers: Mapping[str, str]) -> Place:
    """Where a request leads.

    Args:
        path: of the request, decoded, without its query; prefix: of the advertised URL, which may be there or not.
    """
    if prefix and (path == prefix or path.startswith(prefix + "/")):
        path = path[len(prefix) :]
    parts = tuple(part for part in path.split("/") if part)
    while parts and parts[0] == "v1":
        parts = parts[1:]
    if not parts:
        return Place(action="base", dialect=_family(headers))
    if parts in _CALLS:
        return Place(action="call", dialect=_CALLS[parts], methods=CALL)
    if parts == ("messages", "count_tokens"):
        return Place(action="count", dialect="messages", methods=CALL)
    if parts[0] == "models":
        return Place(action="models" if len(parts) == 1 else "model", dialect=_family(headers))
    family = parts[0] if parts[0] in ("messages", "responses") else _family(headers)
    return Place(action="none", dialect=family, methods=())


def _family(headers: Mapping[str, str]) -> str:
    """The dialect of a client whose path does not tell."""
    return "messages" if "anthropic-version" in headers else "chat"
