"""Engines to look at: real boards (journal, alarms, audit, socket) of runs that are played by a program.

As a program it is such an engine, in a process of its own: `python engines.py SCENE RUN_DIR SOCKET`. A line
`go N` on its input plays N events of an ordinary run as fast as viewers are expected to follow; `done` answers it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import random
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from terminal import ROOT

from console.capture.ids import new_node
from console.capture.journal import CallJournal, TrialJournal
from console.control.commands import Command
from console.engine.board import Board
from console.journal import events as ev
from console.records.capture_format import Intent, KeptMessage, Opened, Outcome, ids_bytes, logprobs_bytes
from console.records.manifest import Manifest, write_manifest

HERTZ = 4
FAST = 3_000
"""Events a second in fast motion: about a hundred times those of a real run of this size."""
_WORDS = ("the", "agent", "reads", "src/parser.py", "and", "runs", "12", "tests:", "3", "of", "them", "fail")


@dataclass(frozen=True)
class Scene:
    """A run.

    Attributes:
        groups, size: of the step at hand; live: trials of it that are at work, the others are done or wait.
        dirty: trials whose call ends, `hertz` times a second; history: finished steps before.
        talks: captured calls are written down with their text; syncs: what must be on the disk is put there.
    """

    groups: int = 8
    size: int = 8
    live: int = 64
    dirty: int = 8
    hertz: int = HERTZ
    history: int = 12
    talks: bool = False
    syncs: bool = True

    @property
    def trials(self) -> int:
        """Trials of the step."""
        return self.groups * self.size


SCENES = {
    "busy": Scene(),
    "idle": Scene(dirty=0),
    "diskless": Scene(dirty=0, syncs=False),
    "talking": Scene(talks=True),
    "large": Scene(groups=64, size=16, live=512, dirty=10, hertz=20, history=10_000),
}


def step_row(step: int, groups: int) -> ev.StepFinished:
    """Step `step` of a run that learns."""
    fade, noise = math.exp(-step / 2500), math.sin(step * 12.9898) * 43758.5453 % 1.0
    return ev.StepFinished(
        step=step, reward_mean=0.85 - 0.6 * fade + 0.1 * noise, reward_std=0.3, groups_kept=groups,
        outcomes={"completed": 30, "agent_timeout": 1 + step % 2}, groups_zero_variance=step % 3,
        ppo_loss=12 * fade + noise - 1, clip_fraction=0.03 * fade + 0.01 * noise, kl_sample_train_v1=0.002 * noise,
        kl_sample_train_v2=0.001 + 0.001 * noise, kl_sample_train_k3=0.0014, entropy=0.3 + 0.5 * fade + 0.05 * noise,
        grad_norm=0.5 + fade * noise, learning_rate=5e-4, tokens_prompt=300_000 + step, tokens_sampled=30_000 + step,
        tokens_trained=25_000, policy_version=step + 1, seconds_rollout=2000 + 300 * noise, seconds_train=160.0,
        seconds_save=22.0, seconds_total=2190 + 300 * noise,
    )  # fmt: skip


class Accepts:
    """Takes every command, and does it at once."""

    def describe(self, command: Command) -> tuple[bool, str]:
        """It can be done."""
        return True, f"{command.command}: nothing is lost by it"

    async def execute(self, command: Command) -> tuple[bool, str]:
        """Nothing is behind it."""
        return True, "done"


class Player:
    """Plays a scene on a board."""

    def __init__(self, board: Board, scene: Scene, run_dir: Path) -> None:
        self._emit, self._scene, self._run_dir = board.emit, scene, run_dir
        self._rng = random.Random(7)
        self._step = scene.history
        self._turns = [0] * scene.trials
        self._sampled = 0
        self._calls = CallJournal(run_dir / "capture") if scene.talks else None
        self._files: dict[str, TrialJournal] = {}
        self._log = (run_dir / "turns.log").open("a", buffering=1) if scene.talks else None

    def begin(self, socket: Path) -> None:
        """The run so far, up to a step at work."""
        scene, emit = self._scene, self._emit
        emit(
            ev.RunStarted(
                run_id="bench", name="bench", run_dir=str(self._run_dir), pid=os.getpid(), socket=str(socket),
                steps=20_000, groups_per_batch=scene.groups, group_size=scene.size,
                config={f"config.option_{n}": n for n in range(40)},
            )
        )  # fmt: skip
        for step in range(scene.history):
            emit(ev.StepStarted(step=step, groups=scene.groups, policy_version=step))
            emit(step_row(step, scene.groups))
        self._start_step()
        for at in range(scene.live, scene.trials):
            if at % 4:  # a quarter of them still waits
                self._end_trial(at)
        for at in range(scene.live):
            emit(ev.TrialPhase(**self._where(at), phase="agent"))
        emit(ev.GatewayHealth(reachable=True, latency_ms=31.0, queued=2, running=32))

    async def play(self) -> None:
        """On and on."""
        scene, ticks = self._scene, itertools.count(1)
        while True:
            await asyncio.sleep(1 / scene.hertz)
            tick = next(ticks)
            for at in self._rng.sample(range(scene.live), scene.dirty):
                self._turn(at)
            if scene.dirty and tick % scene.hertz == 0:
                self._totals()
            if tick % (10 * scene.hertz) == 0 or (scene.dirty and tick % scene.hertz == 0):
                rng = self._rng
                self._emit(
                    ev.GatewayHealth(
                        reachable=True, latency_ms=rng.uniform(20, 60), queued=rng.randrange(5), running=32
                    )
                )

    async def fast(self, events: int) -> None:
        """So many events of an ordinary run, faster than real."""
        pause = 0.01
        stream = itertools.islice(self._life(), events)
        while batch := list(itertools.islice(stream, int(FAST * pause))):
            for event in batch:
                self._emit(event)
            await asyncio.sleep(pause)

    # --- inside ---

    def _where(self, at: int) -> dict[str, int]:
        group, trial = (at % self._scene.groups, at // self._scene.groups)
        return {"step": self._step, "group": group, "trial": trial}

    def _start_step(self) -> None:
        scene = self._scene
        self._emit(ev.StepStarted(step=self._step, groups=scene.groups, policy_version=self._step))
        for group in range(scene.groups):
            self._emit(ev.GroupStarted(step=self._step, group=group, task=f"task-number-{group}", size=scene.size))
        self._turns = [0] * scene.trials

    def _end_trial(self, at: int) -> None:
        bad = self._rng.random() < 0.05
        self._emit(
            ev.TrialFinished(
                **self._where(at), outcome="infrastructure" if bad else "completed", cause="sandbox" if bad else "",
                rule="sandbox.lost" if bad else "verifier.reward",
                evidence="SandboxException: the sandbox was not found" if bad else "",
                exception="SandboxException" if bad else None, reward=None if bad else float(self._rng.random() < 0.5),
                turns=31, prompt_tokens=91_000, sampled_tokens=8_000, seconds={"agent": 180.0, "total": 212.0},
            )
        )  # fmt: skip

    def _turn(self, at: int) -> None:
        said = self._rng.randint(50, 900)
        self._turns[at] += 1
        self._sampled += said
        where = self._where(at)
        self._emit(ev.TrialTurn(**where, turn=self._turns[at], prompt_tokens=900, sampled_tokens=said, seconds=2.5))
        if self._calls is not None and self._log is not None:
            text = " ".join(self._rng.choices(_WORDS, k=said // 6))
            shown = "\n".join(" ".join(self._rng.choices(_WORDS, k=9)) for _ in range(12))
            key = f"s{self._step}.g{where['group']}.t{where['trial']}.y0"
            if key not in self._files:
                self._files[key] = self._calls.open_trial(Opened(key=key, step=self._step))
            number = self._turns[at] - 1
            asked = [KeptMessage(role="tool", text=shown)]
            self._files[key].write(
                Intent(
                    call=number, node=new_node(number), prompt_new=ids_bytes([1000] * 900), prompt_tokens=900,
                    messages=asked,
                )
            )  # fmt: skip
            self._files[key].write(
                Outcome(
                    call=number, status="stop", stop_reason="stop", seconds=2.5, tokens=ids_bytes([2000] * said),
                    logprobs=logprobs_bytes([-0.5] * said), reply=text,
                )
            )  # fmt: skip
            if at == 0:
                self._log.write(f"{shown}\n{text}\n")

    def _totals(self) -> None:
        turns = sum(self._turns)
        self._emit(ev.CaptureStats(calls=turns, prompt_tokens=900 * turns, sampled_tokens=self._sampled, inflight=40))

    def _life(self) -> Iterator[ev.Event]:
        """An ordinary run from its next step on: 20 turns a trial, some of them fail, alarms come and go."""
        scene = self._scene
        for step in itertools.count(self._step + 1):
            yield ev.StepStarted(step=step, groups=scene.groups, policy_version=step)
            for group in range(scene.groups):
                yield ev.GroupStarted(step=step, group=group, task=f"task-number-{group}", size=scene.size)
            for turn in range(1, 21):
                for at in range(scene.trials):
                    where = {"step": step, "group": at % scene.groups, "trial": at // scene.groups}
                    if turn == 1:
                        yield ev.TrialPhase(**where, phase="agent")
                    yield ev.TrialTurn(**where, turn=turn, prompt_tokens=900, sampled_tokens=200, seconds=2.5)
                self._sampled += 200 * scene.trials
                yield ev.CaptureStats(calls=turn * 64, prompt_tokens=turn * 9000, sampled_tokens=self._sampled)
                yield ev.GatewayHealth(reachable=True, latency_ms=20.0 + turn, queued=turn % 5, running=32)
            yield ev.AlarmOpened(
                key=f"group.idle.g{step % 8 + 1}", level="warning", text="nothing was heard of a trial"
            )
            for at in range(scene.trials):
                bad = (at + step) % 17 == 0
                yield ev.TrialFinished(
                    step=step, group=at % scene.groups, trial=at // scene.groups, reward=None if bad else at % 2,
                    outcome="infrastructure" if bad else "completed", cause="sandbox" if bad else "",
                    evidence=f"SandboxException: {step}.{at} was not found" if bad else "", turns=20,
                    seconds={"total": 212.0},
                )  # fmt: skip
            for group in range(scene.groups):
                yield ev.GroupFinished(step=step, group=group, kept=True, reward_mean=0.5, reward_std=0.3)
            yield ev.AlarmClosed(key=f"group.idle.g{step % 8 + 1}")
            yield step_row(step, scene.groups)


async def serve(scene: Scene, run_dir: Path, socket: Path) -> None:
    """Be the engine until the input ends."""
    if not scene.syncs:
        vars(os).update(fsync=lambda fd: None, fdatasync=lambda fd: None)
    write_manifest(run_dir, Manifest(run_id="bench", name="bench"))
    board = Board(run_dir, "bench", socket, Accepts())
    player = Player(board, scene, run_dir)
    player.begin(socket)
    await board.start()
    playing = asyncio.create_task(player.play())
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    os.write(1, b"ready\n")
    while line := await reader.readline():
        playing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await playing
        await player.fast(int(line.split()[1]))
        os.write(1, b"done\n")


class Engine:
    """An engine of a scene, as a process.

    Attributes:
        run_dir, socket: of the run; pid: the engine's.
    """

    def __init__(self, scene: str) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="qd-bench-")
        home = Path(self._home.name)
        self.run_dir, self.socket = home / "run", home / "s"
        self.run_dir.mkdir()
        self._environment = {**os.environ, "QUARTERDECK_STATE_DIR": str(home / "state")}
        self._process = subprocess.Popen(
            [sys.executable, __file__, scene, str(self.run_dir), str(self.socket)], env=self._environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT,
        )  # fmt: skip
        self.pid = self._process.pid
        self.answer(b"ready\n")

    @property
    def attach(self) -> list[str]:
        """The console on it, as a user starts it."""
        state = self._environment["QUARTERDECK_STATE_DIR"]
        return ["env", f"QUARTERDECK_STATE_DIR={state}", sys.executable, "-m", "console", "attach", str(self.run_dir)]

    def go(self, events: int) -> None:
        """Play so many events in fast motion; `answer` tells when they are played."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go %d\n" % events)
        self._process.stdin.flush()

    @property
    def answered(self) -> bool:
        """Whether `answer` would not wait."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def answer(self, expected: bytes = b"done\n") -> None:
        """Take its answer. Raises RuntimeError when it is another one."""
        assert self._process.stdout is not None
        if self._process.stdout.readline() != expected:
            raise RuntimeError("the engine has ended")

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._home.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(SCENES[sys.argv[1]], Path(sys.argv[2]), Path(sys.argv[3])))
