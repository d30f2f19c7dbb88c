"""Events of alarms, and of what people ask for. See `events`."""

from __future__ import annotations

from console.journal.event import Event, Scalars


class AlarmOpened(Event, tag="alarm.opened"):
    """Something needs the operator. One open alarm a key; written again when its text or level changes.

    Attributes:
        level: warning or critical; text: what is wrong; consequence: what follows if nobody acts, empty for nothing;
        remedy: what to do; action: the console's action that does it, empty for none.
    """

    key: str
    level: str
    text: str
    remedy: str = ""
    consequence: str = ""
    action: str = ""


class AlarmClosed(Event, tag="alarm.closed"):
    """The condition of alarm `key` is over. A critical one stays on the screen until it is acknowledged."""

    key: str


class AlarmAcked(Event, tag="alarm.acked"):
    """Somebody has seen alarm `key`; until it closes and opens again, it asks for no more attention."""

    key: str
    by: str = ""


class AlarmShelved(Event, tag="alarm.shelved"):
    """Alarm `key` is silent until `until` (Unix seconds), also when it opens again; 0 takes it back from the shelf."""

    key: str
    until: float = 0.0
    by: str = ""


class CommandRequested(Event, tag="command.requested"):
    """Somebody asked for an action; written before anything is done."""

    id: str
    command: str
    args: Scalars = {}
    author: str = ""
    reason: str = ""


class CommandAccepted(Event, tag="command.accepted"):
    """The engine took it on; `effect` says what it will do."""

    id: str
    effect: str = ""


class CommandFinished(Event, tag="command.finished"):
    """`status`: done or refused; `result` says what happened or why not."""

    id: str
    status: str
    result: str = ""


class StopRequested(Event, tag="run.stop_requested"):
    """The run will stop: `when` is after_step or now, empty when the request was taken back."""

    when: str
    by: str = ""


class DispatchPaused(Event, tag="run.dispatch"):
    """With `paused`, no new trial begins and those under way go on; without it, trials begin again."""

    paused: bool
    by: str = ""


TUNABLES: dict[str, str] = {
    "parallel": "trials of one group that run at once",
    "hold_timeout": "seconds a failed trial waits for the operator before the run stops",
    "max_tries": "executions of one trial at most, retries of the policy and of the operator",
    "token_budget": "captured tokens, prompt and sampled, after which the run stops with its step",
    "time_budget": "seconds of this engine's life after which the run stops with its step",
}
"""What may be changed while the run lasts, and what it means. A budget may be None: there is none."""
BENCH_TUNABLES: dict[str, str] = {"concurrency": "trials at work at once, at most as many as the job was started with"}
"""The same of benchmark runs."""


class RunTuned(Event, tag="run.tuned"):
    """A tunable was changed; `name` is one of `TUNABLES` or `BENCH_TUNABLES`."""

    name: str
    old: float | None = None
    new: float | None = None
    by: str = ""


class TaskQuarantined(Event, tag="task.quarantined"):
    """With `on`, the task is left out of the batches that begin from now on; without it, it is taken in again."""

    task: str
    on: bool = True
    by: str = ""


class WatchTaken(Event, tag="watch.taken"):
    """The lease to act passed to `by` (a viewer's author); empty when it was given back."""

    by: str = ""
    previous: str = ""


class Note(Event, tag="note"):
    """A line for the events pane: `level` is info, warning or error; `source` is engine, or the author's name."""

    text: str
    level: str = "info"
    source: str = "engine"
