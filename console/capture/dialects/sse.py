"""Framing of `text/event-stream`, shared by the dialects."""

from __future__ import annotations

import json
from typing import Any

KEEPALIVE = b": keepalive\n"
"""A comment line. Without the blank line that ends an event: some clients decode an empty event as JSON."""

DONE = b"data: [DONE]\n\n"
"""The last event of Chat Completions."""


def event(data: dict[str, Any], name: str = "") -> bytes:
    """One event with a JSON object as its data, and a name when the dialect has names.

    All but ASCII is escaped: some clients split lines at U+2028, U+0085 and the like, others cut a chunk within a
    character. So is a policy's own `[DONE]`: litellm takes it for the end of the stream wherever it stands in a line.

    Raises:
        ValueError: a number in `data` is not finite.
    """
    head = f"event: {name}\n" if name else ""
    body = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("[DONE]", "\\u005bDONE]")
    return f"{head}data: {body}\n\n".encode("ascii")
