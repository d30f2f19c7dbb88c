"""What of a call's text is written down for whoever looks at it later. Nothing that is trained depends on it.

The trial's own token is never written down, not even when the agent or the policy repeats it.
"""

from __future__ import annotations

from collections.abc import Sequence

from console.capture.chat import ChatMessage
from console.capture.encodable import encodable
from console.records.capture_format import KeptMessage
from console.records.redact import redact

MESSAGE_CHARS = 16_000
CALL_CHARS = 64_000
"""Characters of a message, and of all new messages of a call, that are written down."""
MESSAGES_AT_MOST = 200
NAMES_AT_MOST = 128
NAME_CHARS = 80
ERROR_CHARS = 300
HIDDEN = "[redacted]"


class Keeper:
    """Bounds texts, and takes one trial's token out of them.

    Attributes:
        hidden: texts that had the token in them.
    """

    def __init__(self, secret: str) -> None:
        """`secret`: the trial's token; empty for none."""
        self._secret = secret
        self.hidden = 0

    def bounded(self, text: str, limit: int) -> str:
        """The beginning of a text, `limit` characters at most, encodable and without the token."""
        # Cut so that a token across the limit is seen whole, and none that is cut in two is left.
        head = text[: limit + len(self._secret)]
        if self._secret and self._secret in head:
            self.hidden += 1
            left = len(self._secret) - 1 if len(text) > len(head) else 0
            head = head.replace(self._secret, HIDDEN)
            head = head[: len(head) - left]
        return encodable(head[:limit])

    def hides(self, text: str) -> bool:
        """Whether the token stands in the text."""
        return bool(self._secret) and self._secret in text

    def names(self, names: Sequence[str]) -> list[str]:
        """Names that a client chose: short, and not too many."""
        return [self.bounded(name, NAME_CHARS) for name in names[:NAMES_AT_MOST]]

    def error(self, text: str) -> str:
        """A failure in one line; whatever is shaped like a key is taken out too."""
        return str(redact(self.bounded(" ".join(text[: 4 * ERROR_CHARS].split()), ERROR_CHARS)))

    def messages(self, messages: Sequence[ChatMessage], fresh: Sequence[int]) -> list[KeptMessage]:
        """The messages with these indices, the last ones where there are too many."""
        left = CALL_CHARS
        kept = []
        for index in fresh[-MESSAGES_AT_MOST:]:
            text = message_text(messages[index])
            shown = self.bounded(text, min(MESSAGE_CHARS, left))
            left -= len(shown)
            cut = max(0, len(text) - MESSAGE_CHARS) if len(shown) >= MESSAGE_CHARS else max(0, len(text) - len(shown))
            kept.append(KeptMessage(role=messages[index].role, text=shown, cut=0 if HIDDEN in shown else cut))
        return kept


def message_text(message: ChatMessage) -> str:
    """A message's text; its tool calls stand behind it."""
    calls = [f"[tool call {call.name}] {call.arguments}" for call in message.tool_calls]
    return "\n".join(part for part in (message.text, *calls) if part)


def piece_lengths(pieces: Sequence[str], raw: str) -> bytes:
    """Characters of each token's text within `raw`, one byte a token.

    Nothing when the pieces do not add up to `raw`, or one of them is longer than a byte counts.
    """
    lengths = [len(piece) for piece in pieces]
    return bytes(lengths) if lengths and max(lengths) < 256 and sum(lengths) == len(raw) else b""
