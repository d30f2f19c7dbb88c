"""What became of a trial: its result.json in any version's shape, and what lies beside it when there is none."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from console.records.harbor.config import timed_out_after, told
from console.records.harbor.files import NoFileError, clean, read_ends, read_whole
from console.records.harbor.model import Phase, RecordedError, Rewards
from console.records.harbor.times import seconds, settle, stamp
from console.records.harbor.values import (
    NOTHING,
    CorruptError,
    Scalar,
    both_ends,
    built,
    count,
    number,
    parse,
    table,
    text,
)

MESSAGE = 20_000
TRACEBACK = 8_000
STEPS = 1_000
REWARD_KEYS = 100
REWARD_FILE_LIMIT = 64 << 10

_PHASES = {"environment": "environment_setup", "setup": "agent_setup", "agent": "agent_execution", "verify": "verifier"}
_HEADER = "Traceback (most recent call last):"
_CHAINED = re.compile(r"^(?:During handling of the above exception|The above exception was the direct cause)", re.M)
_RAISED = re.compile(r"([A-Za-z_][\w.]*)(?::\s?(.*))?\Z", re.S)


class _Context(msgspec.Struct):
    # Only these are decoded: the token ids beside them may take most of a result.
    n_input_tokens: Scalar = None
    n_cache_tokens: Scalar = None
    n_output_tokens: Scalar = None
    cost_usd: Scalar = None


class _Error(msgspec.Struct):
    exception_type: Scalar = None
    exception_message: Scalar = None
    exception_traceback: Scalar = None
    occurred_at: Scalar = None


class _Timing(msgspec.Struct):
    started_at: Scalar = None
    finished_at: Scalar = None


class _Step(msgspec.Struct):
    step_name: Scalar = None
    agent_result: _Context | Scalar = None
    exception_info: _Error | Scalar = None
    agent_execution: _Timing | Scalar = None
    verifier: _Timing | Scalar = None


class _Model(msgspec.Struct):
    name: Scalar = None
    provider: Scalar = None


class _Info(msgspec.Struct):
    name: Scalar = None
    version: Scalar = None
    model_info: _Model | Scalar = None


class _Result(msgspec.Struct):
    # What may be of any shape is decoded once it is known to be small: fifty megabytes of `{},` would take gigabytes.
    task_name: Scalar = None
    trial_name: Scalar = None
    source: Scalar = None
    task_checksum: Scalar = None
    config: msgspec.Raw = NOTHING
    agent_info: _Info | Scalar = None
    agent_result: _Context | Scalar = None
    verifier_result: msgspec.Raw = NOTHING
    exception_info: _Error | Scalar = None
    started_at: Scalar = None
    finished_at: Scalar = None
    environment_setup: _Timing | Scalar = None
    agent_setup: _Timing | Scalar = None
    agent_execution: _Timing | Scalar = None
    verifier: _Timing | Scalar = None
    step_results: list[_Step] | Scalar = None


_DECODER = msgspec.json.Decoder(_Result)
_SHAPELESS = ("config", "verifier_result")


def parse_result(data: bytes) -> dict[str, Any]:
    """The document's top-level values, without what a record has no use for. Raises CorruptError."""
    value = parse(data, _DECODER)
    document: dict[str, Any]
    if isinstance(value, _Result):
        if isinstance(value.step_results, list):
            del value.step_results[STEPS:]
        fields = msgspec.structs.asdict(value)
        shapeless = [fields.pop(name) for name in _SHAPELESS]
        document = msgspec.to_builtins(fields) | dict(zip(_SHAPELESS, built(shapeless)))
    elif isinstance(value, dict):
        document = value
    else:
        raise CorruptError("holds no JSON object")
    if not any(document.get(key) for key in ("task_name", "trial_name", "config")):
        raise CorruptError("is no result of a trial")
    return document


def fields_of(result: dict[str, Any]) -> dict[str, Any]:
    """Fields of a TrialRecord out of a result, its configuration included."""
    steps = [table(step) for step in _list(result.get("step_results"))[:STEPS]]
    phases = _phases(result, steps)
    errors, ended = _errors(result, steps)
    fields = told(table(result.get("config")))
    info = table(result.get("agent_info"))
    model = table(info.get("model_info"))
    last = max((error.at for error in errors if error.at is not None), default=None)
    fields |= {
        "errors": errors,
        "rewards": read_rewards(result.get("verifier_result")),
        "phases": phases,
        "began": seconds(result.get("started_at")),
        "ended": ended if ended is not None else last,
        "ended_from": "result" if ended is not None or last is None else "error",
        "checksum": text(result.get("task_checksum")) or None,
        "steps": len(steps),
        "agent_version": text(info.get("version")),
        **_used(result, steps),
    }
    limits = (timed_out_after(error.message) for error in errors if error.type == "AgentTimeoutError")
    fields["agent_timeout"] = next((limit for limit in limits if limit), fields.get("agent_timeout"))
    told_here = {
        "name": text(result.get("trial_name")),
        "task": text(result.get("task_name")),
        "dataset": text(result.get("source")),
        "agent": text(info.get("name")),
    }
    fields |= {key: value for key, value in told_here.items() if value}
    named = [part for part in (text(model.get("provider")), text(model.get("name"))) if part]
    fields.setdefault("model", "/".join(named))
    return fields


