"""Captured tokens of a run as rows for people's own training and analysis: one a segment, or one a call.

Rows are plain values, ready for JSON. They hold ids and numbers, and none of the texts.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from pathlib import Path

import msgspec

from console.errors import RecordingError
from console.journal import events as ev
from console.records.capture_frames import split_name
from console.records.captured_calls import CapturedTrialFile, KeptCall, trial_files
from console.records.run_dir import RunRecord
from console.state.lines import trial_name

Row = dict[str, object]
Place = tuple[int, int, int, int]
"""Step, group, trial and try, all from 0."""
_KEY = re.compile(r"s(\d{1,9})\.g(\d{1,9})\.t(\d{1,9})\.y(\d{1,9})")


class Selection(msgspec.Struct, kw_only=True, frozen=True):
    """Which tries are wanted, None for any; without `all_tries` the one of each trial that counts."""

    step: int | None = None
    group: int | None = None
    trial: int | None = None
    all_tries: bool = False


class TrialFacts(msgspec.Struct):
    """What the journal says of tries.

    Attributes:
        run_id: of the run; tasks: by step and group; ends: of each try that has ended, the last time it did.
        counts: by step, group and trial, which try counts: the last one of the last engine that ran the trial.
        called: tries that made model calls, so that there should be a file of each.
    """

    run_id: str = ""
    tasks: dict[tuple[int, int], str] = {}
    ends: dict[Place, ev.TrialFinished] = {}
    counts: dict[tuple[int, int, int], int] = {}
    called: set[Place] = set()


class Counts(msgspec.Struct):
    """What was exported, and what was not.

    Attributes:
        trials, segments, calls: exported; tokens, sampled: of all segments, and those of them that were sampled.
        excluded: answered calls that are not trained, by reason; failed: calls that were not answered.
        unfinished: calls without an outcome; unsealed: tries without an end; torn: files that end within a record.
    """

    trials: int = 0
    segments: int = 0
    calls: int = 0
    tokens: int = 0
    sampled: int = 0
    excluded: dict[str, int] = {}
    failed: int = 0
    unfinished: int = 0
    unsealed: int = 0
    torn: int = 0


def trial_facts(record: RunRecord) -> TrialFacts:
    """What the journal knows. Raises RecordingError."""
    facts = TrialFacts()
    engine = 0
    ran: dict[tuple[int, int, int], tuple[int, int]] = {}
    ended: dict[Place, int] = {}
    for event in record.journal.events(0, record.journal.last_seq):
        match event:
            case ev.RunStarted():
                engine += 1
                facts.run_id = event.run_id
            case ev.GroupStarted():
                facts.tasks[event.step, event.group] = event.task
            case ev.TrialPhase() | ev.TrialTurn() | ev.TrialFinished():
                trial = (event.step, event.group, event.trial)
                ran[trial] = max(ran.get(trial, (0, 0)), (engine, event.try_))
                place = (*trial, event.try_)
                if isinstance(event, ev.TrialTurn) or (isinstance(event, ev.TrialFinished) and event.turns):
                    facts.called.add(place)
                if isinstance(event, ev.TrialFinished):
                    facts.ends[place], ended[place] = event, engine
                elif ended.get(place, engine) != engine:
                    del facts.ends[place], ended[place]  # a later engine does it again
    facts.counts = {trial: try_ for trial, (_, try_) in ran.items()}
    return facts


def place_of(path: Path) -> Place | None:
    """Where in the run a file's try stands; None when its name does not say."""
    named = split_name(path.name)
    found = _KEY.fullmatch(named[0]) if named is not None else None
    if found is None:
        return None
    step, group, trial, try_ = map(int, found.groups())
    return step, group, trial, try_


def chosen_files(run_dir: Path, wanted: Selection, facts: TrialFacts) -> list[tuple[Place, Path]]:
    """The files that are wanted, in order of step, group, trial and try. Raises OSError."""
    found = {
        place: path
        for path in trial_files(run_dir, wanted.step)
        if (place := place_of(path)) is not None
        and wanted.group in (None, place[1])
        and wanted.trial in (None, place[2])
    }
    if not wanted.all_tries:
        last: dict[tuple[int, int, int], int] = {}
        for step, group, trial, try_ in sorted(found):
            last[step, group, trial] = try_
        last |= {trial: try_ for trial, try_ in facts.counts.items() if (*trial, try_) in found}
        found = {place: path for place, path in found.items() if last[place[:3]] == place[3]}
    return sorted(found.items())


def missing(wanted: Selection, facts: TrialFacts, files: list[tuple[Place, Path]]) -> list[str]:
    """Names of the files that are wanted, that the journal knows of, and that are not there."""
    there = {place for place, _ in files}
    return [
        f"s{step}.g{group}.t{trial}.y{try_}"
        for step, group, trial, try_ in sorted(facts.called - there)
        if wanted.step in (None, step)
        and wanted.group in (None, group)
        and wanted.trial in (None, trial)
        and (wanted.all_tries or facts.counts[step, group, trial] == try_)
    ]


