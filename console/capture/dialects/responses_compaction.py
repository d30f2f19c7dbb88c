"""Compaction as codex asks OpenAI for it: a trigger at the end of the input, and one item with the summary in return.

The policy itself is asked for the summary, by a message of ours in the place of the trigger. The item comes back in
later requests, where the summary stands for what was before it. Its content, opaque to agents, is the summary in clear:
nothing is kept here between calls.
"""

from __future__ import annotations

from console.capture import ids
from console.capture.chat import ChatReply
from console.capture.dialects.fields import text
from console.capture.refusals import bad_request

ASK = (
    "The conversation has become too long and will be cut here. Of all that was said so far, only your next message "
    "will be kept. Write down what is needed to go on without the rest: the task and what the user asked for, what was "
    "done and found, files and commands that matter, what is still to be done. Do not call any tools."
)
"""What the policy is asked in the place of a trigger."""

TOLD = "The conversation up to here was cut. This was written down to go on with:\n\n"
"""Stands before the summary in later requests."""


def compaction_content(reply: ChatReply) -> str:
    """`encrypted_content` of the item for a reply: the sample that it is, and what it says."""
    return f"{ids.signature(reply.node)}\n{reply.text.strip() or '(nothing)'}"


def summary_message(content: object, param: str) -> str:
    """What the policy is told in the place of an item with this content.

    Raises:
        RefusedError: kind `request`: another server made it.
    """
    head, _, summary = text(content, param).partition("\n")
    if not ids.node_of(head):
        raise bad_request(param, "was not made by this gateway, which cannot read it")
    return TOLD + summary
