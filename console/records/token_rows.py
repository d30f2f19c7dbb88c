"""Captured tokens of a run as rows for people's own training and analysis: one a segment, or one a call.

Rows are plain values, ready for JSON. They hold ids and numbers, and none of the texts.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from pathlib import Path

import msgspec

from console.errors import RecordingError
from console.journal import events as ev
from console.records.capture_paths import earlier_trial_files, place_of_file
from console.records.captured_calls import CapturedTrialFile, KeptCall, trial_files
from console.records.run_dir import RunRecord
from console.records.try_key import TrialPlace, TryPlace, place_of, try_key
from console.state.lines import trial_name

Row = dict[str, object]


class Selection(msgspec.Struct, kw_only=True, frozen=True):
    """Which tries are wanted, None for any; without `all_tries` the one of each trial that counts.

    `trained`: only of those that are known to have trained.
    """

    step: int | None = None
    group: int | None = None
    trial: int | None = None
    all_tries: bool = False
    trained: bool = False


class Chosen(msgspec.Struct, frozen=True):
    """A file that is wanted. `earlier`: 0, or the how manieth of the try's files that were set aside it is."""

    place: TryPlace
    path: Path
    earlier: int = 0


class TrialFacts(msgspec.Struct):
    """What the journal says of tries.

    Attributes:
        run_id: of the run; tasks: by step and group; ends: of each try that has ended, the last time it did.
        counts: by step, group and trial, which try counts: the last one of the last engine that ran the trial.
        called: tries that made model calls, so that there should be a file of each.
        kept: by step and group, whether it was kept; finished: steps that ended, and that no later engine began anew.
    """

    run_id: str = ""
    tasks: dict[tuple[int, int], str] = {}
    ends: dict[TryPlace, ev.TrialFinished] = {}
    counts: dict[TrialPlace, int] = {}
    called: set[TryPlace] = set()
    kept: dict[tuple[int, int], bool] = {}
    finished: set[int] = set()

    def trained(self, place: TryPlace, earlier: int = 0) -> bool | None:
        """Whether a try trained: it was its trial's last, it was scored, its group was kept, its step ended.

        None: cannot be known, for the step has not ended, or the journal does not say. `earlier` as of `Chosen`.
        """
        end, counts, kept = self.ends.get(place), self.counts.get(place[:3]), self.kept.get(place[:2])
        replaced = earlier > 0 or counts not in (None, place[3])
        if replaced or kept is False or (end is not None and end.reward is None):
            return False
        return True if end is not None and kept and place[0] in self.finished else None


