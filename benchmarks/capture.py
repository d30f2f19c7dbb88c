"""The capture gateway: what it trains, stores and holds of a batch, and how fast it answers, beside the cookbook's.

    python benchmarks/capture.py [--json] [--part batch|together|busy|one|steady ...] [--trials 32] [--turns 60]
                                 [--rounds 8] [--seconds 20]

Real agents' side over HTTP from a process of its own, real files, a scripted sampler (`capture_sides`), the renderer
qwen3_5 with a vocabulary of 100k, text that people wrote (`capture_talks`). Beside each figure stands the cookbook's
proxy with its instrumentation and store, with the same conversations in the same run. Each part and side is a process.

batch     Trials of 60 turns: 2,000 tokens, then 1,050 a turn, of which 350 are sampled, to 64k. Tokens are those of
          the datums that the cookbook's `trajectory_to_data` makes; 100 % is a datum for each turn with the prompt
          that was sampled from. The cookbook's side runs one trial, and its figures are times the number of trials;
          thoughts that it does not give back to the agent are missing in its prompts. Memory is what the process
          has grown by when the sealed trials and their trajectories are held; of the cookbook's, by the rows of its
          store and theirs.
together  32 agents whose prompts have 57k to 65k tokens ask at the same moment; a sample takes 0.2 s, and latency
          is what a reply took longer than that. A first request has a conversation that the gateway never saw: all of
          it has to be rendered. Lag is of the gateway's event loop while they wait.
busy      The same turns while a Harbor runner works trials of 2 s, eight at a time, as fast as it can begin them.
one       One client on one connection, prompts of 1,000 tokens, samples that take no time: the whole exchange with
          all that the client's socket and HTTP cost, from which nothing is subtracted.
steady    Calls of 1,650 new and 350 sampled tokens in conversations of 10 turns, from 32 agents that ask again at
          once, for 20 s. The gateway, and with the cookbook its store, has one core, the agents have another. What is
          kept is counted from the files, or the store's rows 5 s later.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from capture_talks import Writer, save
from report import Beside, Figure, add_json_option, emit

HERE = Path(__file__).resolve().parent
COOKBOOK = "cookbook"
WORKING = 8
"""Trials that run beside the calls of `busy`."""


class Bench:
    """Runs parts; the conversations of each are written once for both sides."""

    def __init__(self, scratch: Path, writer: Writer, arguments: argparse.Namespace) -> None:
        self._scratch, self._writer, self.arguments = scratch, writer, arguments

    def talks(self, name: str, count: int, turns: int, **tokens: int) -> str:
        """A file of so many conversations, and a small one for the warm-up."""
        path = self._scratch / f"{name}.talks"
        small = self._writer.talk(2, first=700, new=300, sampled=100)
        save([*(self._writer.talk(turns, **tokens) for _ in range(count)), small], path)
        return str(path)

    def run(self, part: str, side: str, **options: Any) -> dict[str, Any]:
        """What a part measured on a side."""
        with tempfile.TemporaryDirectory(dir=self._scratch) as scratch:
            given = json.dumps(options | {"scratch": scratch})
            command = [sys.executable, str(HERE / "capture_parts.py"), part, side, given]
            print(f"{part}, {side}; load average {os.getloadavg()[0]:.2f}", file=sys.stderr)
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def batch(bench: Bench) -> list[Figure]:
    """Tokens, bytes and memory."""
    trials, turns = bench.arguments.trials, bench.arguments.turns
    talks = bench.talks("batch", trials, turns, first=2000, new=1050, sampled=350)
    ours = bench.run("batch", "ours", talks=talks, trials=trials)
    other = bench.run("batch", COOKBOOK, talks=talks, trials=1)
    if ours["calls"] != trials * turns or other["rows"] != turns:
        raise SystemExit(f"{ours['calls']} and {other['rows']} calls were kept of {trials} x {turns} and {turns}")
    what = f"{trials} x {turns} turns"
    return [
        Figure(f"training tokens, {what}, of a datum a turn", 100 * ours["tokens"] / ours["unbridged"], "%", 3.5,
               beside=Beside(COOKBOOK, 100 * trials * other["tokens"] / ours["unbridged"])),
        Figure(f"training tokens, {what}", ours["tokens"] / 1e6, "M",
               beside=Beside(COOKBOOK, trials * other["tokens"] / 1e6)),
        Figure(f"bytes on disk, {what}", ours["bytes"] / 1e6, "MB", 10.0,
               beside=Beside(COOKBOOK, trials * other["bytes"] / 1e6)),
        Figure(f"memory, {what}", ours["resident"] / 1e6, "MB", 300.0,
               beside=Beside(COOKBOOK, trials * other["resident"] / 1e6)),
    ]  # fmt: skip


def together(bench: Bench) -> list[Figure]:
    """Latency and lag under 32 long prompts at once."""
    trials, rounds = bench.arguments.trials, bench.arguments.rounds
    history = max(1, bench.arguments.turns - rounds - 1)
    talks = bench.talks("together", trials, history + rounds + 1, first=2000, new=1310, sampled=350)
    options = {"talks": talks, "trials": trials, "history": history, "delay": 0.2}
    ours = bench.run("together", "ours", rounds=rounds, **options)
    other = bench.run("together", COOKBOOK, rounds=2, **options)
    figures = []
    for name, what in (("turns", "turns"), ("first", "first requests")):
        target = {"turns": (250.0, 50.0), "first": (None, 50.0)}[name]
        mine, theirs = ours[name], other[name]
        label = f"{trials} {what} at once, {mine['tokens'][-1] / 1000:.0f}k tokens"
        figures += [
            Figure(f"{label}: added latency p99", 1000 * _part(mine["added"], 0.99), "ms", target[0],
                   beside=Beside(COOKBOOK, 1000 * _part(theirs["added"], 0.99))),
            Figure(f"{label}: added latency median", 1000 * _part(mine["added"], 0.5), "ms",
                   beside=Beside(COOKBOOK, 1000 * _part(theirs["added"], 0.5))),
            Figure(f"{label}: loop lag, most", 1000 * mine["late"][-1], "ms", target[1],
                   beside=Beside(COOKBOOK, 1000 * theirs["late"][-1])),
            Figure(f"{label}: loop lag p99", 1000 * _part(mine["late"], 0.99), "ms",
                   beside=Beside(COOKBOOK, 1000 * _part(theirs["late"], 0.99))),
        ]  # fmt: skip
    return figures


def busy(bench: Bench) -> list[Figure]:
    """Latency and lag of long prompts while a runner works its trials beside them."""
    trials, rounds = bench.arguments.trials, bench.arguments.rounds
    history = max(1, bench.arguments.turns - rounds - 1)
    talks = bench.talks("busy", trials, history + rounds + 1, first=2000, new=1310, sampled=350)
    found = bench.run(
        "busy", "ours", talks=talks, trials=trials, history=history, rounds=rounds, delay=0.2, working=WORKING
    )
    if not found["done"]:
        raise SystemExit("no trial ended meanwhile")
    turns = found["turns"]
    label = f"{trials} turns at once beside {WORKING} trials of 2 s"
    return [
        Figure(f"{label}: added latency p99", 1000 * _part(turns["added"], 0.99), "ms", 250.0),
        Figure(f"{label}: loop lag, most", 1000 * turns["late"][-1], "ms", 50.0),
        Figure(f"{label}: loop lag p99", 1000 * _part(turns["late"], 0.99), "ms"),
    ]


def one(bench: Bench) -> list[Figure]:
    """What one request costs."""
    count = 100
    talks = bench.talks("one", count, 4, first=950, new=40, sampled=30)
    ours = bench.run("one", "ours", talks=talks, trials=count)
    other = bench.run("one", COOKBOOK, talks=talks, trials=count)
    return [
        Figure(f"one request, 1k tokens, {what}, {label}", 1000 * _part(ours[name], part), "ms", 5.0,
               beside=Beside(COOKBOOK, 1000 * _part(other[name], part)))
        for name, what in (("first", "first"), ("turns", "turn"))
        for part, label in ((0.5, "median"), (0.99, "p99"))
    ]  # fmt: skip


def steady(bench: Bench) -> list[Figure]:
    """Calls a second on one core, and what is lost."""
    count, seconds = 32, bench.arguments.seconds
    talks = bench.talks("steady", count, 10, first=2000, new=2000, sampled=350)
    options = {
        "talks": talks, "trials": count, "agents": max(64, int(60 * seconds)), "width": 32, "delay": 0.02,
        "seconds": seconds, "pinned": True,
    }  # fmt: skip
    ours, other = bench.run("steady", "ours", **options), bench.run("steady", COOKBOOK, **options)
    rate = [side["replies"] / side["seconds"] for side in (ours, other)]
    return [
        Figure("sustained on one core, calls of 2k tokens", rate[0], "calls/s", 200.0, "higher",
               Beside(COOKBOOK, rate[1])),
        Figure("replies that are not kept", ours["replies"] - ours["kept"], "", 0.0,
               beside=Beside(COOKBOOK, other["replies"] - other["kept"])),
    ]  # fmt: skip


def _part(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if part != 0.5 else statistics.median(ordered)


PARTS = {"batch": batch, "together": together, "busy": busy, "one": one, "steady": steady}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_json_option(parser)
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be repeated")
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=8, help="turns that all agents take at once")
    parser.add_argument("--seconds", type=float, default=20.0, help="of the sustained load")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qd-bench-") as scratch:
        bench = Bench(Path(scratch), Writer(1200 * arguments.trials * arguments.turns), arguments)
        figures = [figure for name in arguments.part or PARTS for figure in PARTS[name](bench)]
    figures.append(Figure("load of the machine", os.getloadavg()[0], ""))
    emit(figures, arguments.json)


if __name__ == "__main__":
    main()
