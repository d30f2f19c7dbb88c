"""Names of captured samples, and the ids and signatures made of them.

Agents send back ids and signatures word for word. Ours name the sample, so that a request leads to the sample it
extends even when the agent dropped or reformatted the rest. A name says nothing about other trials: it is looked up in
the trial's own graph only, and what it leads to is compared with what the agent sent.
"""

from __future__ import annotations

import re
import secrets

_NODE = r"n(?:0|[1-9][0-9]{0,8})x[0-9a-f]{8}"
_OURS = re.compile(rf"(?:call|toolu|chatcmpl|resp|msg|rs|fc|qd1)[_.-]({_NODE})(?:_[0-9]{{1,4}})?")


def new_node(number: int) -> str:
    """A name for the trial's sample with this number."""
    return f"n{number}x{secrets.token_hex(4)}"


def tool_call_id(node: str, index: int, prefix: str = "call") -> str:
    """Id of a reply's tool call number `index`; `prefix`: call, toolu or fc."""
    return f"{prefix}_{node}_{index}"


def signature(node: str) -> str:
    """An opaque word for dialects in which thoughts travel with a signature."""
    return f"qd1.{node}"


def node_of(word: object) -> str:
    """The sample that an id or signature of ours names; "" for anything else."""
    if not isinstance(word, str) or len(word) > 80:
        return ""
    match = _OURS.fullmatch(word)
    return match.group(1) if match else ""
