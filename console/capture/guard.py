"""Keeps control tokens in foreign text as text.

A renderer writes its template and an agent's text into one string, and the tokenizer turns every `<|im_end|>` in it
into the control token, whoever wrote it. Here foreign text is *veiled* before it is rendered: a secret word is put
inside each string that would become a control token, and the tokenizer that the renderer is given takes the word out
again where it encodes, after the real control tokens have been found. Text without such strings is encoded as ever.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from array import array
from collections import OrderedDict
from typing import Any

from console.capture.encodable import encodable

CACHED_IDS = 3_000_000
"""Ids of texts that are remembered (12 MB): full renderings repeat nearly all of the one before."""
ENTRY_IDS = 64
"""What a remembered text takes up besides its ids, in ids."""
NAMED_CHARS = 64
"""Longer texts are remembered by a digest."""
_ENDINGS = "ZXJKVWY" + "ÞÐØ"
"""Letters that few control strings have, and some that none has."""


class ControlTokens:
    """The strings that a tokenizer reads as control tokens.

    Attributes:
        special: those flagged so, which no text from outside may contain; every: with the others, such as `<think>`,
            which a template gives a meaning; example: one that is special, "" when there is none.
        letters: that occur in them.
    """

    def __init__(self, tokenizer: Any) -> None:
        added = _added_tokens(tokenizer)
        # One letter cannot be broken, and runs of spaces control nothing.
        strings = [text for text in added if len(text) > 2 and not text.isspace()]
        self.special = _pattern([text for text in strings if added[text]])
        self.every = _pattern(strings)
        self.plain = _pattern([text for text in strings if not added[text]])
        self.example = next((text for text in strings if added[text]), "")
        self.letters = frozenset("".join(strings))


class Veil:
    """Marks the control strings of foreign text with a word that nobody outside knows."""

    def __init__(self, control: ControlTokens) -> None:
        self._control = control
        # Its first letter occurs nowhere else in it, so that it cannot overlap itself. Its last one is in no control
        # string: one that it breaks would else be whole again behind it, and be broken for ever.
        last = next((letter for letter in _ENDINGS if letter not in control.letters), _ENDINGS[-1])
        self.mark = "Q" + secrets.token_hex(16) + last

    def over(self, text: str, *, every: bool = False) -> str:
        """The text, safe to render; `every`: also the control strings that are not flagged special stay text.

        Lone surrogates, which cannot be encoded, are replaced.
        """
        text = encodable(text)
        if self.mark in text:
            text = text.replace(self.mark, self.mark[0] + self.mark + self.mark[1:])
        pattern = self._control.every if every else self._control.special
        # Again after each pass: a string that overlapped a broken one may have been left whole.
        while pattern is not None and pattern.search(text):
            text = pattern.sub(lambda match: match[0][0] + self.mark + match[0][1:], text)
        return text

    def over_json(self, value: Any) -> Any:
        """A decoded JSON value with all its strings and keys veiled. Raises RecursionError when it is too deep."""
        if isinstance(value, str):
            return self.over(value)
        if isinstance(value, dict):
            return {self.over(str(key)): self.over_json(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.over_json(item) for item in value]
        return value

    def off(self, text: str) -> str:
        """The text as it was before it was veiled."""
        return text.replace(self.mark, "")


class GuardedTokenizer:
    """A tokenizer that understands veiled text. All but `encode` is the tokenizer's own."""

    def __init__(self, tokenizer: Any, control: ControlTokens, veil: Veil) -> None:
        self._inner, self._control, self._veil = tokenizer, control, veil
        self._plain = _without_added_tokens(tokenizer)
        self._control_ids = frozenset(_added_ids(tokenizer))
        self._cache = _EncodeCache()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def encode(
        self, text: str, add_special_tokens: bool = False, split_special_tokens: bool = False, **options: Any
    ) -> list[int]:
        """Ids of the text; options as the tokenizer takes them.

        `split_special_tokens`: strings of special tokens are text wherever they come from.
        """
        special = self._control.special if split_special_tokens else None
        if self._veil.mark not in text and (special is None or not special.search(text)):
            return self._clean(text, add_special_tokens, options)
        pattern = self._control.plain if split_special_tokens else self._control.every
        ids: list[int] = []
        at = 0
        for match in pattern.finditer(text) if pattern is not None else ():
            ids += self._foreign(text[at : match.start()])
            ids += self._inner.encode(match[0], add_special_tokens=False)
            at = match.end()
        return ids + self._foreign(text[at:])

    def _clean(self, text: str, add_special_tokens: bool, options: dict[str, Any]) -> list[int]:
        if options:
            return list(self._inner.encode(text, add_special_tokens=add_special_tokens, **options))
        key = self._cache.key(text, add_special_tokens)
        ids = self._cache.get(key)
        if ids is None:
            ids = list(self._inner.encode(text, add_special_tokens=add_special_tokens))
            self._cache.put(key, ids)
        return ids

    def _foreign(self, text: str) -> list[int]:
        """Ids of text in which nothing is a control token."""
        if not text:
            return []
        bare = self._veil.off(text)
        if self._plain is not None:
            ids = list(self._plain.encode(bare, add_special_tokens=False).ids)
            if self._control_ids.isdisjoint(ids):
                return ids
        return self._in_pieces(bare)

    def _in_pieces(self, text: str) -> list[int]:
        """Each control string cut in two, for tokenizers that cannot be asked to ignore their added tokens."""
        pattern = self._control.every
        ids: list[int] = []
        at = 0
        while pattern is not None and (match := pattern.search(text, at)):
            cut = match.start() + 1
            ids += self._inner.encode(text[at:cut], add_special_tokens=False)
            at = cut
        return ids + list(self._inner.encode(text[at:], add_special_tokens=False))


