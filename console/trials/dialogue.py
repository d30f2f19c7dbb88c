"""How the terminal agent and a policy talk: what a reply may be, and how a command's outcome is shown.

Pure text, no Harbor: the agent holds these conversations, and the bundled model is pretrained on the same form.
"""

from __future__ import annotations

import re

SYSTEM_PROMPT = "Reply with one command in a ```bash block, or with Done."
DONE = "Done."
_BLOCK = re.compile(r"```(?:bash|sh)[ \t]*\n(.*?)\n?```", re.DOTALL)


def command_in(reply: str) -> str | None:
    """The text of the first closed bash block, None when there is none or it is blank."""
    found = _BLOCK.search(reply)
    return found.group(1) if found and found.group(1).strip() else None


def is_last(reply: str) -> bool:
    """Whether the policy says that it is done, with or without a last command."""
    return reply.rstrip().endswith(DONE)


def bounded(text: str, limit: int) -> str:
    """`text` in at most about `limit` characters: the head and the tail, with the number left out between them."""
    if len(text) <= limit:
        return text
    head, tail = (limit + 1) // 2, limit // 2
    return f"{text[:head]}\n... {len(text) - limit} characters left out ...\n{text[len(text) - tail :]}"


def observation(exit_code: int, output: str, limit: int) -> str:
    """What the policy is shown after a command: its exit code, then its output without outer blank lines."""
    shown = bounded(output.strip("\r\n"), limit)
    return f"exit {exit_code}\n{shown}" if shown else f"exit {exit_code}"
