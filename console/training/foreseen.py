"""What a resume will do with the steps since the last checkpoint, as far as that can be known in a moment.

`replay` decides when the engine begins, and reads everything for it. This looks first, for what is said before: at all
that the journal has of these steps, and at captured files up to a limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from console.errors import RecordingError
from console.journal import events as ev
from console.records.batches import Batches, Opening, read_batches
from console.records.capture_paths import find_trial_file
from console.records.cookbook import WEIGHTS
from console.records.try_key import try_key
from console.training import lineage
from console.training.recorded import recorded_trial

LOOK_BYTES = 8 << 20
"""Of captured files, as they are on disk, that are read; of the others it is asked whether they are there."""


class Foreseen(NamedTuple):
    """The steps that will be applied again, those that are begun again, and why the first of these is, one line."""

    again: tuple[int, ...] = ()
    anew: tuple[int, ...] = ()
    why: str = ""


def foresee(run_dir: Path, checkpoint: dict[str, Any], done: Sequence[int]) -> Foreseen:
    """What becomes of the steps that are trained and in no checkpoint.

    Args:
        checkpoint: the cookbook's last row, empty for none; done: these steps, in order.

    Raises:
        RecordingError: the journal cannot be read.
    """
    if not done:
        return Foreseen()
    first, glance = int(checkpoint.get("batch", 0)), _Glance(run_dir)
    try:
        batches = read_batches(run_dir, first)
    except OSError as error:
        raise RecordingError(f"{run_dir}: cannot be read ({error.strerror})") from error
    weights, again = _weights(checkpoint, batches), 0
    for again, step in enumerate(done):
        if step != first + again:
            return _foreseen(done, again, f"step {first + again}: the journal lacks it")
        opening, why = _trained(batches, step, weights)
        if opening is not None and not why:
            why = glance.problem(opening)
        if opening is None or opening.finished is None or why:
            return _foreseen(done, again, f"step {step}: {why}")
        weights = opening.finished.weights
        if not checkpoint and lineage.is_random_start(opening.weights) and again + 1 < len(done):
            why = "the adapters that its trials were sampled from began at random, and were not saved"
            return _foreseen(done, again + 1, f"step {done[again + 1]}: {why}")
    return _foreseen(done, len(done), "")


def _foreseen(done: Sequence[int], again: int, why: str) -> Foreseen:
    return Foreseen(tuple(done[:again]), tuple(done[again:]), why)


def _weights(checkpoint: dict[str, Any], batches: Batches) -> str:
    """The name of the weights that the run goes on with; empty when it is not known without the recipe."""
    saved = batches.saved.get(str(checkpoint.get("state_path") or ""))
    return str(checkpoint.get(WEIGHTS) or (saved.weights if saved is not None else ""))


def _trained(batches: Batches, step: int, weights: str) -> tuple[Opening | None, str]:
    """The last batch of a step that was trained from these weights, or why there is none that is whole."""
    trained = [opening for opening in batches.of(step) if opening.finished is not None]
    if not trained:
        return None, "the journal lacks its batch"
    alike = [opening for opening in trained if lineage.same_policy(weights or opening.weights, opening.weights)]
    if not alike:
        return None, "it was sampled from other weights, or the journal does not say from which"
    whole = [opening for opening in alike if opening.complete]
    return (whole[-1], "") if whole else (None, "the journal lacks a part of its batch")


class _Glance:
    """Looks at captured files as long as it is cheap."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir, self._left = run_dir, LOOK_BYTES

    def problem(self, opening: Opening) -> str:
        """Why a batch cannot be trained again as it was, empty when nothing is found against it."""
        found = (self._problem(end, opening.policy_version) for end in opening.scored())
        return next(filter(None, found), "")

    def _problem(self, end: ev.TrialFinished, policy_version: int) -> str:
        key = try_key((end.step, end.group, end.trial, end.try_))
        try:
            path = find_trial_file(self._run_dir, key)
            size = 0 if path is None else path.stat().st_size
        except OSError as error:
            return f"{key}: {error}"
        self._left -= size
        if path is not None and size and self._left < 0:
            return ""
        found = recorded_trial(self._run_dir, end, policy_version, counted=True)
        return found if isinstance(found, str) else ""
