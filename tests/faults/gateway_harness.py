"""Runs behind a gateway in trouble: `python -m tests.faults.gateway_harness [--only NAME] [--seed S] [--keep DIR]`.

Each round is a run of six steps through the real command against `gateway serve` behind a relay, with one trouble at
one moment; while it lasts, the engine's commands are tried. A run that the trouble ends is resumed until it completes.
Prints a line a round and a summary; exit code 1 when a round broke a rule.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(Path(__file__).parent)]

from gateway_faults import FaultyGateway  # noqa: E402
from gateway_rounds import Round, Stage, rounds  # noqa: E402
from served_gateway import ServedGateway  # noqa: E402
from test_resume_replayed import check_lineage  # noqa: E402
from whole_runs import Run, processes_of  # noqa: E402

from console.control.blocking import new_command, send_command  # noqa: E402
from console.control.runs import run_at  # noqa: E402
from console.errors import QuarterdeckError  # noqa: E402
from console.journal import events as ev  # noqa: E402
from console.journal.reader import Journal  # noqa: E402
from console.outcomes.classes import SCORED  # noqa: E402
from console.records.run_dir import RunRecord  # noqa: E402

STEPS = 6
MODEL = "quarterdeck/midshipman"
RESUMES = 4
LIMIT_SECONDS = 280.0
WORDS = (
    f"config.model_name={MODEL}", "config.renderer_name=qwen3_instruct", "config.lora_rank=8",
    "config.learning_rate=3e-3", "config.max_tokens=24", "config.loss_fn=ppo", "config.ttl_seconds=None",
    "config.save_every=2", "config.eval_every=0", "config.num_groups_to_log=0", "config.rollout_json_export=false",
    f"config.dataset_builder.tasks_dir={ROOT / 'configs/tasks'}", "config.dataset_builder.groups_per_batch=2",
    "config.dataset_builder.group_size=3", "config.dataset_builder.epochs=9",
    f"harbor.trial_config={ROOT / 'configs/trials/terminal-bwrap.json'}", "harbor.max_parallel_trials_per_group=3",
    "console.probe_interval=1",
)  # fmt: skip


@dataclass
class Seen:
    """What a round came to. `codes`: exit codes in order; `reasons`: what the ends said; `delays`: seconds."""

    name: str
    codes: list[int] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    failed_commands: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    seconds: float = 0.0
    quiet: float = 0.0

    def line(self) -> str:
        """For the log."""
        p99 = statistics.quantiles(self.delays, n=100)[98] * 1000 if len(self.delays) > 1 else float("nan")
        said = "; ".join(f"{code} {reason}".strip() for code, reason in zip(self.codes, self.reasons))
        return (
            f"{'ok ' if not self.broken else 'BAD'} {self.name}: {self.seconds:.0f} s, {len(self.delays)} commands p99 "
            f"{p99:.0f} ms max {max(self.delays, default=0.0) * 1000:.0f} ms, quietest {self.quiet:.1f} s, "
            f"alarms {','.join(self.alarms) or '-'}, ends: {said}"
            + "".join(f"\n    ! {text}" for text in (*self.broken, *self.failed_commands[:3]))
        )


class Commands(threading.Thread):
    """An operator who looks, pauses and resumes all the time, through the engine's socket."""

    def __init__(self, run_dir: Path, seen: Seen) -> None:
        super().__init__(daemon=True)
        self._run_dir, self._seen = run_dir, seen
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.25):
            try:
                live = run_at(self._run_dir)
            except QuarterdeckError:
                continue
            if live.state != "live" or live.socket is None:
                continue
            for name in ("pause", "resume"):
                begun = time.monotonic()
                try:
                    answer = send_command(live.socket, new_command(name), timeout=20)
                except QuarterdeckError as problem:
                    if run_at(self._run_dir).alive():
                        self._seen.failed_commands.append(str(problem))
                    break
                if answer.status in ("done", "accepted", "refused"):
                    self._seen.delays.append(time.monotonic() - begun)