class _EncodeCache:
    """Ids of texts, the least used dropped first."""

    def __init__(self) -> None:
        self._ids: OrderedDict[tuple[str | bytes, bool], array[int]] = OrderedDict()
        self._held = 0

    @staticmethod
    def key(text: str, flag: bool) -> tuple[str | bytes, bool]:
        """A name for the text with this flag, so that a long text itself need not be kept."""
        name = text if len(text) <= NAMED_CHARS else hashlib.blake2b(text.encode(), digest_size=16).digest()
        return name, flag

    def get(self, key: tuple[str | bytes, bool]) -> list[int] | None:
        found = self._ids.get(key)
        if found is None:
            return None
        self._ids.move_to_end(key)
        return found.tolist()

    def put(self, key: tuple[str | bytes, bool], ids: list[int]) -> None:
        if len(ids) > CACHED_IDS // 8:
            return
        self._ids[key] = array("i", ids)
        self._held += len(ids) + ENTRY_IDS
        while self._held > CACHED_IDS:
            _, dropped = self._ids.popitem(last=False)
            self._held -= len(dropped) + ENTRY_IDS


def backend_of(tokenizer: Any) -> Any:
    """The `tokenizers.Tokenizer` in a tokenizer, None when it has none."""
    from tokenizers import Tokenizer

    for name in ("backend_tokenizer", "_tokenizer"):
        backend = getattr(tokenizer, name, None)
        if isinstance(backend, Tokenizer):
            return backend
    return None


def _added_tokens(tokenizer: Any) -> dict[str, bool]:
    """Each added token's string, and whether it is flagged special."""
    backend = backend_of(tokenizer)
    if backend is not None:
        return {token.content: bool(token.special) for token in backend.get_added_tokens_decoder().values()}
    decoder = getattr(tokenizer, "added_tokens_decoder", None)
    if isinstance(decoder, dict):
        return {str(getattr(t, "content", t)): bool(getattr(t, "special", True)) for t in decoder.values()}
    return {str(text): True for text in getattr(tokenizer, "all_special_tokens", None) or ()}


def _added_ids(tokenizer: Any) -> list[int]:
    backend = backend_of(tokenizer)
    return [] if backend is None else list(backend.get_added_tokens_decoder())


def _without_added_tokens(tokenizer: Any) -> Any:
    """The same splitting and merging without added tokens, over the same vocabulary in memory; None if impossible."""
    from tokenizers import Tokenizer

    backend = backend_of(tokenizer)
    if backend is None:
        return None
    plain = Tokenizer(backend.model)
    if backend.normalizer is not None:
        plain.normalizer = backend.normalizer
    if backend.pre_tokenizer is not None:
        plain.pre_tokenizer = backend.pre_tokenizer
    return plain


def _pattern(strings: list[str]) -> re.Pattern[str] | None:
    """Finds any of the strings, the longest that fits; None when there are none."""
    if not strings:
        return None
    return re.compile("|".join(re.escape(text) for text in sorted(strings, key=len, reverse=True)))
