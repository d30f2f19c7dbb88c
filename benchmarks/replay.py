"""How fast a replay is: 250,000 events of a run of 64 groups x 16 trials, played, sought in, marked and scrubbed.

The console's part is measured with the real desk and frame (lines of text for a screen of 120x40), without a terminal.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from journal import _events, _write
from report import Beside, Figure, add_json_option, emit

from console.journal import events as ev
from console.journal.writer import JournalWriter
from console.records.run_dir import RunRecord
from console.state.model import encode_state
from console.state.reduce import RunView, apply, fold
from console.tui.desk import Desk
from console.tui.frame import paint
from console.tui.opening import open_record
from console.tui.replay import MAX, ReplaySource

WIDTH, HEIGHT = 120, 40
POLL_SECONDS = 0.25
SEEKS = 60
LONG_STEPS = 10_000


class Shell:
    """The app around a desk that nobody uses."""

    def spawn(self, work: Awaitable[None]) -> None:
        """Nothing waits here."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **options: None


def seconds(action: Callable[[], object]) -> float:
    """Wall seconds of an action."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def long_history(directory: Path) -> None:
    """A run of 10,000 short steps, with the snapshots of its engine."""
    view, clock = RunView(), iter(range(10**9))
    with JournalWriter(
        directory / "journal",
        snapshot=lambda: (encode_state(view.state), view.state.steps_done),
        clock=lambda: 1.79e9 + next(clock) * 0.5,
    ) as writer:
        writer.subscribe(lambda line, event: apply(view, event))
        writer.append(ev.RunStarted(run_id="long", steps=LONG_STEPS))
        for step in range(LONG_STEPS):
            writer.append(ev.StepStarted(step=step, groups=1, policy_version=step))
            writer.append(ev.GroupStarted(step=step, group=0, task="t", size=2))
            for trial in range(2):
                writer.append(ev.TrialFinished(step=step, group=0, trial=trial, outcome="completed", reward=1.0))
            writer.append(ev.StepFinished(step=step, reward_mean=0.5, outcomes={"completed": 2}, seconds_total=2.5))


class Console:
    """A desk on a recording, and its frame."""

    def __init__(self, run_dir: Path, speed: float | None = None) -> None:
        self.now = 0.0
        self.source = ReplaySource(open_record(run_dir), speed, clock=time.monotonic)
        self.desk = Desk(self.source, Shell())  # type: ignore[arg-type]

    def frame(self) -> None:
        """Everything that a paint computes, but for what Textual sends."""
        paint(self.desk, WIDTH, HEIGHT)


def play(run_dir: Path) -> tuple[float, float]:
    """Seconds to the end at full speed: work alone, and as polls four times a second make it on the wall clock."""
    console = Console(run_dir, MAX)
    work, polls = 0.0, 0
    while not console.source.at_end:
        work += seconds(console.source.poll)
        work += seconds(console.frame)
        polls += 1
    return work, polls * POLL_SECONDS


def seeks(run_dir: Path) -> list[float]:
    """Seconds of seeks to anywhere, each with its frame."""
    console = Console(run_dir)
    console.source.playing = False
    rng = random.Random(3)
    last = console.source.timeline.last_seq
    found = []
    for _ in range(SEEKS):
        goal = rng.randrange(1, last + 1)
        found.append(seconds(partial(console.source.seek, goal)) + seconds(console.frame))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=250_000)
    add_json_option(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run, long = Path(folder) / "run", Path(folder) / "long"
        _write(run / "journal", _events(args.events), reduce=True)
        long_history(long)
        opening = statistics.median(seconds(lambda: Console(run).frame()) for _ in range(3))
        work, wall = play(run)
        found = seeks(run)
        many = seeks(long)
        folding = seconds(lambda: fold(RunRecord(run).journal.events()))
        source = ReplaySource(RunRecord(run))
        marks = seconds(lambda: source.read_marks(60.0))
        background = ReplaySource(RunRecord(run))
        background.read_marks()
        worst = max(seconds(partial(background.seek, 90_000 + 7 * n)) for n in range(5))
        scrub = Console(run)
        scrub.source.read_marks(60.0)
        scrub.desk.show("scrub")
        page: Any = scrub.desk.page
        key = statistics.median(seconds(lambda: (page.do_right(), scrub.frame())) for _ in range(50))
    name = f"replay of {args.events:,} events"
    emit(
        [
            Figure(f"{name}: opening to the first frame", opening, "s", 1.0),
            Figure(f"{name}: marks of the timeline", marks, "s", 3.0),
            Figure(f"{name}: at full speed, four polls a second", wall, "s", 5.0, beside=Beside("work alone", work)),
            Figure(f"{name}: seek and frame, median", statistics.median(found), "s", 0.3),
            Figure(f"{name}: seek and frame, slowest of {SEEKS}", max(found), "s", 0.3,
                   beside=Beside("fold from the start", folding)),
            Figure(f"{name}: slowest seek while marks are read", worst, "s", 0.3),
            Figure(f"replay of {LONG_STEPS:,} steps: seek and frame, slowest of {SEEKS}", max(many), "s", 0.3),
            Figure("scrubbing: key to frame", key, "s", 0.1),
        ],
        as_json=args.json,
    )  # fmt: skip


if __name__ == "__main__":
    main()
