"""A light tokenizer for models that are a local directory: the `tokenizers` file without the transformers import.

The cookbook loads every tokenizer through one registry; for a directory of ours that costs 6 s and 160 MB of
transformers. Its renderers need only what stands here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer


class LightTokenizer:
    """Encode and decode with a `tokenizer.json`. Special tokens in the text become special, as the renderers expect.

    Args:
        directory: a Hugging Face directory with tokenizer.json and tokenizer_config.json.
    """

    bos_token: str | None = None

    def __init__(self, directory: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        config = json.loads((directory / "tokenizer_config.json").read_text())
        self.name_or_path = str(directory)
        self.eos_token: str = config.get("eos_token") or "<|im_end|>"
        self.eos_token_id: int | None = self._tokenizer.token_to_id(self.eos_token)

    def encode(self, text: str, add_special_tokens: bool = False, **_: Any) -> list[int]:
        """Token ids of the text."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: int | list[int], skip_special_tokens: bool = False, **_: Any) -> str:
        """The text of one id or of many."""
        ids = [ids] if isinstance(ids, int) else list(ids)
        return str(self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))

    def convert_tokens_to_ids(self, tokens: str | list[str]) -> int | list[int | None] | None:
        """Ids of whole tokens; None for one that does not exist."""
        if isinstance(tokens, str):
            return self._id(tokens)
        return [self._id(token) for token in tokens]

    def _id(self, token: str) -> int | None:
        number: int | None = self._tokenizer.token_to_id(token)
        return number


def tokenizer_factory(directory: Path) -> Callable[..., LightTokenizer]:
    """A factory for the cookbook's registry; it makes one tokenizer and returns it ever after."""
    made: list[LightTokenizer] = []

    def make(*_: Any, **__: Any) -> LightTokenizer:
        if not made:
            made.append(LightTokenizer(directory))
        return made[0]

    return make
