"""What an agent did, out of its trajectory: cheap facts, and None wherever it does not tell.

The format is ATIF, the trajectory format that Harbor's agents write to agent/trajectory.json (versions 1.0 to 1.8).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from console.records.harbor.files import NoFileError, directory, read_whole
from console.records.harbor.times import seconds
from console.records.harbor.values import CorruptError, Scalar, count, parse

LIMIT = 32 << 20
STEPS = 50
_NAME = "agent/trajectory.json"
_REASONING = ("reasoning_tokens", "total_reasoning_tokens", "reasoning_output_tokens")


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """What a trial's trajectories say.

    Attributes:
        steps: turns of the agent, those copied from an earlier trajectory not counted; tool_calls: that it made.
        reasoning_tokens: of all turns, None when the agent does not count them.
        last_step: when the last step began to be recorded, seconds since 1970 (UTC), None without times.
        problem: one line when a trajectory could not be read, "" otherwise.
    """

    steps: int | None = None
    tool_calls: int | None = None
    reasoning_tokens: int | None = None
    last_step: float | None = None
    problem: str = ""


class _Call(msgspec.Struct, gc=False):
    """A tool call, which is only counted."""


class _Details(msgspec.Struct):
    reasoning_tokens: Scalar = None
    total_reasoning_tokens: Scalar = None
    reasoning_output_tokens: Scalar = None


class _Extra(_Details):
    completion_tokens_details: _Details | Scalar = None
    output_tokens_details: _Details | Scalar = None


class _Metrics(msgspec.Struct):
    extra: _Extra | Scalar = None
    reasoning_tokens: Scalar = None


class _Step(msgspec.Struct):
    # Messages, observations and token ids are skipped while decoding: they may be tens of megabytes.
    source: Scalar = None
    timestamp: Scalar = None
    tool_calls: list[_Call] | None = None
    metrics: _Metrics | None = None
    is_copied_context: Scalar = None


class _Final(msgspec.Struct):
    extra: _Extra | Scalar = None


class _Trajectory(msgspec.Struct):
    steps: list[_Step] = []
    final_metrics: _Final | None = None


_DECODER = msgspec.json.Decoder(_Trajectory)


def activity(trial_path: Path) -> Activity:
    """The facts of agent/trajectory.json, or of those of all steps of a multi-step trial. Nothing is raised."""
    found: list[Activity] = []
    problem = ""
    try:
        with directory(trial_path) as dir_fd:
            for name in (_NAME, *(f"steps/{step}/{_NAME}" for step in _steps(dir_fd))):
                try:
                    data = read_whole(dir_fd, name, LIMIT)
                    if data is not None:
                        found.append(_facts(parse(data, _DECODER)))
                except NoFileError as error:
                    problem = problem or str(error)
                except CorruptError as error:
                    problem = problem or f"{name} {error}"
    except OSError:
        return Activity()
    return Activity(
        steps=_total([one.steps for one in found]),
        tool_calls=_total([one.tool_calls for one in found]),
        reasoning_tokens=_total([one.reasoning_tokens for one in found]),
        last_step=max((one.last_step for one in found if one.last_step is not None), default=None),
        problem=problem,
    )


def _facts(trajectory: Any) -> Activity:
    if not isinstance(trajectory, _Trajectory):
        # Right JSON of a wrong shape: nothing in it can be believed.
        raise CorruptError("is no trajectory")
    turns = [step for step in trajectory.steps if step.source == "agent" and not step.is_copied_context]
    times = [at for step in trajectory.steps if (at := seconds(step.timestamp)) is not None]
    reasoning = [tokens for step in turns if (tokens := _reasoning(step.metrics)) is not None]
    total = _total(reasoning)
    if total is None and trajectory.final_metrics is not None:
        total = _named(trajectory.final_metrics.extra)
    return Activity(
        steps=len(turns),
        tool_calls=sum(len(step.tool_calls or ()) for step in turns),
        reasoning_tokens=total,
        last_step=max(times, default=None),
    )


def _reasoning(metrics: _Metrics | None) -> int | None:
    if metrics is None:
        return None
    plain = count(metrics.reasoning_tokens)
    return plain if plain is not None else _named(metrics.extra)


def _named(extra: object) -> int | None:
    """Reasoning tokens among an agent's own metrics, which carry the provider's usage flat or under its details."""
    if not isinstance(extra, _Extra):
        return None
    for part in (extra, extra.completion_tokens_details, extra.output_tokens_details):
        if isinstance(part, _Details):
            for name in _REASONING:
                found = count(getattr(part, name))
                if found is not None:
                    return found
    return None


def _steps(dir_fd: int) -> list[str]:
    try:
        fd = os.open("steps", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    except OSError:
        return []
    try:
        return sorted(os.listdir(fd))[:STEPS]
    finally:
        os.close(fd)


def _total(values: list[int | None] | list[int]) -> int | None:
    known = [value for value in values if value is not None]
    return count(sum(known)) if known else None