def read_rewards(value: object) -> Rewards | None:
    """The rewards of a verifier's result as written; None without any."""
    rewards = value.get("rewards") if isinstance(value, dict) else None
    return _rewards(rewards) if isinstance(rewards, dict) else None


def file_rewards(dir_fd: int) -> Rewards | None:
    """What the verifier's own file says: reward.json before reward.txt, as for Harbor; None when it says nothing."""
    try:
        data = read_whole(dir_fd, "verifier/reward.json", REWARD_FILE_LIMIT)
        if data is not None:
            value = parse(data)
            return _rewards(value if isinstance(value, dict) else {"reward": value})
        data = read_whole(dir_fd, "verifier/reward.txt", REWARD_FILE_LIMIT)
    except (NoFileError, CorruptError):
        return None
    word = (data or b"").decode("utf-8", "replace").strip()
    try:
        return _rewards({"reward": float(word)}) if word else None
    except ValueError:
        return _rewards({"reward": word})


def file_errors(dir_fd: int) -> tuple[RecordedError, ...]:
    """The exception that exception.txt tells, for a trial without a result."""
    data = read_ends(dir_fd, "exception.txt", 512 << 10, 64 << 10)
    if data is None or not data.strip():
        return ()
    written = data.decode("utf-8", "replace").strip("\n")
    kind, message = _raised(written)
    return (
        RecordedError(
            type=kind, message=both_ends(message, MESSAGE), traceback=written[-TRACEBACK:], file="exception.txt"
        ),
    )


def _raised(written: str) -> tuple[str, str]:
    """Bare type and message of a formatted exception: of a chain, those of the last one."""
    chained = list(_CHAINED.finditer(written))
    last = written[chained[-1].end() :] if chained else written
    _, header, body = last.partition(_HEADER)
    lines = (body if header else last).splitlines()
    if header:
        while lines and (not lines[0].strip() or lines[0][0] == " "):
            lines.pop(0)
    found = _RAISED.match("\n".join(lines))
    if not found or "\n" in found[1]:
        return "Exception", "\n".join(lines)
    return text(found[1].rsplit(".", 1)[-1]), found[2] or ""


def _rewards(rewards: dict[str, Any]) -> Rewards:
    return {text(key): _reward(value) for key, value in list(rewards.items())[:REWARD_KEYS]}


def _reward(value: object) -> float | str | bool | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        try:
            found = float(value)
        except OverflowError:
            found = math.inf if value > 0 else -math.inf
        return found if math.isfinite(found) else str(found)
    return text(value) if isinstance(value, str) else f"<{type(value).__name__}>"


def _errors(result: dict[str, Any], steps: list[dict[str, Any]]) -> tuple[tuple[RecordedError, ...], float | None]:
    """The errors, and when the trial ended."""
    ended = seconds(result.get("finished_at"))
    infos = [(result.get("exception_info"), "")]
    infos += [(step.get("exception_info"), text(step.get("step_name")) or str(at)) for at, step in enumerate(steps)]
    found = [_error(info, step, result, ended) for info, step in infos if info]
    return tuple(found), ended


def _error(value: object, step: str, result: dict[str, Any], ended: float | None) -> RecordedError:
    info = table(value) or {"exception_message": value}
    moment = stamp(info.get("occurred_at"))
    at = None
    if moment is not None:
        began = stamp(result.get("started_at"))
        # Until 0.26 errors have the wall clock of the machine although the trial's own times have a zone.
        zoned = not moment[1] and began is not None and began[1]
        at = settle(moment[0], began[0], ended) if zoned and began else moment[0]
    traceback = info.get("exception_traceback")
    return RecordedError(
        type=text(info.get("exception_type")).rsplit(".", 1)[-1] or "Exception",
        message=both_ends(info.get("exception_message"), MESSAGE),
        traceback=clean(traceback[-TRACEBACK:]) if isinstance(traceback, str) else "",
        at=at,
        step=step,
    )


def _phases(result: dict[str, Any], steps: list[dict[str, Any]]) -> dict[str, Phase]:
    phases = {}
    for name, key in _PHASES.items():
        phase = _phase(result.get(key))
        if phase is None:
            # A multi-step trial has its agent's and verifier's times in its steps.
            parts = [part for step in steps if (part := _phase(step.get(key)))]
            began = min((part.began for part in parts if part.began is not None), default=None)
            ended = max((part.ended for part in parts if part.ended is not None), default=None)
            phase = Phase(began=began, ended=ended) if parts else None
        if phase is not None:
            phases[name] = phase
    return phases


def _phase(value: object) -> Phase | None:
    timing = table(value)
    began, ended = seconds(timing.get("started_at")), seconds(timing.get("finished_at"))
    return None if began is None and ended is None else Phase(began=began, ended=ended)


def _used(result: dict[str, Any], steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Tokens and cost of the agent, of all steps when the trial has some."""
    contexts = [table(result.get("agent_result"))]
    if not contexts[0]:
        contexts = [table(step.get("agent_result")) for step in steps]
    names = {"input_tokens": "n_input_tokens", "cached_tokens": "n_cache_tokens", "output_tokens": "n_output_tokens"}
    used: dict[str, Any] = {}
    for field, key in names.items():
        counts = [tokens for context in contexts if (tokens := count(context.get(key))) is not None]
        used[field] = count(sum(counts)) if counts else None
    costs = [cost for context in contexts if (cost := number(context.get("cost_usd"))) is not None]
    used["cost_usd"] = number(sum(costs)) if costs else None
    return used


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
