"""What the operator is told of a renderer that cannot do all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from qwen_tokenizer import qwen_renderer

from console.capture.journal import CallJournal
from console.capture.rendering import PolicyRenderer
from console.capture.server import Capture
from console.capture.settings import CallSettings


@pytest.mark.parametrize(
    ("name", "history", "said"),
    [("qwen3_5", "keep", []), ("qwen3_5", "template", []), ("role_colon", "keep", ["role_colon has no token bridge"])],
)
async def test_a_renderer_without_a_bridge_is_told(name: str, history: Any, said: list[str], tmp_path: Path) -> None:
    renderer = PolicyRenderer(qwen_renderer(name), name=name, history_thinking=history)
    capture = Capture(renderer=renderer, journal=CallJournal(tmp_path), settings=CallSettings())
    warnings = capture.warnings()
    assert len(warnings) == len(said) and all(words in warning for words, warning in zip(said, warnings))
