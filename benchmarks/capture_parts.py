"""One part of `capture.py` on one side, in a process of its own: `python capture_parts.py PART SIDE JSON`.

The JSON has `talks` (a file), `scratch` (a directory) and the part's own numbers. What was measured is printed as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from capture_sides import DATABASE, RUN, Cookbook, Lag, Ours, Script, resident
from capture_talks import Talk, load

HERE = Path(__file__).resolve().parent


async def client(plan: dict[str, Any], core: int | None = None) -> dict[str, Any]:
    """What the agents' process measured."""
    command = [sys.executable, str(HERE / "capture_client.py")]
    if core is not None:
        command = ["taskset", "-c", str(core), *command]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 26
    )
    out, _ = await process.communicate(json.dumps(plan).encode())
    if process.returncode:
        raise SystemExit(f"the agents' process ended with {process.returncode}")
    found: dict[str, Any] = json.loads(out)
    return found


class Stage:
    """A side with its trials. `delay`: seconds that a sample takes; `history`: turns that conversations have before."""

    def __init__(self, side: Ours | Cookbook, port: int, talks: list[Talk], options: dict[str, Any]) -> None:
        self.side, self._port, self._talks, self._options = side, port, talks, options
        self._opened = 0

    async def trials(self, talks: list[int], delay: float = 0.0, history: int = 0) -> list[dict[str, Any]]:
        """The plan's trials, one for each of these conversations."""
        opened = []
        for index in talks:
            trial = await self.side.trial(self._opened, Script(self._talks[index], delay, history))
            # What was rendered before may be remembered: no two trials have the same text.
            opened.append(trial | {"talk": index, "mark": f"\n{self._opened} done"})
            self._opened += 1
        return opened

    def plan(self, mode: str, trials: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        """For `client`."""
        return {"mode": mode, "port": self._port, "talks": self._options["talks"], "trials": trials, **more}

    async def warm(self) -> None:
        """Load what is loaded on first use, and have it out of the collector's way, as the engine does.

        The last conversation is kept for this.
        """
        await client(self.plan("talk", await self.trials([len(self._talks) - 1]), width=1))
        gc.collect()
        gc.freeze()


async def batch(stage: Stage, options: dict[str, Any]) -> dict[str, Any]:
    """Trials from their first call to what is trained: tokens, bytes, memory."""
    from tinker_cookbook.rl.data_processing import trajectory_to_data

    from console.training.trajectories import trajectory

    side = stage.side
    await stage.warm()
    idle, empty = resident(), side.bytes()
    trials = await stage.trials(list(range(options["trials"])))
    await client(stage.plan("talk", trials, width=min(8, len(trials))))
    if isinstance(side, Cookbook):
        await asyncio.to_thread(side.exporter.force_flush, 120.0)
        return {"bytes": side.bytes() - empty} | await _rows(side.directory / DATABASE)
    sealed = (await side.sealed())[1:]
    trajectories = [trajectory(captured) for captured in sealed]
    gc.collect()
    grown = resident() - idle
    lengths = [datum.model_input.length for one in trajectories for datum in trajectory_to_data(one, 1.0)]
    each = [turn.ob.length + len(turn.ac.tokens) - 1 for one in trajectories for turn in one.transitions]
    (side.directory / "step-000000" / "s0.g0.t0.y0.calls.zst").unlink()  # of the warm-up
    return {
        "tokens": sum(lengths), "unbridged": sum(each), "sequences": len(lengths), "resident": grown,
        "bytes": side.bytes(), "calls": side.rows(),
    }  # fmt: skip


async def _rows(database: Path) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "rows", str(database), "{}", stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    found: dict[str, Any] = json.loads(out)
    return found


def rows(database: str) -> dict[str, Any]:
    """The cookbook's rows of its trials, without the first, made to trajectories: memory and tokens."""
    import tinker
    from tinker_cookbook.capture.store.db import CaptureDB
    from tinker_cookbook.completers import TokensWithLogprobs
    from tinker_cookbook.rl.data_processing import trajectory_to_data
    from tinker_cookbook.rl.types import Trajectory, Transition

    store = CaptureDB(Path(database))
    gc.collect()
    idle = resident()
    found = [row for row in store.query_rows(RUN) if row["traj_idx"] > 0]
    gc.collect()
    turns: dict[int, list[Transition]] = {}
    for row in found:
        ac = TokensWithLogprobs(row["sampled_tokens"], row["logprobs"], "stop")
        turn = Transition(tinker.ModelInput.from_ints(row["prompt_tokens"]), ac, 0.0, False)
        turns.setdefault(row["traj_idx"], []).append(turn)
    trajectories = [Trajectory(one, tinker.ModelInput.empty(), stop_reason=None) for one in turns.values()]
    grown = resident() - idle
    lengths = [datum.model_input.length for one in trajectories for datum in trajectory_to_data(one, 1.0)]
    return {"tokens": sum(lengths), "sequences": len(lengths), "resident": grown, "rows": len(found)}


async def together(stage: Stage, options: dict[str, Any]) -> dict[str, Any]:
    """All agents ask at once, with long prompts: first a request that was never seen, then turns that go on."""
    await stage.warm()
    trials = await stage.trials(list(range(options["trials"])), options["delay"], options["history"])
    lag = Lag()
    plan = stage.plan("rounds", trials, turns=1 + options["rounds"], history=options["history"])
    found = await client(plan)
    lag.stop()
    parts = {}
    for name, some in (("first", found["rounds"][:1]), ("turns", found["rounds"][1:])):
        added = [seconds - options["delay"] for one in some for seconds in one["seconds"]]
        late = [late for one in some for late in lag.between(one["began"], one["ended"])]
        prompts = [tokens for one in some for tokens in one["prompts"]]
        parts[name] = {"added": sorted(added), "late": sorted(late), "tokens": [min(prompts), max(prompts)]}
    return parts


async def busy(stage: Stage, options: dict[str, Any]) -> dict[str, Any]:
    """As `together`, while a runner works real trials of some two seconds, one after the other in each place."""
    from trials import Bench, make_task

    scratch = Path(options["scratch"])
    runner = Bench(scratch)
    await runner.pool.start()
    task, done = make_task(scratch, "busy", "sleep 2"), 0

    async def work() -> None:
        nonlocal done
        while True:
            report, _ = await runner.trial(task)
            if report.rewards != {"reward": 1.0}:
                raise SystemExit(f"a trial failed: {report}")
            done += 1

    places = [asyncio.ensure_future(work()) for _ in range(options["working"])]
    try:
        return await together(stage, options) | {"done": done}
    finally:
        for place in places:
            place.cancel()
        await asyncio.gather(*places, return_exceptions=True)
        await runner.pool.close()


async def one(stage: Stage, options: dict[str, Any]) -> dict[str, Any]:
    """One agent after the other, one request at a time."""
    await stage.warm()
    found = await client(stage.plan("talk", await stage.trials(list(range(options["trials"]))), width=1))
    seconds = found["seconds"]
    return {
        "first": sorted(times[0] for times in seconds),
        "turns": sorted(each for times in seconds for each in times[1:]),
    }


async def steady(stage: Stage, options: dict[str, Any]) -> dict[str, Any]:
    """As many calls as one core serves."""
    await stage.warm()
    before = await _kept(stage.side)
    trials = await stage.trials([index % options["trials"] for index in range(options["agents"])], options["delay"])
    used = time.process_time()
    plan = stage.plan("steady", trials, width=options["width"], seconds=options["seconds"])
    found = await client(plan, core=max(os.sched_getaffinity(os.getppid())))
    used = time.process_time() - used
    return found | {"kept": await _kept(stage.side) - before, "cpu": used}


async def _kept(side: Ours | Cookbook) -> int:
    if isinstance(side, Cookbook):
        await asyncio.to_thread(side.exporter.force_flush, 5.0)
    return await asyncio.to_thread(side.rows)


PARTS = {"batch": batch, "together": together, "busy": busy, "one": one, "steady": steady}


async def run(part: str, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Measure."""
    side = Ours(Path(options["scratch"])) if name == "ours" else Cookbook(Path(options["scratch"]))
    port = await side.start()
    try:
        return await PARTS[part](Stage(side, port, load(options["talks"]), options), options)
    finally:
        await side.stop()


def main() -> None:
    """Run the part that the arguments name."""
    part, name, given = sys.argv[1:]
    if part == "rows":
        print(json.dumps(rows(name)))
        return
    options = json.loads(given)
    if options.get("pinned"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(json.dumps(asyncio.run(run(part, name, options))))


if __name__ == "__main__":
    main()
