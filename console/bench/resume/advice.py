"""A prediction in words: the verdict on one line, and what to do instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from console.bench.resume.model import Prediction
from console.bench.resume.versions import numbers
from console.records.harbor.files import shown

TIMEOUT = "AgentTimeoutError"
_BROKEN = ("empty_result", "corrupt_result", "unreadable")


def command_of(prediction: Prediction) -> str:
    """What would be typed, for a sentence."""
    return "harbor job resume" if prediction.way == "resume" else "harbor run"


def verdict_of(prediction: Prediction) -> str:
    """What would happen, the worst first."""
    deleted = len(prediction.deleted)
    gone = f", after deleting {_count(deleted, 'directory', 'directories')}" if deleted else ""
    refusal = prediction.refusal
    if refusal is not None:
        return f"refuses ({refusal.error}){gone}: {refusal.why}"
    runs = prediction.to_run
    if prediction.elsewhere:
        trials = _count(runs, "trial")
        return f"runs {trials} in {shown(prediction.output_dir)}, and nothing of this directory counts{gone}"
    if prediction.again:
        return f"runs {_count(runs, 'trial')}, and {_count(len(prediction.again), 'finished trial')} would not count"
    kept = _count(len(prediction.kept), "trial")
    parts = [f"keeps {kept}"]
    if deleted:
        parts.append(f"deletes {_count(deleted, 'directory', 'directories')}")
    parts.append(f"runs {_count(runs, 'trial')}" if runs else "runs nothing")
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]


def is_safe(prediction: Prediction) -> bool:
    """It would run, here, no finished trial is run again, and nothing but trials is deleted."""
    users = any(each.reason == "not_a_trial" for each in prediction.deleted)
    return prediction.refusal is None and not prediction.elsewhere and not prediction.again and not users


def alike(one: Prediction, other: Prediction) -> bool:
    """Both say the same, whatever the version."""
    same = (one.directories, one.runs, one.output_dir) == (other.directories, other.runs, other.output_dir)
    first, second = one.refusal, other.refusal
    if first is None or second is None:
        return same and first is second
    return same and (first.stage, first.error, first.differs) == (second.stage, second.error, second.differs)


def advice_of(predictions: Sequence[Prediction], filter_types: Sequence[str] = ()) -> list[str]:
    """What to do, a line each; empty when there is nothing to say."""
    return list(dict.fromkeys(_advice(predictions, filter_types)))


def _advice(predictions: Sequence[Prediction], filter_types: Sequence[str]) -> Iterator[str]:
    job = shown(predictions[0].job_dir)
    mop_up = f"quarterdeck bench mop-up {job}"
    if TIMEOUT in filter_types:
        yield f"{TIMEOUT} is a result, no fault of the infrastructure: trials that had one would be rolled again"
    for prediction in predictions:
        users = [shown(each.name) for each in prediction.deleted if each.reason == "not_a_trial"]
        if users:
            yield f"not trials, and deleted with all they hold: {_some(users)}; move them out first"
        half = [each for each in prediction.deleted if each.reason == "no_result"]
        if half:
            yield f"logs of {_count(len(half), 'trial')} without result.json would be lost: copy them first"
        if any(each.reason in _BROKEN for each in prediction.left):
            yield "a trial whose result cannot be read is run again, and its directory stays beside the new one"
        duplicates = [shown(each.name) for each in prediction.left if each.reason == "duplicate"]
        if duplicates:
            yield f"move the copies out: {_some(duplicates)}; a trial counts once"
    if all(is_safe(each) for each in predictions):
        if any(each.runs for each in predictions):
            yield f"without touching the directory, what is missing runs in a job of its own: {mop_up}"
        return
    for prediction in predictions:
        if prediction.elsewhere:
            yield from _elsewhere(prediction)
        elif prediction.refusal is not None and prediction.refusal.error == "FileNotFoundError":
            yield "type it where the job was started: its paths are looked for from the working directory"
    good = [each.version for each in predictions if is_safe(each)]
    if good:
        yield f"Harbor {good[0]} would go on with it"
    yield f"run what is missing in a job of its own, which deletes nothing and takes another endpoint: {mop_up}"


def _elsewhere(prediction: Prediction) -> Iterator[str]:
    """Before 0.25 the directory that counts is the one that config.json names, from the working directory."""
    job, output, cwd = (Path(each) for each in (prediction.job_dir, prediction.output_dir, prediction.cwd))
    if numbers(prediction.version) < (0, 25) and output.is_relative_to(cwd):
        written = output.relative_to(cwd)
        if job.parts[-len(written.parts) :] == written.parts:
            start = Path(*job.parts[: -len(written.parts)])
            yield f"with Harbor before 0.25 type it in {shown(start)}, from where {shown(written)} is this directory"
            return
    yield "Harbor from 0.25 on takes the directory that it is given"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
