"""Calls that were captured and that a journal does not tell of: what an engine did last, before it was killed.

A call is on the disk before the journal hears of it. A process that is killed may leave one such call, a power failure
those of some seconds, so that an engine that goes on with the run must look into the files of what ran at that moment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from console.errors import RecordingError
from console.journal import events as ev
from console.records.captured_calls import CapturedTrialFile
from console.records.try_key import TryPlace


class Untold(msgspec.Struct, kw_only=True):
    """Answered calls, and the tokens of their prompts and of what was sampled."""

    calls: int = 0
    prompt_tokens: int = 0
    sampled_tokens: int = 0


class OpenTries:
    """The tries whose files may hold more than the journal tells. Takes the events of a journal in order."""

    def __init__(self) -> None:
        self._answered: dict[TryPlace, int] = {}
        self._done: set[TryPlace] = set()
        self._ran = False
        self._ended: float | None = None
        self._seq, self._ts = 0, 0.0

    def take(self, event: ev.Event) -> None:
        """Take the next event."""
        if self._seq and event.seq != self._seq + 1:
            self._close()  # what is missing here was in a total that came later
        match event:
            case ev.RunStarted() if self._seq and (self._ran or self._ended is None):
                self._ran, self._ended = False, self._ts
            case ev.RunResumed():  # what the engines before had left untold was counted by then
                self._close()
                self._ran, self._ended = False, None
            case ev.TrialPhase() | ev.TrialTurn():
                place = (event.step, event.group, event.trial, event.try_)
                self._ran = True
                if place not in self._done:
                    answer = isinstance(event, ev.TrialTurn) and event.answered
                    self._answered[place] = self._answered.get(place, 0) + answer
            case ev.TrialFinished():  # all its calls were told of before
                place = (event.step, event.group, event.trial, event.try_)
                self._answered.pop(place, None)
                self._done.add(place)
        self._seq = event.seq
        if not isinstance(event, ev.Snapshot | ev.JournalRepaired):  # these come before an engine says that it began
            self._ts = event.ts

    def untold(self, files: Iterable[tuple[TryPlace, Path]]) -> Untold:
        """What the newest files of tries hold beyond the journal. Opens those only that were not told to have ended.

        A file that cannot be read counts as far as it can be.
        """
        found = Untold()
        for place, path in files:
            if place in self._answered or (self._ended is not None and place not in self._done):
                with contextlib.suppress(RecordingError, OSError, ValueError):
                    self._add(found, place, CapturedTrialFile(path))
        return found

    def _add(self, found: Untold, place: TryPlace, file: CapturedTrialFile) -> None:
        while file.refresh() and not file.complete and not file.damage:
            pass
        begun = file.opened.ts if file.opened is not None else 0.0
        if place not in self._answered and (self._ended is None or begun < self._ended):
            return  # the journal lost it in another way than at its end: a total that came later has it
        for position in range(self._answered.get(place, 0), file.answered):
            call = file.answer(position)
            sampled = len(call.tokens())
            found.calls += 1
            found.prompt_tokens += call.intent.prompt_tokens
            found.sampled_tokens += sampled

    def _close(self) -> None:
        self._done.update(self._answered)
        self._answered.clear()