def train(run_dir: Path, words: list[str], log: Path) -> subprocess.Popen[bytes]:
    """The command, headless; its output goes to a file."""
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "console", "train", *words, "--headless"],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=ROOT,
        )  # fmt: skip


class Troubles:
    """Makes a round's troubles at their moments, each on a thread of its own."""

    def __init__(self, round_: Round, stage: Stage, run_dir: Path) -> None:
        self._left, self._stage = list(round_.troubles), stage
        self._path, self._after = run_dir / "journal", 0
        self._journal: Journal | None = None
        self._acts: list[threading.Thread] = []

    @property
    def left(self) -> int:
        """Troubles whose moment has not come."""
        return len(self._left)

    def look(self) -> None:
        """Read on in the journal."""
        if self._journal is None:
            if not self._path.is_dir():
                return
            self._journal = Journal(self._path)
        self._journal.refresh()
        for event in self._journal.events(self._after):
            self._after = event.seq
            if self._left and self._left[0][0](event):
                act = threading.Thread(target=self._left.pop(0)[1], args=(self._stage,), daemon=True)
                self._acts.append(act)
                act.start()

    def settle(self) -> None:
        """Wait for the end of those that were begun."""
        for act in self._acts:
            act.join(120)


def play(round_: Round, home: Path, gateway: ServedGateway) -> Seen:
    """One round, from the first start to the last resume."""
    seen = Seen(round_.name)
    run_dir, log = home / "run", home / "out.log"
    begun = time.monotonic()
    with FaultyGateway(gateway.url) as faulty:
        words = [f"config.base_url={faulty.url}", f"config.log_path={run_dir}", f"config.max_steps={STEPS}"]
        words += [*WORDS, *round_.words]
        troubles, commands = Troubles(round_, Stage(faulty, gateway), run_dir), Commands(run_dir, seen)
        commands.start()
        try:
            for _ in range(1 + RESUMES):
                process = train(run_dir, words, log)
                hung = time.monotonic() + LIMIT_SECONDS
                while process.poll() is None and time.monotonic() < hung:
                    troubles.look()
                    time.sleep(0.02)
                if process.poll() is None:
                    seen.broken.append(f"it hangs: {standing(run_dir)}")
                    live = run_at(run_dir)
                    process.kill()
                    process.wait()
                    if live.pid is not None and live.alive():
                        os.kill(live.pid, signal.SIGKILL)
                    break
                seen.codes.append(process.returncode)
                seen.reasons.append(RunRecord(run_dir).view_at_end().state.reason)
                if process.returncode == 0:
                    break
                troubles.settle()
                faulty.clear()
        finally:
            commands.over.set()
            commands.join(30)
            troubles.settle()
    seen.seconds = time.monotonic() - begun
    if troubles.left:
        seen.broken.append(f"{troubles.left} moments never came")
    judge(seen, run_dir)
    return seen


def standing(run_dir: Path) -> str:
    """What a person is told of a run that does not go on."""
    state = RunRecord(run_dir).view_at_end().state
    alarms = [f"{alarm.key}: {alarm.text}" for alarm in state.alarms.values()]
    return f"phase {state.phase}, gateway {state.gateway.detail!r}, waiting {state.gateway.waiting!r}, alarms {alarms}"


