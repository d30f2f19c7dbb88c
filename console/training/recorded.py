"""Trials that ended under an earlier engine, with what was captured of them, checked and brought back for training."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from console.capture.captured import CapturedTrial, Segment, Turn
from console.errors import RecordingError
from console.journal import events as ev
from console.outcomes.classes import SCORED, CallEvidence, OutcomeClass, Verdict
from console.records.capture_paths import find_trial_file
from console.records.captured_calls import CapturedTrialFile
from console.records.token_check import check_tokens
from console.records.try_key import try_key


class RecordedTrial(msgspec.Struct, kw_only=True, frozen=True):
    """The final try of a trial.

    Attributes:
        end: how it ended; path: its captured calls, None where nothing of it is trained.
        counted: a batch was given it before: it is in the totals of trained tokens.
    """

    end: ev.TrialFinished
    path: Path | None = None
    counted: bool = False

    @property
    def key(self) -> str:
        """The engine's name of the try."""
        return _key(self.end)

    @property
    def verdict(self) -> Verdict:
        """As it was classified then."""
        end = self.end
        return Verdict(
            outcome=OutcomeClass(end.outcome), cause=end.cause, rule=end.rule, evidence=end.evidence, reward=end.reward
        )

    def captured(self) -> CapturedTrial:
        """What was captured, from the disk: for a worker thread. Raises RecordingError, OSError."""
        if self.path is None:
            raise RecordingError(f"{self.key}: nothing of it was captured")
        try:
            return _captured(_file(self.path), self.end)
        except RecordingError as error:
            raise RecordingError(f"{self.key}: {error}; resume the run, and the trial runs again") from error


class RecordedGroup(msgspec.Struct, kw_only=True, frozen=True):
    """What is known of a group before it begins.

    Attributes:
        task, size: as it was begun; empty and 0 when it never was from these weights.
        trials: those that need not run, by index; tries: by index, the number of the first try that may be run.
        cancelled_by: the operator who cancelled the group, empty for nobody.
        ended: how it ended, of a batch that was trained before and is trained again as it was; else None.
    """

    task: str = ""
    size: int = 0
    trials: dict[int, RecordedTrial] = {}
    tries: dict[int, int] = {}
    cancelled_by: str = ""
    ended: ev.GroupFinished | None = None

    @property
    def replayed(self) -> bool:
        """Whether its batch was trained before, and is trained again as it was."""
        return self.ended is not None

    @property
    def whole(self) -> bool:
        """Whether no trial of it runs."""
        return bool(self.cancelled_by) or (self.size > 0 and len(self.trials) >= self.size)


class RecordedBatch(msgspec.Struct, kw_only=True, frozen=True):
    """A batch as it was begun from some weights.

    Attributes:
        step: of the run; weights: their name; size: groups; groups: by index, not all when its engine ended early.
        replayed: it was trained, and is trained again from what is recorded here.
    """

    step: int
    weights: str
    size: int
    groups: dict[int, RecordedGroup] = {}
    replayed: bool = False

    @property
    def reused(self) -> int:
        """Trials that need not run."""
        return sum(len(group.trials) for group in self.groups.values())

    @property
    def redone(self) -> int | None:
        """Trials that run, None while not all groups are known."""
        if len(self.groups) < self.size:
            return None
        return sum(max(0, group.size - len(group.trials)) for group in self.groups.values() if not group.cancelled_by)

    @property
    def trained_keys(self) -> list[str]:
        """Keys of the scored trials of the groups that are kept; of a replayed batch, those that are trained."""
        return [
            trial.key
            for group in self.groups.values()
            if not group.cancelled_by
            for trial in group.trials.values()
            if trial.path is not None
        ]


def recorded_trial(
    run_dir: Path | str, end: ev.TrialFinished, policy_version: int, counted: bool
) -> RecordedTrial | str:
    """A scored trial with its captured calls, or why it cannot be used, one line. For a worker thread.

    Args:
        end: of its final try; policy_version: of the weights that its batch was sampled from.
    """
    key = _key(end)
    if end.outcome not in SCORED or end.reward is None:
        return f"{key} was not scored"
    try:
        path = find_trial_file(run_dir, key)
        if path is None:
            return f"{key}: the file of its captured calls is gone"
        file = _file(path)
        problem = next(iter(check_tokens(file)), "") or _contradiction(file, end, policy_version)
    except (RecordingError, OSError) as error:
        return f"{key}: {error}"
    return f"{key}: {problem}" if problem else RecordedTrial(end=end, path=path, counted=counted)


