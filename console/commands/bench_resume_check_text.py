"""How `quarterdeck bench resume-check` answers: the verdict, the table, the advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from console.bench.resume.advice import advice_of, alike, command_of, is_safe, verdict_of
from console.bench.resume.model import Directory, Prediction, Reason
from console.commands.bench_text import clean, columns, laid_out, paragraph, path_text

LISTED = 12
"""Directories, tasks or differences that are named one by one."""
_REASONS: dict[Reason, str] = {
    "matched": "stands",
    "filtered": "filtered",
    "no_result": "a trial without result.json",
    "not_a_trial": "no trial: a directory of yours",
    "empty_result": "result.json is empty",
    "corrupt_result": "result.json cannot be parsed",
    "unreadable": "result.json cannot be read",
    "differs": "finished, and not as it is planned now",
    "duplicate": "one more than the job has of its task",
    "not_reached": "not looked at",
}
_STAGES = {
    "start": "before anything is planned",
    "plan": "while the job is planned",
    "run": "when it would begin; config.json is written anew before",
}


def as_json(predictions: Sequence[Prediction], wrote: str, installed: str, types: Sequence[str]) -> dict[str, Any]:
    """One object: for each version its verdict and all that it stands on."""
    return {
        "v": 1,
        "job_dir": predictions[0].job_dir,
        "wrote": wrote,
        "installed": installed,
        "filter": list(types),
        "agree": all(alike(predictions[0], each) for each in predictions),
        "predictions": [_object(each) for each in predictions],
        "advice": advice_of(predictions, types),
    }


def _object(prediction: Prediction) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(prediction)
    counts = {
        "kept": len(prediction.kept),
        "deleted": len(prediction.deleted),
        "left": len(prediction.left),
        "to_run": prediction.to_run,
        "again": len(prediction.again),
        "elsewhere": prediction.elsewhere,
    }
    return {"verdict": verdict_of(prediction), "safe": is_safe(prediction), **counts, **told}


def as_text(predictions: Sequence[Prediction], wrote: str, installed: str, types: Sequence[str]) -> Iterator[str]:
    """For a terminal."""
    width = columns()
    different = _different(predictions)
    for prediction in different:
        yield from paragraph(f"{_subject(prediction, different, wrote)} {verdict_of(prediction)}", width, then="  ")
    yield ""
    yield path_text(predictions[0].job_dir, width)
    yield from paragraph(_versions(predictions, different, wrote, installed), width)
    yield ""
    yield from _table(different, wrote, installed, width)
    for prediction in different:
        of = f" ({prediction.version})" if len(different) > 1 else ""
        yield from _differences(prediction, of, width)
        yield from _directories(prediction, of, width)
        yield from _runs(prediction, of, width)
    yield from _lines("not sure", [line for each in different for line in each.unsure], width)
    yield from _lines("to know", [line for each in different for line in each.notes], width)
    yield from _lines("what to do", advice_of(predictions, types), width)


def _different(predictions: Sequence[Prediction]) -> list[Prediction]:
    """One of each kind, the one that Harbor was asked for before those that were read."""
    found: list[Prediction] = []
    for prediction in sorted(predictions, key=lambda each: not each.asked):
        if not any(alike(prediction, other) for other in found):
            found.append(prediction)
    return [each for each in predictions if each in found]


def _subject(prediction: Prediction, different: Sequence[Prediction], wrote: str) -> str:
    if len(different) == 1:
        return command_of(prediction)
    return (
        f"{command_of(prediction)} of {prediction.version}{' (which wrote it)' if prediction.version == wrote else ''}"
    )


def _versions(predictions: Sequence[Prediction], different: Sequence[Prediction], wrote: str, installed: str) -> str:
    parts = [
        f"written by Harbor {wrote}" if wrote else "no lock tells which Harbor wrote it",
        f"{installed} is installed here" if installed else "none is installed here",
    ]
    if len(predictions) == 1:
        parts.append(f"told for {predictions[0].version}")
    elif len(different) == 1:
        parts.append("both would do the same")
    return "; ".join(parts)


def _table(predictions: Sequence[Prediction], wrote: str, installed: str, width: int) -> Iterator[str]:
    def head(prediction: Prediction) -> str:
        said = [
            name for name, version in (("wrote it", wrote), ("installed", installed)) if version == prediction.version
        ]
        return f"{prediction.version} ({', '.join(said)})" if said else prediction.version

    cells: list[tuple[str, Callable[[Prediction], str]]] = [
        ("", head),
        ("kept", lambda each: f"{len(each.kept):,}"),
        ("deleted", lambda each: f"{len(each.deleted):,}"),
        ("left, not counted", lambda each: f"{len(each.left):,}"),
        ("to run", lambda each: "-" if each.refusal else f"{each.to_run:,}"),
        ("refuses", lambda each: f"{each.refusal.error}, {each.refusal.stage}" if each.refusal else "no"),
        ("results go", lambda each: "elsewhere" if each.elsewhere else "here"),
        ("told by", lambda each: "Harbor itself" if each.asked else "its files"),
    ]
    yield from laid_out([[name, *(cell(each) for each in predictions)] for name, cell in cells], width)
    for prediction in predictions:
        if prediction.elsewhere:
            yield f"results of {clean(prediction.version, 20)} go to {path_text(prediction.output_dir, width - 30)}"


def _differences(prediction: Prediction, of: str, width: int) -> Iterator[str]:
    refusal = prediction.refusal
    if refusal is None:
        return
    yield ""
    yield from paragraph(f"why it refuses{of}: {refusal.error} {_STAGES[refusal.stage]}", width)
    yield from paragraph(refusal.why, width, "  ")
    for line in refusal.differs[:LISTED]:
        yield from paragraph(line, width, "    ")
    if len(refusal.differs) > LISTED:
        yield f"    and {len(refusal.differs) - LISTED} more"


def _directories(prediction: Prediction, of: str, width: int) -> Iterator[str]:
    for title, chosen in (("deleted", prediction.deleted), ("left", prediction.left)):
        if not chosen or all(each.reason == "not_reached" for each in chosen):
            continue
        yield ""
        yield f"{title}{of}"
        shown = sorted(chosen, key=lambda each: (each.finished, each.name))
        yield from laid_out([_row(each) for each in shown[:LISTED]], width, 1)
        if len(shown) > LISTED:
            more = Counter(_REASONS[each.reason] for each in shown[LISTED:])
            yield "  and " + ", ".join(f"{number:,} more: {said}" for said, number in more.items())


def _row(directory: Directory) -> list[str]:
    why = _REASONS[directory.reason]
    return ["", clean(directory.name, 60), f"{why} ({directory.exception})" if directory.reason == "filtered" else why]


def _runs(prediction: Prediction, of: str, width: int) -> Iterator[str]:
    if not prediction.runs:
        return
    yield ""
    yield f"to run{of}"
    rows = [["", clean(each.task, 40), clean(each.agent, 30), f"{each.trials:,}", each.why] for each in prediction.runs]
    yield from laid_out(rows[:LISTED], width, 4, right=(3,))
    if len(rows) > LISTED:
        rest = prediction.runs[LISTED:]
        yield f"  and {sum(each.trials for each in rest):,} trials of {len(rest):,} more"


def _lines(title: str, lines: Sequence[str], width: int) -> Iterator[str]:
    once = list(dict.fromkeys(lines))
    if not once:
        return
    yield ""
    yield title
    for line in once:
        yield from paragraph(line, width, "  ")
