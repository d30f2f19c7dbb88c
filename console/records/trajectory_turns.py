"""An agent's trajectory as a transcript: the turns of agent/trajectory.json (ATIF, which Harbor's agents write)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from console.control.messages import Ask, Content, Turn
from console.errors import RecordingError
from console.records.answer_room import Room
from console.records.calls import shortened
from console.records.harbor.times import seconds
from console.records.redact import redact
from console.records.trial_files import TrialDirs, read_block

READ_BYTES = 32 << 20
TEXT_CHARS = 64_000
TURNS = 20_000
_ROLES = {"agent": "assistant", "user": "user", "system": "system"}


def turns_of_trajectory(data: bytes) -> list[Turn]:
    """The turns, in order: of each step its message, with thought and tool calls, then what the tools answered.

    What is shaped like a key is hidden. Texts are cut at `TEXT_CHARS`, and not sanitised.

    Raises:
        RecordingError: it is no trajectory.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RecordingError("the agent's trajectory is not JSON") from error
    steps = found.get("steps") if isinstance(found, dict) else None
    if not isinstance(steps, list):
        raise RecordingError("the agent's trajectory has no steps")
    out: list[Turn] = []
    call = -1
    for step in steps:
        if not isinstance(step, dict):
            continue
        call += step.get("source") == "agent"
        out += _turns(redact(step), max(0, call))
        if len(out) >= TURNS:
            break
    return out[:TURNS]


def fill_trajectory(content: Content, ask: Ask, recorded: str, dirs: TrialDirs) -> None:
    """Put the turns from the cursor on into the answer, as many as fit. `recorded`: the trial's directory.

    Raises:
        RecordingError: it is no trajectory. OSError: it cannot be read.
    """
    name, content.note = dirs.locate(recorded, "")
    if name is None:
        return
    with dirs.open(name, "agent") as directory:
        block = None if directory is None else read_block("trajectory.json", directory, 0, READ_BYTES)
    if block is None:
        content.note = "the agent wrote no trajectory (agent/trajectory.json)"
        return
    if block[1] > READ_BYTES:
        content.note = f"the agent's trajectory has {block[1]} bytes, which is too long to show"
        return
    turns, room = turns_of_trajectory(block[0]), Room(ask.limit)
    start = max(0, len(turns) - max(1, ask.limit // 4)) if ask.cursor < 0 else ask.cursor
    content.calls = sum(turn.role == "assistant" for turn in turns)
    for turn in turns[start:]:
        if not room.take(turn):
            content.more = True
            break
        content.turns.append(turn)
        start += 1
    content.cursor = max(content.cursor, start)


def _turns(step: dict[str, Any], call: int) -> Iterator[Turn]:
    source = str(step.get("source"))
    metrics = step.get("metrics")
    metrics = metrics if isinstance(metrics, dict) else {}
    parts = [_text(step.get("message"))]
    if thought := _text(step.get("reasoning_content")):
        parts.insert(0, f"[thought]\n{thought}")
    for tool in step.get("tool_calls") or () if isinstance(step.get("tool_calls"), list) else ():
        if isinstance(tool, dict):
            parts.append(f"[{tool.get('function_name')}] {_text(tool.get('arguments'))}")
    text, cut = shortened("\n".join(part for part in parts if part), TEXT_CHARS)
    agent = source == "agent"
    if text or agent:
        yield Turn(
            call=call, role=_ROLES.get(source, "user"), text=text, cut=cut, ts=seconds(step.get("timestamp")),
            prompt_tokens=_count(metrics.get("prompt_tokens")) if agent else None,
            sampled_tokens=_count(metrics.get("completion_tokens")) if agent else None,
        )  # fmt: skip
    observation = step.get("observation")
    results = observation.get("results") if isinstance(observation, dict) else None
    for result in results if isinstance(results, list) else ():
        text, cut = shortened(_text(result.get("content")) if isinstance(result, dict) else _text(result), TEXT_CHARS)
        if text:
            yield Turn(call=call, role="tool", text=text, cut=cut)


def _text(value: object) -> str:
    """A message: text, or the texts of its parts; anything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(
            str(part.get("text") or f"[{part.get('type')}]") if isinstance(part, dict) else str(part) for part in value
        )
    return json.dumps(value, ensure_ascii=False, default=str)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
