"""The moments at which engines are killed: phases, the points of each (`kill_moments`), and a seeded choice of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

START, FIRST = -1, 0
"""Moments count from the engine's start, or from the first step that it rolls out."""


@dataclass(frozen=True)
class Point:
    """A moment. `first`: from when it counts; `count`: up to which occurrence; `delay`: up to so many seconds later."""

    name: str
    first: int = FIRST
    count: int = 1
    delay: float = 0.0
    saves: bool = False


PHASES: dict[str, tuple[Point, ...]] = {
    "starting": (
        Point("started", START, delay=4.0),
        Point("after:run.started", START, delay=2.0),
        Point("after:gateway.profiled", START),
    ),
    "connecting": (Point("after:run.phase:connecting", START, delay=1.0), Point("after:run.planned", START)),
    "planning": (Point("before:run.resumed", START), Point("after:run.resumed", START, delay=0.3)),
    "queued": (Point("after:step.started"), Point("after:group.started", count=2)),
    "create": (Point("after:trial.phase:create", count=6, delay=0.05),),
    "environment": (Point("after:trial.phase:environment", count=6, delay=0.05),),
    "setup": (Point("after:trial.phase:setup", count=6),),
    "agent": (
        Point("call:sent", count=6, delay=0.02),
        Point("after:trial.turn", count=6),
        Point("after:trial.phase:agent", count=6, delay=0.05),
    ),
    "verify": (Point("after:trial.phase:verify", count=6, delay=0.03),),
    "teardown": (Point("after:trial.phase:teardown", count=6, delay=0.03),),
    "trial end": (Point("before:trial.finished", count=6), Point("after:trial.finished", count=6)),
    "batch complete": (
        Point("before:group.finished", count=2),
        Point("after:group.finished", count=2),
        Point("before:run.phase:training"),
    ),
    "preparing": (Point("after:run.phase:training", delay=0.02),),
    "training": (
        Point("fb:sent", count=2),
        Point("fb:done", count=2),
        Point("optim:sent", count=2),
        Point("gateway:optim", count=4),
        Point("optim:done", count=2),
    ),
    "saving": (
        Point("after:run.phase:saving", saves=True),
        Point("save:sent", START),
        Point("gateway:torn", START, count=8),
        Point("row:before", START, count=2),
        Point("row:after", START, count=2),
        Point("before:checkpoint.saved:periodic", saves=True),
        Point("after:checkpoint.saved:periodic", saves=True),
    ),
    "between steps": (Point("before:step.finished"), Point("after:step.finished")),
    "replay": (
        Point("before:step.started:replayed", START),
        Point("after:trial.finished:reused+replay", START, count=6),
        Point("after:run.phase:training+replay", START),
        Point("before:step.finished:replayed", START),
        Point("after:step.finished:replayed", START),
    ),
    "reuse": (Point("after:trial.finished:reused", FIRST, count=3), Point("before:trial.finished:reused", FIRST)),
    "end": (
        Point("before:checkpoint.saved:final", START),
        Point("after:checkpoint.saved:final", START),
        Point("before:run.finished", START),
        Point("after:run.finished", START),
    ),
    "at random": (Point("outside", START),),
}
NEEDS_BEFORE = ("planning", "replay", "reuse")
"""Phases that only a resumed engine has."""
LAST = ("end",)
"""Phases that a run has once."""


@dataclass
class Kill:
    """One kill to do. `left`: how often it may be tried again when its moment does not come."""

    phase: str
    point: Point
    spec: dict[str, Any] = field(default_factory=dict)
    left: int = 2

    @property
    def label(self) -> str:
        """For the log."""
        spec = self.spec
        return f"{self.phase}: {spec['point']} skip {spec['skip']} count {spec['count']} +{spec['delay']:.2f}s"


def kills(number: int, rng: random.Random) -> list[Kill]:
    """So many kills, each phase as often as the next, every point of a phase before one comes again."""
    bags: dict[str, list[Point]] = {}
    made: list[Kill] = []
    while len(made) < number:
        for phase in rng.sample(list(PHASES), len(PHASES)):
            if not bags.get(phase):
                bags[phase] = rng.sample(PHASES[phase], len(PHASES[phase]))
            point = bags[phase].pop()
            made.append(Kill(phase, point, spec(point, rng)))
    return made[:number]


def spec(point: Point, rng: random.Random) -> dict[str, Any]:
    """What `kill_moments` is told."""
    skip = point.first if point.first == START else rng.choice((0, 0, 1))
    return {
        "point": point.name,
        "skip": 0 if point.saves else skip,
        "count": rng.randint(1, point.count),
        "delay": round(rng.uniform(0.0, point.delay), 3) if rng.random() < 0.8 else 0.0,
    }


def runs(todo: list[Kill], per_run: int) -> list[list[Kill]]:
    """The kills of each run, in an order in which a run can have such moments."""
    early = [kill for kill in todo if kill.phase not in NEEDS_BEFORE + LAST]
    rolling = [kill for kill in early if kill.point.first == FIRST and not kill.point.saves]
    units: list[list[Kill]] = []
    for kill in [kill for kill in todo if kill.phase in NEEDS_BEFORE]:
        if kill.phase == "reuse" or not rolling:  # some trials of the step that is cut off have ended
            before = Kill("trial end", Point("after:trial.finished"))
            before.spec = {"point": before.point.name, "count": 4, "delay": 0.0}
        else:
            before = rolling.pop()
        before.spec |= {"skip": 1}
        early = [other for other in early if other is not before]
        units.append([before, kill])
    units += [[kill] for kill in early]
    number = max(1, -(-len(todo) // per_run))
    made: list[list[Kill]] = [[] for _ in range(number)]
    for index, unit in enumerate(units):
        made[index % number] += unit
    for index, kill in enumerate([kill for kill in todo if kill.phase in LAST]):
        made[-1 - index % number].append(kill)
    return [batch for batch in made if batch]
