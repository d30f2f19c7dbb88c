"""How fast the journal is: 250,000 events of a run of 64 groups x 16 trials, written, sealed, opened and folded."""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from report import Beside, Figure, add_json_option, emit

from console.journal import events as ev
from console.journal.reader import Journal
from console.journal.writer import JournalWriter
from console.records.run_dir import RunRecord
from console.state.model import encode_state
from console.state.reduce import RunView, apply, fold

GROUPS, TRIALS = 64, 16
PHASES = ("create", "environment", "setup", "agent")


def run_events(count: int, rng: random.Random) -> Iterator[ev.Event]:
    """`count` events as a run writes them: trials interleaved, up to 100 turns each, a few of each kind of trouble."""
    yield from itertools.islice(_run(rng), count - 1)
    yield ev.RunFinished(status="completed", exit_code=0, steps=3)


def _run(rng: random.Random) -> Iterator[ev.Event]:
    yield ev.RunStarted(
        run_id="20261129-181500-a1b2",
        name="terminal-ppo",
        run_dir="/data/runs/terminal-ppo",
        pid=4711,
        model="Qwen/Qwen3-30B-A3B",
        versions={"tinker": "0.38.0", "tinker_cookbook": "0.5.8", "harbor": "0.26.1", "quarterdeck": "0.1.0"},
        config={f"config.option_{i}": rng.random() for i in range(40)},
        groups_per_batch=GROUPS,
        group_size=TRIALS,
    )
    yield ev.RunPlanned(steps=500, tasks=GROUPS * 500)
    step = 0
    while True:
        yield from _step(step, rng)
        step += 1


def _step(step: int, rng: random.Random) -> Iterator[ev.Event]:
    yield ev.StepStarted(step=step, groups=GROUPS, policy_version=step)
    for group in range(GROUPS):
        yield ev.GroupStarted(step=step, group=group, task=f"terminal/task-{rng.randrange(2000):04d}", size=TRIALS)
    trials = [_trial(step, g, t, rng) for g in range(GROUPS) for t in range(TRIALS)]
    open_trials = dict.fromkeys(range(len(trials)))
    left = dict.fromkeys(range(GROUPS), TRIALS)
    keys = list(open_trials)
    calls = sampled = 0
    while keys:
        position = rng.randrange(len(keys))
        event = next(trials[keys[position]], None)
        if event is not None:
            yield event
            if isinstance(event, ev.TrialTurn):
                calls, sampled = calls + 1, sampled + event.sampled_tokens
                if calls % 300 == 0:
                    yield ev.CaptureStats(calls=calls, prompt_tokens=calls * 9000, sampled_tokens=sampled, inflight=900)
                if calls % 3000 == 0:
                    yield ev.GatewayHealth(reachable=True, latency_ms=rng.random() * 90, queued=3, running=64)
            continue
        group = keys[position] // TRIALS
        keys[position] = keys[-1]
        keys.pop()
        left[group] -= 1
        if not left[group]:
            yield ev.GroupFinished(step=step, group=group, kept=True, reward_mean=rng.random(), reward_std=0.3)
    yield ev.RunPhase(phase="training")
    yield ev.CheckpointSaved(name=f"{step:06d}", step=step, path=f"tinker://run/weights/{step:06d}")
    yield ev.StepFinished(
        step=step,
        reward_mean=rng.random(),
        reward_std=rng.random(),
        outcomes={"completed": 1000, "agent_timeout": 20, "infrastructure": 4},
        groups_kept=GROUPS,
        ppo_loss=rng.random(),
        clip_fraction=rng.random(),
        kl_sample_train_v1=rng.random(),
        entropy=rng.random(),
        tokens_prompt=calls * 9000,
        tokens_sampled=sampled,
        tokens_trained=sampled,
        seconds_rollout=900.1,
        seconds_train=200.2,
        seconds_total=1120.5,
        policy_version=step + 1,
    )


