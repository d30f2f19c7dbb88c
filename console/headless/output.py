"""What a headless run prints. Stdout has records only; a value that is not known is null."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

from msgspec.structs import replace

from console.headless.benchmark import counts_record, to_trial_record, total, trial_text
from console.journal import events as ev
from console.state.bench_words import passed_text
from console.state.lines import line_for
from console.state.model import AlarmState, GroupState, RunState, TrialState
from console.state.reduce import RunView
from console.state.sanitize import sanitize
from console.state.words import BENCHMARK

VERSION = 1
LINE_LIMIT = 400

Record = dict[str, Any]

_ALARM_EVENTS = (ev.RunStarted, ev.AlarmOpened, ev.AlarmClosed, ev.AlarmAcked)
"""They are told as records of alarms, not as lines."""


class OutputClosed(Exception):
    """Nobody reads stdout any more."""


# --- records ----------------------------------------


def to_launch_record(state: RunState) -> Record:
    """Who runs: identity, process, socket, versions of the packages; `kind` of a benchmark."""
    record: Record = {
        "v": VERSION, "type": "launch", "run_id": state.run_id, "run_dir": state.run_dir, "pid": state.pid or None,
        "socket": state.socket, "versions": state.versions,
    }  # fmt: skip
    return record | {"kind": BENCHMARK} if state.kind == BENCHMARK else record


def to_step_record(e: ev.StepFinished) -> Record:
    """One trained step; units and definitions as in the `step.finished` event.

    One that was trained again from what was captured, after a resume, has `replayed`; one that a later engine wrote for
    the engine that had trained it has `recovered`.
    """
    marks = {name: True for name, on in (("replayed", e.replayed), ("recovered", e.recovered)) if on}
    return {
        "v": VERSION,
        "type": "step",
        "step": e.step,
        "reward_mean": _number(e.reward_mean),
        "reward_std": _number(e.reward_std),
        "outcomes": e.outcomes,
        "groups": {"kept": e.groups_kept, "dropped": e.groups_dropped, "zero_variance": e.groups_zero_variance},
        "ppo_loss": _number(e.ppo_loss),
        "clip_fraction": _number(e.clip_fraction),
        "kl_sample_train": _number(e.kl_sample_train_v1),
        "entropy": _number(e.entropy),
        "tokens": {"prompt": e.tokens_prompt, "sampled": e.tokens_sampled, "trained": e.tokens_trained},
        "seconds": {
            "rollout": _number(e.seconds_rollout),
            "train": _number(e.seconds_train),
            "save": _number(e.seconds_save),
            "total": _number(e.seconds_total),
        },
        "policy_version": e.policy_version,
        **marks,
    }


def to_alarm_record(alarm: AlarmState, state: str, ts: float) -> Record:
    """An alarm that was opened, closed or acknowledged (`state`) at `ts`, Unix seconds. Its texts are one line each."""
    record: Record = {
        "v": VERSION, "type": "alarm", "state": state, "key": sanitize(alarm.key), "level": alarm.level, "ts": ts,
        "text": sanitize(alarm.text), "consequence": sanitize(alarm.consequence), "remedy": sanitize(alarm.remedy),
    }  # fmt: skip
    return record | {"by": sanitize(alarm.acked_by)} if state == "acknowledged" else record


def to_done_record(status: str, exit_code: int, steps: int, reason: str, state: RunState | None = None) -> Record:
    """The end: `status` is completed, stopped or failed; `exit_code` is that of the process that prints it.

    Of a benchmark (`state`) also its directory, its trials by class, and what passed by which rule.
    """
    record: Record = {
        "v": VERSION, "type": "done", "status": status, "exit_code": exit_code, "steps": steps,
        "reason": sanitize(reason),
    }  # fmt: skip
    return record | counts_record(state) if state is not None and state.kind == BENCHMARK else record


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


# --- printing ----------------------------------------


class Reporter:
    """Turns a view and its events into records on stdout and a log on stderr.

    Attributes:
        on_closed: called once when stdout turns out to be closed; without it `OutputClosed` is raised.
        closed: stdout is closed.
        view: the last one shown.
    """

    def __init__(self, out: TextIO, err: TextIO, plain: bool, first_step: int = 0) -> None:
        """`first_step`: earlier ones are not reported."""
        self.on_closed: Callable[[], None] | None = None
        self.closed = False
        self._out, self._err, self._plain = out, err, plain
        self._launched: tuple[str, int] | None = None
        self._row_seq = 0
        self._first_step = first_step
        self._alarms: dict[str, AlarmState] = {}
        self._tries: set[tuple[int, int, int]] = set()
        self.view: RunView | None = None

    def show(self, view: RunView) -> None:
        """A whole view: everything of it that was not printed yet."""
        self.view = view
        self._launch(view.state)
        if view.state.kind == BENCHMARK:
            self._ended(view.state)
        else:
            for row in view.history.rows:
                self._step(view, row)
        self._compare_alarms(view.state)

    def event(self, view: RunView, event: ev.Event) -> None:
        """One event; `view` is the view after it."""
        self.view = view
        bench = view.state.kind == BENCHMARK
        if isinstance(event, ev.RunStarted):
            self._launch(view.state)
        elif isinstance(event, ev.StepFinished) and not bench:
            self._step(view, event)
        if isinstance(event, _ALARM_EVENTS):
            self._compare_alarms(view.state)
        elif bench and isinstance(event, ev.TrialFinished):
            self._told(view.state, event)
        elif bench or not isinstance(event, ev.StepFinished):
            self._narrate(view, event)

    def done(self, status: str, exit_code: int, steps: int, reason: str) -> None:
        """The last record."""
        tail = f": {sanitize(reason)}" if reason else ""
        state = self.view.state if self.view is not None else None
        what = f"{steps} steps"
        if state is not None and state.kind == BENCHMARK:
            what = f"{state.bench.done} of {total(state)} trials, passed {passed_text(state)}"
        self._emit(
            to_done_record(status, exit_code, steps, reason, state),
            f"done: {status}, exit {exit_code}, {what}{tail}",
            self.view.state.ts if self.view is not None else datetime.now(UTC).timestamp(),
        )

    def log(self, text: str) -> None:
        """A line on stderr; a closed stderr is no reason to end."""
        self._to_err(datetime.now(UTC).timestamp(), text)

    def silence(self) -> None:
        """Point a closed stdout at nothing, so that the interpreter's last flush does not fail."""
        if self._out is sys.stdout:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._out.fileno())
            os.close(nowhere)

    # --- inside ----------------------------------------

    def _launch(self, state: RunState) -> None:
        if not state.run_id or self._launched == (state.run_id, state.pid):
            return
        self._launched = (state.run_id, state.pid)
        self._emit(to_launch_record(state), f"run {state.name or state.run_id} in {state.run_dir}", state.started)

    def _step(self, view: RunView, row: ev.StepFinished) -> None:
        if row.seq <= self._row_seq or row.step < self._first_step:
            return
        self._row_seq = row.seq
        line = line_for(view.state, row)
        self._emit(to_step_record(row), line.text if line is not None else f"step {row.step} done", row.ts)

    def _ended(self, state: RunState) -> None:
        """The tries of a benchmark that have ended, in that order."""
        found = [(g, t) for g in state.groups.values() for t in g.trials if t.phase == "done" and t.outcome is not None]
        for group, trial in sorted(found, key=lambda pair: pair[1].finished or 0.0):
            self._trial(state, group, trial, None)

    def _told(self, state: RunState, e: ev.TrialFinished) -> None:
        group = state.groups.get(e.group) if state.step == e.step else None
        if group is not None and 0 <= e.trial < len(group.trials) and group.trials[e.trial].try_ == e.try_:
            self._trial(state, group, group.trials[e.trial], e.ts)

    def _trial(self, state: RunState, group: GroupState, trial: TrialState, now: float | None) -> None:
        key = (group.group, trial.trial, trial.try_)
        if key not in self._tries:
            self._tries.add(key)
            text = f"trial {trial_text(state, group, trial, now)}"
            self._emit(to_trial_record(state, group, trial, VERSION), text, trial.finished or state.ts)

    def _compare_alarms(self, state: RunState) -> None:
        """Say what changed since the last look. One that is over, and only waits to be acknowledged, is closed here."""
        now = {key: replace(alarm) for key, alarm in state.alarms.items() if alarm.open}
        for key, alarm in now.items():
            before = self._alarms.get(key)
            if before is None or (before.level, before.text) != (alarm.level, alarm.text):
                follows = f"; {alarm.consequence}" if alarm.consequence else ""
                remedy = f" ({alarm.remedy})" if alarm.remedy else ""
                self._alarm(alarm, "opened", f"alarm {alarm.level}: {alarm.text}{follows}{remedy}", state.ts)
            if alarm.acked_by and (before is None or not before.acked_by):
                text = f"alarm acknowledged by {sanitize(alarm.acked_by)}: {alarm.text}"
                self._alarm(alarm, "acknowledged", text, state.ts)
        for key, alarm in self._alarms.items():
            if key not in now:
                self._alarm(alarm, "closed", f"alarm over: {alarm.text}", state.ts)
        self._alarms = now

    def _alarm(self, alarm: AlarmState, state: str, text: str, ts: float) -> None:
        self._emit(to_alarm_record(alarm, state, ts), text, ts)

    def _narrate(self, view: RunView, event: ev.Event) -> None:
        """Changes that are no record: lines in plain mode, else log."""
        if isinstance(event, ev.RunPhase):
            text = f"phase {event.phase}" + (f": {event.detail}" if event.detail else "")
        else:
            line = line_for(view.state, event)
            if line is None or isinstance(event, ev.RunFinished):
                return
            text = line.text
        if self._plain:
            self._to_out(_stamped(event.ts, text))
        else:
            self._to_err(event.ts, text)

    def _emit(self, record: Record, text: str, ts: float) -> None:
        if self._plain:
            self._to_out(_stamped(ts, text))
        else:
            self._to_out(json.dumps(record, allow_nan=False, separators=(",", ":")))
            self._to_err(ts, text)

    def _to_out(self, line: str) -> None:
        if self.closed:
            return
        try:
            self._out.write(_encodable(line, self._out) + "\n")
            self._out.flush()
        except (OSError, ValueError):
            self.closed = True
            if self.on_closed is None:
                raise OutputClosed from None
            self.on_closed()

    def _to_err(self, ts: float, text: str) -> None:
        try:
            self._err.write(_encodable(_stamped(ts, text), self._err) + "\n")
            self._err.flush()
        except (OSError, ValueError):
            pass


def _stamped(ts: float, text: str) -> str:
    stamp = datetime.fromtimestamp(max(0.0, ts), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{stamp} {sanitize(text, LINE_LIMIT)}"


def _encodable(text: str, stream: TextIO) -> str:
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)
