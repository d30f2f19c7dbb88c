"""What befalls a gateway in a run: troubles, moments, and the rounds made of them (see `gateway_harness`)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gateway_faults import FaultyGateway, cut, hang, lose, slow, status, truncate
from served_gateway import ServedGateway

from console.journal import events as ev

ROUTES = ("asample", "retrieve_future", "forward_backward", "optim_step", "save_weights", "session_heartbeat")

Moment = Callable[[ev.Event], bool]
Act = Callable[["Stage"], None]


def phase(name: str, step: int = 0) -> Moment:
    """The run's phase after the end of `step` steps."""
    done = 0

    def seen(event: ev.Event) -> bool:
        nonlocal done
        done += isinstance(event, ev.StepFinished)
        return done >= step and isinstance(event, ev.RunPhase) and event.phase == name

    return seen


def trial(name: str, step: int) -> Moment:
    """A trial's phase in a step, or in a later one."""
    return lambda e: isinstance(e, ev.TrialPhase) and e.step >= step and e.phase == name


def turn(step: int) -> Moment:
    """A trial's first call in a step, or in a later one."""
    return lambda e: isinstance(e, ev.TrialTurn) and e.step >= step


def ended(step: int) -> Moment:
    """The end of a step, or of a later one."""
    return lambda e: isinstance(e, ev.StepFinished) and e.step >= step and not e.replayed


@dataclass
class Stage:
    """Where a round plays. `act` makes the trouble, on a thread of its own; it may wait."""

    faulty: FaultyGateway
    gateway: ServedGateway


@dataclass
class Round:
    """Troubles, each at its moment, one after the other. `words`: further options of the run."""

    name: str
    troubles: list[tuple[Moment, Act]]
    words: tuple[str, ...] = ()


def killed(seconds: float) -> Act:
    """The gateway is killed, and is back after so many seconds, without its memory."""

    def act(stage: Stage) -> None:
        stage.faulty.down()
        stage.gateway.kill()
        time.sleep(seconds)
        stage.gateway.start()
        stage.faulty.up()

    return act


def unreachable(seconds: float) -> Act:
    """Nobody answers at its address for a while; it lives on."""

    def act(stage: Stage) -> None:
        stage.faulty.down()
        time.sleep(seconds)
        stage.faulty.up()

    return act


def burst(route: str, behaviour: Any, seconds: float | None = None) -> Act:
    """Requests of a route fare so, as often as `behaviour` says or for so many seconds."""

    def act(stage: Stage) -> None:
        stage.faulty.set(route, behaviour)
        if seconds is not None:
            time.sleep(seconds)
            stage.faulty.clear()

    return act


def cut_all(stage: Stage) -> None:
    """Every connection is cut, and for a while each third request."""
    stage.faulty.set("", cut().each(3))
    for _ in range(10):
        stage.faulty.cut_all()
        time.sleep(0.5)
    stage.faulty.clear()


def rounds(seed: int) -> list[Round]:
    """All of them, in order; steps and times are chosen by the seed."""
    chance = random.Random(seed)

    def step() -> int:
        return chance.randint(1, 4)

    def kill() -> Act:
        return killed(chance.choice((0.0, 2.0, 6.0)))

    found = [
        Round("no trouble", []),
        Round("killed: connecting, agent, saving",
              [(phase("connecting"), kill()), (trial("agent", 1), kill()), (phase("saving", 3), kill())]),
        Round("killed: create, training, the last save",
              [(trial("create", 1), kill()), (phase("training", 3), kill()), (phase("saving"), kill())],
              ("config.save_every=0",)),
        Round("killed: verify, between, call",
              [(trial("verify", 0), kill()), (ended(1), kill()), (turn(3), kill())]),
        Round("killed: under on_failure=retry", [(turn(step()), kill())], ("harbor.on_failure=retry",)),
    ]  # fmt: skip
    for route in ROUTES:
        troubles = (
            status(500).only(6),
            status(429, retry_after=1).only(6),
            lose().only(2),
            cut().only(4),
            truncate().only(2),
        )
        at = [(turn(number), burst(route, trouble)) for number, trouble in enumerate(troubles)]
        found.append(Round(f"500, 429, lost, cut, truncated: {route}", at, ("config.save_every=1",)))
    found += [
        Round("500 for 20 s: everything", [(turn(step()), burst("", status(500), 20.0))]),
        Round("429 for 20 s: everything", [(turn(step()), burst("", status(429, retry_after=1), 20.0))]),
        Round("503 for 20 s: training", [(phase("training", step()), burst("", status(503), 20.0))]),
        Round("slow: everything", [(turn(1), burst("", slow(0.4), 40.0))]),
        Round("slow: training", [(phase("training", step()), burst("", slow(1.5), 30.0))]),
        Round("silent 60 s: rollout", [(trial("agent", step()), burst("", hang(), 60.0))]),
        Round("silent 60 s: training", [(phase("training", step()), burst("", hang(), 60.0))]),
        Round("silent 60 s: connecting", [(phase("connecting"), burst("", hang(), 60.0))]),
        Round("unreachable 45 s: rollout", [(trial("agent", step()), unreachable(45.0))]),
        Round("unreachable 45 s: training", [(phase("training", step()), unreachable(45.0))]),
        Round("cut: all connections", [(turn(step()), cut_all)]),
        Round("killed for 60 s: rollout", [(trial("agent", step()), killed(60.0))]),
        Round("killed for 60 s: training", [(phase("training", step()), killed(60.0))]),
    ]
    return found
