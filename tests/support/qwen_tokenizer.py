"""An offline tokenizer like Qwen's: a real vocabulary of 100k merges, Qwen's way to split words, Qwen's added tokens.

The vocabulary is cl100k's, from the file that litellm ships; Qwen's own would need a download. Made once a machine and
kept in a directory of the user.
"""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
PLAIN_TOKENS = (
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
"""Added tokens whose `special` flag is false, as in Qwen's files."""

_VOCABULARY = Path("litellm_core_utils", "tokenizers", "9b5ad71b2ce5302211f9c61530b329a4922fc6a4")
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def tokenizer_directory() -> Path:
    """Where the tokenizer's files lie; made on first use, in some seconds."""
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    directory = Path(tempfile.gettempdir()) / f"quarterdeck-tests-{os.getuid()}" / f"qwen-{version}"
    if not (directory / "tokenizer_config.json").exists():
        directory.parent.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
            made = Path(scratch) / "made"
            _make(made)
            # Another process may have been faster; its directory is as good.
            if not directory.exists():
                try:
                    made.rename(directory)
                except OSError:
                    if not directory.exists():
                        raise
    return directory


@cache
def qwen_tokenizer() -> Any:
    """The tokenizer, a `PreTrainedTokenizerFast`; one a process."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(str(tokenizer_directory()))


def qwen_renderer(name: str = "qwen3_5") -> Any:
    """A renderer of the cookbook with this tokenizer."""
    from tinker_cookbook.renderers import get_renderer

    return get_renderer(name, qwen_tokenizer(), model_name="Qwen/offline")


def _make(directory: Path) -> None:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary, merges = _vocabulary()
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, fuse_unk=False, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), "isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in PLAIN_TOKENS])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=262144,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(str(directory))


def _vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Tokens with their ids, and the merges in order of rank, both in the byte-level alphabet."""
    import importlib.util

    spec = importlib.util.find_spec("litellm")
    assert spec is not None and spec.origin is not None
    ranks: dict[bytes, int] = {}
    for line in (Path(spec.origin).parent / _VOCABULARY).read_bytes().splitlines():
        if line.strip():
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
    letter = _byte_letters()
    merges: list[tuple[int, int, int, bytes, bytes]] = []
    for token, rank in ranks.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ranks and right in ranks:
                merges.append((rank, ranks[left], ranks[right], left, right))
    merges.sort()

    def spelled(token: bytes) -> str:
        return "".join(letter[byte] for byte in token)

    vocabulary = {spelled(token): rank for token, rank in ranks.items()}
    return vocabulary, [(spelled(left), spelled(right)) for *_, left, right in merges]


def _byte_letters() -> dict[int, str]:
    """The printable letter that stands for each byte in byte-level vocabularies."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