class Counts(msgspec.Struct):
    """What was exported, and what was not.

    Attributes:
        trials, segments, calls: exported; untrained, unknown: trials of them that did not train, or may not have;
            tokens, sampled: of all segments, and those of them that were sampled.
        excluded: answered calls that are not trained, by reason; failed: calls that were not answered.
        unfinished: calls without an outcome; unsealed: tries without an end; torn: files that end within a record.
        left_out: trials that are not known to have trained, where only such are wanted.
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
    untrained: int = 0
    unknown: int = 0
    left_out: int = 0


def trial_facts(record: RunRecord) -> TrialFacts:
    """What the journal knows. Raises RecordingError."""
    facts = TrialFacts()
    engine = 0
    ran: dict[TrialPlace, tuple[int, int]] = {}
    ended: dict[TryPlace, int] = {}
    for event in record.journal.events(0, record.journal.last_seq):
        match event:
            case ev.RunStarted():
                engine += 1
                facts.run_id = event.run_id
                again = event.resumed_from or 0
                facts.finished = {step for step in facts.finished if step < again}
                facts.kept = {group: kept for group, kept in facts.kept.items() if group[0] < again}
            case ev.GroupStarted():
                facts.tasks[event.step, event.group] = event.task
            case ev.GroupFinished():
                facts.kept[event.step, event.group] = event.kept
            case ev.StepFinished():
                facts.finished.add(event.step)
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


def chosen_files(run_dir: Path, wanted: Selection, facts: TrialFacts) -> list[Chosen]:
    """The files that are wanted, in order of step, group, trial and try, earlier ones first. Raises OSError."""
    found = {
        place: path
        for path in trial_files(run_dir, wanted.step)
        if (place := place_of_file(path.name)) is not None and _is_wanted(wanted, place)
    }
    if not wanted.all_tries:
        last: dict[TrialPlace, int] = {}
        for step, group, trial, try_ in sorted(found):
            last[step, group, trial] = try_
        last |= {trial: try_ for trial, try_ in facts.counts.items() if (*trial, try_) in found}
        found = {place: path for place, path in found.items() if last[place[:3]] == place[3]}
    files = [Chosen(place, path) for place, path in found.items()]
    for key, number, path in earlier_trial_files(run_dir, wanted.step) if wanted.all_tries else ():
        place = place_of(key)
        if place is not None and _is_wanted(wanted, place):
            files.append(Chosen(place, path, number))
    return sorted(files, key=lambda file: (file.place, file.earlier or sys.maxsize))


def _is_wanted(wanted: Selection, place: TryPlace) -> bool:
    asked = (wanted.step, wanted.group, wanted.trial)
    return all(one in (None, is_) for one, is_ in zip(asked, place, strict=False))


def missing(wanted: Selection, facts: TrialFacts, files: list[Chosen]) -> list[str]:
    """Names of the files that are wanted, that the journal knows of, and that are not there."""
    there = {file.place for file in files if not file.earlier}
    return [
        try_key(place)
        for place in sorted(facts.called - there)
        if _is_wanted(wanted, place) and (wanted.all_tries or facts.counts[place[:3]] == place[3])
    ]


def token_rows(
    chosen: Chosen, file: CapturedTrialFile, facts: TrialFacts, counts: Counts, by_call: bool
) -> Iterator[Row]:  # fmt: skip
    """Rows of one try, whose file was looked at; `counts` grows with them. Raises RecordingError, OSError."""
    trained = trained_of(chosen, file, facts)
    head = _head(chosen, file, facts, trained)
    segments = file.segments()
    counts.trials += 1
    counts.untrained += trained is False
    counts.unknown += trained is None
    counts.torn += file.torn > 0
    counts.unsealed += file.sealed is None and not file.shown_path.name.endswith(".zst")
    for reason, number in (file.sealed.excluded if file.sealed is not None else {}).items():
        counts.excluded[reason] = counts.excluded.get(reason, 0) + number
    uses: dict[str, tuple[str | None, int | None]]
    uses = {node: ("trained", number) for number, segment in enumerate(segments) for node in segment.nodes}
    if file.sealed is not None:
        for reason, nodes in file.sealed.excluded_nodes.items():
            uses |= dict.fromkeys(nodes, (reason, None))
    for call in file if by_call else ():
        use, place_in = uses.get(call.intent.node, (None, None))
        yield head | {"trained": trained if use == "trained" else False} | _call_row(call, use, place_in)
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


def trained_of(chosen: Chosen, file: CapturedTrialFile, facts: TrialFacts) -> bool | None:
    """Whether the segments of a file trained; None also when it does not say which ones they are."""
    trained = facts.trained(chosen.place, chosen.earlier)
    return None if trained and file.sealed is None else trained


def _head(chosen: Chosen, file: CapturedTrialFile, facts: TrialFacts, trained: bool | None) -> Row:
    step, group, trial, try_ = chosen.place
    newest = chosen.earlier == 0  # what the journal says is of the newest file of a try
    end, opened = facts.ends.get(chosen.place) if newest else None, file.opened
    return {
        "run": facts.run_id or None, "step": step, "group": group, "trial": trial, "try": try_,
        "earlier": chosen.earlier, "name": trial_name(group, trial), "task": facts.tasks.get((step, group)),
        "outcome": end.outcome if end is not None else None, "cause": end.cause if end is not None else None,
        "reward": end.reward if end is not None else None, "trained": trained,
        "group_kept": facts.kept.get((step, group)) if newest else None,
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
        f"{_many(counts.calls, 'call')} in segments, {counts.sampled} of {counts.tokens} tokens sampled",
    ]
    left_out = [f"{number} {reason}" for reason, number in sorted(counts.excluded.items()) if number]
    if left_out:
        parts.append(f"answered but not trained: {', '.join(left_out)}")
    if counts.failed:
        parts.append(f"{_many(counts.failed, 'call')} not answered")
    if counts.unfinished:
        parts.append(f"{_many(counts.unfinished, 'call')} without an outcome")
    if counts.unsealed:
        whose = "its" if counts.unsealed == 1 else "their"
        parts.append(f"{_many(counts.unsealed, 'trial')} not sealed: running, or {whose} engine was killed")
    if counts.untrained:
        parts.append(f"{_many(counts.untrained, 'trial')} did not train")
    if counts.unknown:
        parts.append(f"{_many(counts.unknown, 'trial')} of which it cannot be known whether that trained")
    if counts.left_out:
        parts.append(f"{_many(counts.left_out, 'trial')} left out by --trained")
    if counts.torn:
        parts.append(f"{_many(counts.torn, 'file')} ending within a record")
    return "; ".join(parts)


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