def _trial(step: int, group: int, trial: int, rng: random.Random) -> Iterator[ev.Event]:
    where = {"step": step, "group": group, "trial": trial}
    for phase in PHASES:
        yield ev.TrialPhase(phase=phase, **where)
    turns = min(100, int(rng.gauss(78, 20)))
    prompt = total = 0
    for turn in range(1, turns + 1):
        prompt += rng.randrange(40, 600)
        tokens = rng.randrange(20, 400)
        total += tokens
        yield ev.TrialTurn(
            turn=turn, prompt_tokens=prompt, sampled_tokens=tokens, seconds=round(rng.expovariate(0.4), 4), **where
        )
    yield ev.TrialPhase(phase="verify", **where)
    bad = rng.random() < 0.03
    yield ev.TrialFinished(
        outcome="infrastructure" if bad else "completed",
        cause="sandbox" if bad else "",
        rule="sandbox.lost" if bad else "verifier.reward",
        evidence="SandboxException: the sandbox was not found" if bad else "",
        exception="SandboxException" if bad else None,
        reward=None if bad else float(rng.random() < 0.5),
        trial_dir=f"/data/runs/terminal-ppo/trials/s{step}.g{group}.t{trial}.y0",
        turns=turns,
        prompt_tokens=prompt,
        sampled_tokens=total,
        seconds={p: round(rng.random() * 60, 3) for p in (*PHASES, "verify", "total")},
        **where,
    )


def _events(count: int) -> list[ev.Event]:
    return list(run_events(count, random.Random(1)))


def _write(directory: Path, events: list[ev.Event], reduce: bool, seal: bool = True) -> float:
    """Seconds from the first append until all is sealed, the engine's own reducing and snapshots included."""
    view = RunView()
    clock = iter(range(10**9))
    start = time.perf_counter()
    writer = JournalWriter(
        directory,
        snapshot=(lambda: (encode_state(view.state), view.state.steps_done)) if reduce else None,
        clock=lambda: 1.79e9 + next(clock) * 0.003217,
    )
    if reduce:
        writer.subscribe(lambda line, event: apply(view, event))
    for event in events:
        writer.append(event)
    writer.close(seal=seal)
    return time.perf_counter() - start


def _median(action: Callable[[], object], times: int = 3) -> float:
    def once() -> float:
        start = time.perf_counter()
        action()
        return time.perf_counter() - start

    return statistics.median(once() for _ in range(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=250_000)
    add_json_option(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        bare = _write(root / "bare" / "journal", _events(args.events), reduce=False)
        seconds = statistics.median(
            _write(root / f"run{n}" / "journal", _events(args.events), reduce=True) for n in range(3)
        )
        directory = root / "run0" / "journal"
        size = sum(path.stat().st_size for path in directory.iterdir()) / 1e6
        journal = Journal(directory)
        count = sum(1 for _ in journal.lines())
        raw = sum(len(line) + 1 for line in journal.lines()) / 1e6
        snapshots = sum(isinstance(event, ev.Snapshot) for event in journal.events())
        middle = journal.last_seq // 2
        opening = _median(lambda: RunRecord(directory.parent).view_at_end())
        seeking = _median(lambda: RunRecord(directory.parent).view_at(seq=middle))
        _write(root / "killed" / "journal", _events(78_000), reduce=True, seal=False)
        killed = _median(lambda: RunRecord(root / "killed").view_at_end())
        folding = _median(lambda: fold(Journal(directory).events()), times=1)
    emit(
        [
            Figure(
                "journal: events written, reduced, snapshotted and sealed",
                count / seconds,
                "events/s",
                100_000,
                "higher",
                Beside("without reducing and snapshots", args.events / bare),
            ),
            Figure("journal: size when sealed", size, "MB", 10, beside=Beside("as plain lines", raw)),
            Figure("journal: snapshots", snapshots, "", None),
            Figure("journal: opening at the end", opening, "s", 0.3),
            Figure("journal: opening after a kill, active chunk of 16 MB", killed, "s", 0.3),
            Figure("journal: seeking to the middle", seeking, "s", 0.3),
            Figure("journal: full fold", folding, "s", 5),
        ],
        as_json=args.json,
    )


if __name__ == "__main__":
    main()
