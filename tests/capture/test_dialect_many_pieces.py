"""A reply that is sent back in very many pieces is put together in one pass, whatever the dialect."""

from __future__ import annotations

from typing import Any

import pytest

from console.capture.dialects.chat import Chat
from console.capture.dialects.messages import Messages
from console.capture.dialects.responses import Responses

PIECES = 200_000
NODE = "n1x00000000"
FUNCTION = {"name": "f", "arguments": "{}"}


def chat() -> Any:
    call = {"id": f"call_{NODE}_0", "type": "function", "function": FUNCTION}
    piece = {"role": "assistant", "content": "a", "tool_calls": [call]}
    return Chat(), {"messages": [*[piece] * PIECES, {"role": "user", "content": "go on"}]}


def responses() -> Any:
    piece = {"type": "function_call", "call_id": f"call_{NODE}_0", **FUNCTION}
    return Responses(), {"input": [*[piece] * PIECES, {"role": "user", "content": "go on"}]}


def messages() -> Any:
    piece = {"type": "tool_use", "id": f"toolu_{NODE}_0", "name": "f", "input": {}}
    talk = [{"role": "user", "content": "go"}, {"role": "assistant", "content": [piece] * PIECES}]
    return Messages(), {"max_tokens": 9, "messages": [*talk, {"role": "user", "content": "go on"}]}


@pytest.mark.timeout(40)  # what is quadratic takes many minutes
@pytest.mark.parametrize("make", [chat, responses, messages])
def test_very_many_pieces(make: Any) -> None:
    dialect, body = make()
    (turn,) = [m for m in dialect.parse({"model": "m", **body}, {}).messages if m.role == "assistant"]
    assert (len(turn.tool_calls), turn.node) == (PIECES, NODE)