def token_rows(
    place: Place, file: CapturedTrialFile, facts: TrialFacts, counts: Counts, by_call: bool
) -> Iterator[Row]:  # fmt: skip
    """Rows of one try, whose file was looked at; `counts` grows with them. Raises RecordingError, OSError."""
    head = _head(place, file, facts)
    segments = file.segments()
    counts.trials += 1
    counts.torn += file.torn > 0
    counts.unsealed += file.sealed is None
    for reason, number in (file.sealed.excluded if file.sealed is not None else {}).items():
        counts.excluded[reason] = counts.excluded.get(reason, 0) + number
    uses: dict[str, tuple[str | None, int | None]]
    uses = {node: ("trained", number) for number, segment in enumerate(segments) for node in segment.nodes}
    if file.sealed is not None:
        for reason, nodes in file.sealed.excluded_nodes.items():
            uses |= dict.fromkeys(nodes, (reason, None))
    for call in file if by_call else ():
        yield head | _call_row(call, *uses.get(call.intent.node, (None, None)))
    for number, segment in enumerate(segments):
        whole = file.segment(segment.nodes)
        counts.segments += 1
        counts.calls += len(segment.nodes)
        counts.tokens += len(whole.tokens_T)
        counts.sampled += whole.mask_T.count(1)
        if not by_call:
            logprobs = _floats(whole.logprobs_T)
            yield head | {
                "segment": number, "segments": len(segments), "kind": segment.kind, "reason": segment.reason,
                "nodes": segment.nodes, "tokens": whole.tokens_T.tolist(), "mask": list(whole.mask_T),
                "logprobs": [one if sampled else None for one, sampled in zip(logprobs, whole.mask_T, strict=True)],
            }  # fmt: skip
    unanswered = len(file) - file.answered
    unfinished = len(file.open_calls())
    counts.unfinished += unfinished
    counts.failed += unanswered - unfinished


def _head(place: Place, file: CapturedTrialFile, facts: TrialFacts) -> Row:
    step, group, trial, try_ = place
    end, opened = facts.ends.get(place), file.opened
    return {
        "run": facts.run_id or None, "step": step, "group": group, "trial": trial, "try": try_,
        "name": trial_name(group, trial), "task": facts.tasks.get((step, group)),
        "outcome": end.outcome if end is not None else None, "cause": end.cause if end is not None else None,
        "reward": end.reward if end is not None else None,
        "policy_version": opened.policy_version if opened is not None else None,
        "model": opened.model if opened is not None else None,
        "renderer": opened.renderer if opened is not None else None, "sealed": file.sealed is not None,
    }  # fmt: skip


def _call_row(call: KeptCall, use: str | None, segment: int | None) -> Row:
    intent, outcome = call.intent, call.outcome
    row: Row = {
        "call": intent.call, "node": intent.node, "parent": intent.parent or None, "reason": intent.reason,
        "status": outcome.status if outcome is not None else None, "use": use, "segment": segment,
        "delivered": call.delivered, "ts": intent.ts, "seconds": outcome.seconds if outcome is not None else None,
        "dialect": intent.dialect, "max_tokens": intent.max_tokens, "temperature": intent.temperature,
        "top_p": intent.top_p, "top_k": intent.top_k, "seed": intent.seed, "prompt_tokens": intent.prompt_tokens,
        "malformed": outcome.malformed if outcome is not None else False,
    }  # fmt: skip
    try:
        prompt, tokens, logprobs = call.prompt_new(), call.tokens(), call.logprobs()
    except ValueError as error:
        raise RecordingError(f"ids of {intent.node} are torn") from error
    return row | {"prompt_new": prompt.tolist(), "tokens": tokens.tolist(), "logprobs": _floats(logprobs)}


def _floats(values: array[float]) -> list[float]:
    """The same, in seven digits where they give the stored 32 bits back, else in nine, which always do."""
    short = [float(f"{value:.7g}") for value in values]
    return [
        seven if back == value else float(f"{value:.9g}")
        for value, seven, back in zip(values, short, array("f", short), strict=True)
    ]


def summary(counts: Counts, by_call: bool) -> str:
    """One line about what was exported, and what was not."""
    trials = _many(counts.trials, "trial")
    parts = [
        f"calls of {trials}" if by_call else f"{_many(counts.segments, 'segment')} of {trials}",
        f"{_many(counts.calls, 'trained call')}, {counts.sampled} of {counts.tokens} tokens sampled",
    ]
    left_out = [f"{number} {reason}" for reason, number in sorted(counts.excluded.items()) if number]
    if left_out:
        parts.append(f"answered but not trained: {', '.join(left_out)}")
    if counts.failed:
        parts.append(f"{_many(counts.failed, 'call')} not answered")
    if counts.unfinished:
        parts.append(f"{_many(counts.unfinished, 'call')} without an outcome")
    if counts.unsealed:
        parts.append(f"{_many(counts.unsealed, 'trial')} not sealed: running, or its engine was killed")
    if counts.torn:
        parts.append(f"{_many(counts.torn, 'file')} ending within a record")
    return "; ".join(parts)


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