def judge(seen: Seen, run_dir: Path) -> None:
    """Add what is broken."""
    record = RunRecord(run_dir)
    run = Run(seen.codes[-1] if seen.codes else -1, record.view_at_end(), run_dir)
    seen.alarms = sorted({e.key for e in run.of(ev.AlarmOpened) if e.key.startswith(("gateway", "infra", "stalled"))})
    rules: list[Callable[[], None]] = [
        lambda: expect(seen.codes[-1:] == [0], "it did not complete"),
        lambda: expect(all(map(told, seen.codes[:-1], seen.reasons)), f"it ended with {seen.codes[:-1]}"),
        lambda: expect(record.damage == [], f"damage: {record.damage}"),
        lambda: expect(run.view == run.folded(), "replay differs from live"),
        lambda: expect([row.step for row in run.view.history.rows] == list(range(STEPS)), "steps are not once each"),
        lambda: check_lineage(run),
        lambda: check_scores(run),
        lambda: expect(not processes_of(run_dir), f"left: {processes_of(run_dir)}"),
        lambda: expect(not seen.failed_commands, "commands failed"),
        lambda: expect(not seen.delays or max(seen.delays) < 5.0, "a command was slow"),
    ]
    for rule in rules:
        try:
            rule()
        except AssertionError as problem:
            seen.broken.append(" ".join(str(problem).split())[:400] or "an assertion failed")
    seen.quiet = quietest(run)


def told(code: int, reason: str) -> bool:
    """Whether an end is one of those that an outage may have: lost, or a trial that the outage took the time of."""
    return (code == 5 and reason != "") or (code == 4 and "infrastructure api" in reason)


def expect(holds: bool, text: str) -> None:
    """Raise `AssertionError` with the text unless it holds."""
    if not holds:
        raise AssertionError(text)


def check_scores(run: Run) -> None:
    """No try is scored whose last call the gateway failed, and none twice."""
    last: dict[tuple[int, int, int, int], str] = {}
    scored: set[tuple[int, int, int, int]] = set()
    engine = 0
    for event in run.events:
        if isinstance(event, ev.RunStarted):
            engine += 1
        elif isinstance(event, ev.TrialTurn):
            last[event.step, event.group, event.trial, event.try_] = event.status
        elif isinstance(event, ev.TrialFinished) and event.outcome in SCORED and not event.reused:
            key = (event.step, event.group, event.trial, event.try_)
            expect(key not in scored, f"{key} is scored twice")
            scored.add(key)
            expect(last.get(key) != "backend", f"{key} is scored {event.reward} by an outage")


def quietest(run: Run) -> float:
    """The longest time between two events while an engine lived, seconds."""
    gaps = [
        b.ts - a.ts for a, b in zip(run.events, run.events[1:])
        if not isinstance(b, ev.RunStarted) and not isinstance(a, ev.RunFinished)
    ]  # fmt: skip
    return max(gaps, default=0.0)


def main() -> int:
    """Play the rounds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", help="rounds whose name contains this")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="keep the run directories of bad rounds here")
    args = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="gateways-"))
    os.environ["QUARTERDECK_STATE_DIR"] = str(home / "state")
    os.environ["TINKER_API_KEY"] = "tml-harness"
    results: list[Seen] = []
    try:
        with ServedGateway(home / "gateway", "--max-models", "64") as gateway:
            for number, round_ in enumerate(rounds(args.seed)):
                if args.only and not any(word in round_.name for word in args.only):
                    continue
                place = home / f"r{number}"
                place.mkdir()
                seen = play(round_, place, gateway)
                results.append(seen)
                print(seen.line(), flush=True)
                if seen.broken and args.keep:
                    shutil.copytree(place, args.keep / f"r{number}", symlinks=True, dirs_exist_ok=True)
                shutil.rmtree(place, ignore_errors=True)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    delays = sorted(delay for seen in results for delay in seen.delays)
    print(
        json.dumps(
            {
                "rounds": len(results),
                "bad": [seen.name for seen in results if seen.broken],
                "went on": sum(seen.codes == [0] for seen in results),
                "resumed": sum(len(seen.codes) > 1 for seen in results),
                "commands": len(delays),
                "p99_ms": round(delays[int(len(delays) * 0.99)] * 1000) if delays else None,
                "max_ms": round(delays[-1] * 1000) if delays else None,
                "quietest_s": round(max((seen.quiet for seen in results), default=0.0), 1),
            }
        )
    )
    return 1 if any(seen.broken for seen in results) else 0


if __name__ == "__main__":
    sys.exit(main())
