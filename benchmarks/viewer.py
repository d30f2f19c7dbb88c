"""What the console costs: first paint, bytes on the line, processor, memory, answers to keys, and the engine's part.

Each console is started as a user starts it (`quarterdeck attach RUN`), runs in a pseudo-terminal of its own and follows
a real board (journal, alarms, audit, socket) in another process; the same machine, in the same run, also shows what a
minimal Textual app, a stock table with sparklines, and `tail -F` of a log cost.
`python benchmarks/viewer.py [--part cost ...] [--json]`
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import time
from collections.abc import Callable

from engines import HERTZ, SCENES, Engine
from report import Beside, Figure, add_json_option, emit
from stock import MINIMAL, stock
from terminal import Cost, Terminal, watch
from viewers import engine_share, slow_viewer

from console.records.run_dir import RunRecord
from console.state.reduce import fold

SIZES = ((80, 24), (120, 40), (200, 60))
TASK = "task-number-"
"""What is on the screen once the run is."""
BUSY = SCENES["busy"]
WHAT = f"{BUSY.trials} trials, {BUSY.dirty} dirty a tick, {HERTZ} Hz"
PAGES = {
    "trial, transcript grows": ("t", "Transcript", "tail -F of its log", "turns.log"),
    "events": ("E", "Events", "tail -F of the journal", "journal/0*.jsonl"),
    "metrics": ("m", "KL", "", ""),
}
"""Key, a text on the page, and the file that somebody would follow instead."""
HOUR = 120_000
"""About the events of an hour of 64 trials that end 32 calls a second."""


def first_paints(starts: int, seconds: float) -> list[Figure]:
    """A fresh run, and one of 10,000 steps of 1,024 trials; each start beside one of a minimal Textual app."""
    floor, begun, whole, large = [], [], [], []
    with Engine("busy") as fresh, Engine("large") as long:
        for _ in range(starts):
            with Terminal([sys.executable, "-c", MINIMAL]) as terminal:
                floor.append(terminal.until_text("PAINTED") - terminal.began)
            with Terminal(fresh.attach) as terminal:
                begun.append(terminal.until_text("Groups") - terminal.began)
                whole.append(terminal.until_text(TASK) - terminal.began)
            with Terminal(long.attach) as terminal:
                large.append(terminal.until_text(TASK) - terminal.began)
        before = time.perf_counter()
        fold(RunRecord(long.run_dir).journal.events())
        reading = time.perf_counter() - before
    least = statistics.median(floor)
    beside = Beside("minimal Textual app", least)
    return [
        Figure("attach, a fresh run: first paint beyond a minimal Textual app", statistics.median(whole) - least, "s",
               0.4),
        Figure("attach, a fresh run: first paint with the run on it", statistics.median(whole), "s", beside=beside),
        Figure("attach, a fresh run: first paint of all", statistics.median(begun), "s", beside=beside),
        Figure("attach, 1,024 trials, 10,000 steps: first paint with the run on it", statistics.median(large), "s", 2.0,
               beside=Beside("reading its journal from the start, no picture", reading)),
    ]  # fmt: skip


def costs(starts: int, seconds: float) -> list[Figure]:
    """Bytes and processor time of a run at work, at three sizes, on four pages, and with two consoles attached."""
    figures = []
    with Engine("busy") as engine:
        for columns, rows in SIZES:
            with Terminal(engine.attach, columns, rows) as ours:
                ours.until_text(TASK)
                mine = watch([ours], seconds)[0]
            with Terminal([sys.executable, "-c", stock(BUSY.trials, BUSY.dirty, HERTZ)], columns, rows) as theirs:
                theirs.until_text("PAINTED")
                other = watch([theirs], seconds)[0]
            figures += _pair(f"{WHAT}, {columns}x{rows}", mine, "DataTable and Sparkline", other)
    with Engine("talking") as engine:
        with Terminal(["tail", "-F", str(engine.run_dir / "turns.log")]) as tail:
            followed = watch([tail], seconds)[0]
        for page, (key, shows) in PAGES.items():
            with Terminal(engine.attach) as ours:
                ours.until_text(TASK)
                ours.press(key)
                ours.until_text(shows)
                figures += _pair(
                    f"{page}, 120x40", watch([ours], seconds)[0], "tail -F of a log of one trial", followed
                )
        with Terminal(engine.attach) as one, Terminal(engine.attach) as two:
            one.until_text(TASK)
            two.until_text(TASK)
            both = watch([one, two], seconds)
        for number, cost in enumerate(both, start=1):
            figures += _pair(f"two consoles attached, console {number}, 120x40", cost, "", None)
    with Engine("large") as engine, Terminal(engine.attach) as ours:
        ours.until_text(TASK)
        figures += _pair("1,024 trials, 200 events a second, 120x40", watch([ours], seconds)[0], "", None)
    return figures


def idle(starts: int, seconds: float) -> list[Figure]:
    """A run in which nothing happens but time."""
    with Engine("idle") as engine, Terminal(engine.attach) as ours:
        ours.until_text(TASK)
        cost = watch([ours], 2 * seconds)[0]
    return [
        Figure("idle run, 120x40: bytes", cost.bytes_per_second / 1000, "KB/s", 0.5),
        Figure("idle run, 120x40: processor", cost.cpu * 100, "%", 1.0),
    ]


def memory(starts: int, seconds: float) -> list[Figure]:
    """Resident memory of an ordinary run's console, after an hour's events too, and of a large run's."""
    visits = ("t", "v", "c", "\x1b", "E", "m", "i", "L", "?", "\x1b", "\x1b", "\x1b", "\x1b")
    with Engine("busy") as engine, Terminal(engine.attach) as ours:
        ours.until_text(TASK)
        ours.drain(2.0)
        begun = ours.rss
        for key in visits:
            ours.press(key)
            ours.drain(0.7)
        visited = ours.rss
        _fast(engine, ours, HOUR // 10)
        tenth = ours.rss
        _fast(engine, ours, HOUR - HOUR // 10)
        after = ours.rss
    with Terminal([sys.executable, "-c", stock(BUSY.trials, BUSY.dirty, HERTZ)]) as theirs:
        theirs.until_text("PAINTED")
        theirs.drain(2.0)
        beside = Beside("DataTable and Sparkline", theirs.rss / 1e6)
    with Engine("large") as engine, Terminal(engine.attach) as ours:
        ours.until_text(TASK)
        ours.drain(2.0)
        large = ours.rss
        for key in visits:
            ours.press(key)
            ours.drain(0.7)
        large_visited = ours.rss
    return [
        Figure("memory, ordinary run", begun / 1e6, "MB", 80.0, beside=beside),
        Figure("memory, ordinary run, all pages visited", visited / 1e6, "MB", 80.0, beside=beside),
        Figure(f"memory, ordinary run, {HOUR // 10:,} events later", tenth / 1e6, "MB", 80.0),
        Figure(f"memory, ordinary run, {HOUR:,} events later (an hour's)", after / 1e6, "MB", 80.0,
               beside=Beside(f"after {HOUR // 10:,}", tenth / 1e6)),
        Figure("memory, 1,024 trials and 10,000 steps", large / 1e6, "MB", 200.0),
        Figure("memory, 1,024 trials and 10,000 steps, all pages visited", large_visited / 1e6, "MB", 200.0),
    ]  # fmt: skip


def keys(starts: int, seconds: float) -> list[Figure]:
    """From a key to the bytes that show its effect, at 1,024 trials, 200 events a second and 10,000 steps."""
    with Engine("large") as engine, Terminal(engine.attach, emulate=True) as ours:
        ours.until_text(TASK)
        ours.drain(2.0)

        def selected() -> str:
            found = re.search(r"│>.(g\d+)", ours.text)
            return found.group(1) if found else ""

        def answer(key: str, shown: Callable[[], bool]) -> float:
            ours.quiet()
            return -(ours.press(key) - ours.until(shown, 10.0)) * 1000

        def shows(text: str) -> Callable[[], bool]:
            return lambda: text in ours.text

        def moves() -> Callable[[], bool]:
            before = selected()
            return lambda: selected() not in ("", before)

        times: dict[str, list[float]] = {}
        steps: list[tuple[str, str, Callable[[], Callable[[], bool]]]] = [
            *[("down or up", key, moves) for key in "jkjkjk"],
            ("filter, opened", "/", lambda: shows(" filter ")),
            ("filter, a letter", "4", lambda: shows(" /4 ")),
            ("filter, taken", "\r", lambda: shows("? help")),
            ("filter, cleared", "\x1b", lambda: lambda: " /4 " not in ours.text),
            ("to the trial page", "t", lambda: shows(" Transcript ")),
            ("back to the run", "\x1b", lambda: shows(" Groups ")),
            ("to the events page", "E", lambda: lambda: " Groups " not in ours.text),
            ("back to the run", "\x1b", lambda: shows(" Groups ")),
            ("to the metrics page", "m", lambda: shows(" Metrics ")),
            ("cursor of the metrics page", "\x1b[D", lambda: shows("step 9998 of")),
            ("back to the run", "\x1b", lambda: shows(" Groups ")),
        ]
        for _ in range(20):
            ours.press("1")  # the arrows move in the groups again
            ours.drain(0.2)
            for name, key, effect in steps:
                times.setdefault(name, []).append(answer(key, effect()))
    figures = []
    for name, found in times.items():
        found.sort()
        where = f"key to paint, 1,024 trials: {name}"
        figures.append(Figure(f"{where}, median", statistics.median(found), "ms", 100.0))
        figures.append(Figure(f"{where}, p99 of {len(found)}", found[int(0.99 * len(found))], "ms", 100.0))
    return figures


def server(starts: int, seconds: float) -> list[Figure]:
    """What viewers cost the engine."""
    shares = {count: engine_share("busy", count, seconds) for count in (0, 1, 8)}
    figures = [
        Figure(f"engine, {WHAT}: processor with {count} viewer{'s' * (count > 1)}", shares[count] * 100, "%",
               beside=Beside("without viewers", shares[0] * 100))
        for count in (1, 8)
    ]  # fmt: skip
    slow = slow_viewer(seconds)
    return [
        *figures,
        Figure("engine in fast motion: processor beside a viewer that does not read", slow.cpu * 100, "%",
               beside=Beside("one that reads", slow.cpu_before * 100)),
        Figure("engine in fast motion: memory that a viewer which does not read takes", slow.memory / 1e6, "MB"),
        Figure("delay of an event at a viewer that reads, p99, beside one that does not", slow.delay * 1000, "ms",
               beside=Beside("alone", slow.delay_before * 1000)),
    ]  # fmt: skip


def _fast(engine: Engine, terminal: Terminal, events: int) -> None:
    """Play events in fast motion while the console paints."""
    engine.go(events)
    while not engine.answered:
        terminal.read(0.1)
    engine.answer()
    terminal.drain(1.5)


def _pair(name: str, cost: Cost, what: str, other: Cost | None) -> list[Figure]:
    return [
        Figure(f"{name}: bytes", cost.bytes_per_second / 1000, "KB/s", 15.0,
               beside=None if other is None else Beside(what, other.bytes_per_second / 1000)),
        Figure(f"{name}: processor", cost.cpu * 100, "%", 5.0,
               beside=None if other is None else Beside(what, other.cpu * 100)),
    ]  # fmt: skip


PARTS = {
    "paint": first_paints, "cost": costs, "idle": idle, "memory": memory, "keys": keys, "server": server,
}  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_json_option(parser)
    parser.add_argument("--part", action="append", choices=PARTS, help="measure only this; may be given several times")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each console is watched")
    parser.add_argument("--starts", type=int, default=5, help="how often each is started for the first paint")
    args = parser.parse_args()
    figures: list[Figure] = []
    for name in args.part or PARTS:
        before = os.getloadavg()[0]
        figures += PARTS[name](args.starts, args.seconds)
        figures.append(Figure(f"({name}) load of the machine", max(before, os.getloadavg()[0]), ""))
    emit(figures, as_json=args.json)


if __name__ == "__main__":
    main()
