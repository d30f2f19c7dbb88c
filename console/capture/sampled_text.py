"""Text of sampled ids, token by token, so that places in the text can be told in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from console.capture.guard import backend_of

_BROKEN = "\ufffd"
LONGEST_CHARACTER = 8
"""Tokens that one character is spread over at most."""


class TokenTexts:
    """Decodes samples. Each id is decoded once."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._backend = tokenizer, backend_of(tokenizer)
        self._texts: dict[int, str] = {}

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, control tokens included."""
        if self._backend is not None:
            return str(self._backend.decode(list(ids), skip_special_tokens=False))
        return str(self._tokenizer.decode(list(ids)))

    def pieces(self, ids: Sequence[int], text: str) -> list[str]:
        """What each id adds to `text`, which is the decoded ids.

        A character that is spread over tokens stands with the last of them, the others add nothing. Joined, the pieces
        are the text.
        """
        pieces: list[str] = []
        open_from = 0
        for at, token in enumerate(ids):
            alone = self._texts.get(token)
            if alone is None:
                alone = self._texts[token] = self.decode([token])
            whole = _BROKEN not in alone
            if open_from == at and whole:
                pieces.append(alone)
                open_from = at + 1
                continue
            if whole:
                # What was begun before this token stays broken.
                pieces[-1] = self.decode(ids[open_from:at])
                pieces.append(alone)
                open_from = at + 1
                continue
            pieces.append("")
            if at + 1 - open_from <= LONGEST_CHARACTER:
                together = self.decode(ids[open_from : at + 1])
                if _BROKEN not in together:
                    pieces[-1] = together
                    open_from = at + 1
        if open_from < len(ids):
            pieces[-1] = self.decode(ids[open_from:])
        if "".join(pieces) != text:
            # A tokenizer whose tokens mean something else when they stand alone.
            return [""] * (len(ids) - 1) + [text] if ids else []
        return pieces