def cancelled_trial(end: ev.TrialFinished) -> RecordedTrial | None:
    """A trial that an operator took out of its group; None for any other."""
    by_operator = end.outcome == OutcomeClass.CANCELLED and end.cause == "operator"
    return RecordedTrial(end=end) if by_operator else None


def _key(end: ev.TrialFinished) -> str:
    return try_key((end.step, end.group, end.trial, end.try_))


def _file(path: Path) -> CapturedTrialFile:
    """The file, looked at to its end. Raises RecordingError: it is damaged, not sealed, or gone; OSError."""
    file = CapturedTrialFile(path)
    while there := file.refresh():
        if file.complete or file.damage:
            break
    if not there:
        raise RecordingError("the file of its captured calls is gone")
    if file.damage:
        raise RecordingError(file.damage.removeprefix(f"{path.parent}{os.sep}"))
    if file.sealed is None:
        raise RecordingError("it was not sealed")
    return file


def _contradiction(file: CapturedTrialFile, end: ev.TrialFinished, policy_version: int) -> str:
    """How file and journal do not tell of one and the same try, "" when they do."""
    opened, sealed = file.opened, file.sealed
    if opened is None or sealed is None or opened.step != end.step:
        return "its captured calls are of another step"
    if opened.policy_version not in (None, policy_version):
        return f"it was sampled from policy version {opened.policy_version}, and its batch from {policy_version}"
    if sealed.lost or sealed.no_logprobs:
        return "some of its calls were lost"
    if (len(sealed.segments), sealed.excluded) != (end.segments, end.excluded):
        return "the journal tells of other segments than the file of its captured calls"
    if not any(file.node(node).tokens() for segment in sealed.segments for node in segment.nodes):
        return "nothing of it can be trained"
    return ""


def _captured(file: CapturedTrialFile, end: ev.TrialFinished) -> CapturedTrial:
    assert file.sealed is not None
    segments = [
        Segment(turns=_turns(file, line.nodes), reason=line.reason, kind=line.kind) for line in file.sealed.segments
    ]
    evidence = CallEvidence(
        calls=file.sealed.calls,
        failed=file.sealed.failed,
        sampled_tokens=end.sampled_tokens,
        trained=sum(bool(turn.tokens_T) for segment in segments for turn in segment.turns),
    )
    return CapturedTrial(
        segments=segments,
        evidence=evidence,
        excluded=dict(end.excluded),
        prompt_tokens=end.prompt_tokens,
        bridged=end.bridged,
        unbridged=dict(end.unbridged),
        refused=dict(end.refused),
        policy_version=file.opened.policy_version if file.opened is not None else None,
    )


def _turns(file: CapturedTrialFile, nodes: list[str]) -> list[Turn]:
    """The calls of a segment as turns. Between two of them there may be calls that are not trained."""
    turns: list[Turn] = []
    before = ""
    for node in nodes:
        call = file.node(node)
        try:
            new, tokens, logprobs = call.prompt_new(), call.tokens(), call.logprobs()
        except ValueError as error:
            raise RecordingError(f"{file.shown_path}: ids of {node} are torn") from error
        if len(tokens) != len(logprobs):
            raise RecordingError(f"{file.shown_path}: {node} has {len(tokens)} ids and {len(logprobs)} log-probs")
        if not before:
            new = file.prompt(node)
        elif call.intent.parent != before:
            ids, end = file.prompt(node), file.prompt(before) + turns[-1].tokens_T
            if ids[: len(end)] != end:
                raise RecordingError(f"{file.shown_path}: {node} does not go on where {before} ended")
            new = ids[len(end) :]
        reason = (call.outcome.stop_reason if call.outcome is not None else "") or "stop"
        turns.append(Turn(node=node, prompt_new=new, tokens_T=tokens, logprobs_T=logprobs, stop_reason=reason))
        before = node
    return turns
