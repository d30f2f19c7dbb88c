"""A scene of a small run for tests of its page: two groups of two in the first step, and whatever else happened."""

from __future__ import annotations

import dataclasses

from console.journal import events as ev
from console.state.reduce import fold
from console.tui.picture import Scene, Selection, ordered
from console.tui.source import Link

T0 = 1_790_000_000.0


def scene(*more: ev.Event, after: float = 10.0, **changes: object) -> Scene:
    """A run in its first step, and what else happened; `after` seconds later."""
    events: list[ev.Event] = [
        ev.RunStarted(
            run_id="r", name="night", steps=9, tunables={"token_budget": 1e6, "time_budget": 100.0, "max_tries": 3.0}
        ),
        ev.StepStarted(step=0, groups=2, policy_version=0),
        *(ev.GroupStarted(step=0, group=g, task=f"task-{g}", size=2) for g in range(2)),
        *more,
    ]
    for seq, event in enumerate(events, start=1):
        event.seq, event.ts = seq, T0
    view = fold(events)
    selection, now = Selection(), T0 + after
    groups = ordered(view.state, selection, now)
    made = Scene(view, Link("ok"), now, selection, groups, selection.settle(groups))
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]
