# ruff: noqa: E402 - what lies beside this file is found only once the path is extended
"""A disk that is full under one part of a run: `python -m tests.faults.disk_full [PLACE@MOMENT ...]`.

For each place and moment: a run of four steps with the embedded gateway as its child, in a room (`night_room`) where
the place is a small disk of its own. At the moment the disk is filled to its last byte; the run ends by itself, or not.
Then there is room again, and `train --resume` goes on. What the run directory was at the end of each is judged from
copies. Prints a line a case; the exit code is the number of cases that went wrong.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [entry for entry in map(str, (HERE, HERE.parent / "support", ROOT)) if entry not in sys.path]

from night_operator import write
from night_room import enter, mount

from console.journal import events as ev
from console.journal.reader import Journal

STEPS, GROUPS, TRIALS = 4, 2, 2
DIRECTORIES = ("journal", "capture", "gateway", "trials", "sandboxes")
FILES = ("sandboxes.jsonl", "metrics.jsonl", "checkpoints.jsonl", "engine.log", "runner.log", "audit.jsonl")
PLACES = (".", *DIRECTORIES, *FILES)
"""What can be a small disk of its own: the run directory itself, directories in it, files in it.

`ro:` before a directory: it loses its write permissions instead, for a user who is not root. `inodes:`: no more files.
"""
MOMENTS = ("start", "ready", "trials", "later", "training")
"""Before the run; when the first step begins; trials at work in it, or in the second step; the second one trains."""
CASES = (
    *(f"{place}@later" for place in PLACES),
    *(f"{place}@training" for place in (".", "journal", "gateway", "metrics.jsonl", "checkpoints.jsonl")),
    *("ro:.@later", "ro:capture@later", "ro:gateway@later", "ro:trials@later", "ro:.@start"),
    *("inodes:.@later", "inodes:capture@later", "inodes:gateway@training", "inodes:.@start"),
    *(".@start", ".@ready", ".@trials", "journal@trials", "capture@trials", "gateway@ready", "sandboxes.jsonl@ready"),
)
PATIENCE_SECONDS = 100.0
PAGE = os.sysconf("SC_PAGE_SIZE")
MOUNT_BIND, UMOUNT_DETACH = 0x1000, 2


def words(run_dir: Path, tasks: Path, trial: Path) -> list[str]:
    """What `quarterdeck train` is told."""
    return [
        "config.model_name=quarterdeck/midshipman", "config.renderer_name=qwen3_instruct", "config.learning_rate=1e-3",
        "config.lora_rank=8", "config.max_tokens=24", "config.loss_fn=ppo", f"config.max_steps={STEPS}",
        "config.eval_every=0", "config.num_groups_to_log=0", "config.rollout_json_export=false", "config.save_every=2",
        f"config.dataset_builder.tasks_dir={tasks}", f"config.dataset_builder.groups_per_batch={GROUPS}",
        f"config.dataset_builder.group_size={TRIALS}", "config.dataset_builder.epochs=8",
        f"config.log_path={run_dir}", f"harbor.trial_config={trial}", "harbor.max_parallel_trials_per_group=2",
        "console.gateway=embedded", "console.probe_interval=0.5",
    ]  # fmt: skip


class SmallDisk:
    """A small disk under one part of the run directory, in this process's room."""

    def __init__(self, run_dir: Path, place: str) -> None:
        self._kind, _, place = place.rpartition(":")
        self._run_dir, self.place, self.at = run_dir, place, run_dir / place
        self._disk = self.at
        run_dir.mkdir(exist_ok=True)
        if self._kind == "ro":
            return
        if self._kind == "inodes":
            self.at.mkdir(exist_ok=True)
            mount("tmpfs", str(self.at), "tmpfs", 0, "size=64m,mode=0700,nr_inodes=2000")
        elif place in FILES:
            self._disk = run_dir.parent / f"disk-{place}"
            self._disk.mkdir()
            mount("tmpfs", str(self._disk), "tmpfs", 0, "size=64k")
            (self._disk / place).touch(0o600)
            self.at.touch(0o600)
            mount(str(self._disk / place), str(self.at), "", MOUNT_BIND)
        elif place in DIRECTORIES:
            self.at.mkdir(mode=0o700)
            mount("tmpfs", str(self.at), "tmpfs", 0, "size=24m,mode=0700")

    def fill(self) -> None:
        """Not a byte more. A file would still have its last page to the end: blanks behind its last line take that."""
        if self._kind == "ro":
            for path in (self.at, *self.at.rglob("*")):
                with contextlib.suppress(OSError):
                    path.chmod(path.stat().st_mode & ~0o222)
            return
        if self._kind == "inodes":
            (self._disk / ".filler").mkdir()
            with contextlib.suppress(OSError):
                for number in itertools.count():
                    (self._disk / ".filler" / str(number)).touch()
            return
        if self.place in FILES and (size := self.at.stat().st_size) % PAGE:
            with self.at.open("r+b") as file:
                os.pwrite(file.fileno(), b" " * (PAGE - size % PAGE) + b"\n", size - 1)
        with (self._disk / ".filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(bytes(65536))
        with (self._disk / ".filler.end").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(bytes(4096))

    def free(self) -> None:
        """There is room again."""
        if self._kind == "ro":
            for path in (self.at, *self.at.rglob("*")):
                with contextlib.suppress(OSError):
                    path.chmod(path.stat().st_mode | 0o200)
            return
        if self._kind == "inodes":
            shutil.rmtree(self._disk / ".filler")
            return
        for name in (".filler", ".filler.end"):
            (self._disk / name).unlink(missing_ok=True)
        if self.place in FILES:  # one file cannot stay a mount: it may be replaced
            import ctypes

            data = self.at.read_bytes()
            assert ctypes.CDLL(None).umount2(str(self.at).encode(), UMOUNT_DETACH) == 0
            self.at.write_bytes(data)


def moment_of(name: str, events: list[ev.Event]) -> bool:
    """Whether it has come. `events`: of the engine that runs."""
    steps = [e for e in events if isinstance(e, ev.StepStarted) and not e.replayed]
    agents = {e.step for e in events if isinstance(e, ev.TrialPhase) and e.phase == "agent"}
    match name:
        case "ready":
            return bool(steps)
        case "trials":
            return bool(agents)
        case "later":
            return len(agents) > 1
        case "training":
            since = steps[1].seq if len(steps) > 1 else float("inf")
            return any(isinstance(e, ev.RunPhase) and e.phase == "training" and e.seq > since for e in events)
    raise ValueError(name)


def events_of(run_dir: Path) -> list[ev.Event]:
    """What the journal has; nothing while it is not there."""
    try:
        return list(Journal(run_dir / "journal").events())
    except Exception:
        return []


def command(what: str, *args: str, log: Path) -> subprocess.Popen[bytes]:
    """A headless `quarterdeck train`; what it says goes to files outside the small disk."""
    words = [sys.executable, "-m", "console", "train", *args, "--headless"]
    return subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=(log / f"{what}.out").open("wb"),
        stderr=(log / f"{what}.err").open("wb"), cwd=log,
    )  # fmt: skip


def room(plan: dict[str, Any]) -> None:
    """One case, in a room of its own; keeps copies of the run directory."""
    base, stages = Path(plan["base"]), plan["stages"]
    enter(str(base / "disk"), "96m", root=not any(place.startswith("ro:") for place, _ in stages))
    run_dir, kept = base / "disk/run", base / "kept"
    disks = [SmallDisk(run_dir, place) for place, _ in stages]
    for number, (disk, (_, moment)) in enumerate(zip(disks, stages, strict=True)):
        if moment == "start":
            disk.fill()
        fresh = number == 0 or not (run_dir / "options.json").exists()
        run = command(str(number), *(plan["words"] if fresh else ["--resume", str(run_dir)]), log=base)
        if moment != "start":
            _until(moment, run, run_dir)
            disk.fill()
        began = time.monotonic()
        write("stopped", code=_wait(run), seconds=round(time.monotonic() - began, 1))
        shutil.copytree(run_dir, kept / str(number), ignore=shutil.ignore_patterns(".filler*"))
        disk.free()
    last = str(len(stages))
    how = ["--resume", str(run_dir)] if (run_dir / "options.json").exists() else plan["words"]
    write("resumed", code=_wait(command(last, *how, log=base)))
    shutil.copytree(run_dir, kept / last)


def _until(moment: str, run: subprocess.Popen[bytes], run_dir: Path) -> None:
    before = len(events_of(run_dir))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not moment_of(moment, events_of(run_dir)[before:]):
        if run.poll() is not None or time.monotonic() > deadline:
            run.kill()
            raise SystemExit(f"{moment} did not come; exit {run.poll()}")
        time.sleep(0.02)


def _wait(process: subprocess.Popen[bytes]) -> int | str:
    try:
        return process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return "it did not end"


# --- judging ---------------------------------------------------------------------------------------------------------


class End:
    """An end by a full disk: exit `code`, its `reason`, `seconds` from the fill, and the run directory then."""

    def __init__(self, base: Path, number: int, code: int | str, seconds: float) -> None:
        self.code, self.seconds, self.run_dir = code, seconds, base / "kept" / str(number)
        said = (base / f"{number}.err").read_text().strip().splitlines()[-1:]
        self.reason = _done(base / f"{number}.out").get("reason") or " ".join(said)


class Case:
    """What is left of one case.

    Attributes:
        ends: by full disks, in order; last: the run directory after the last resume, and its exit code.
        wrong: what should not be, a line each.
    """

    def __init__(self, base: Path, name: str, diary: list[dict[str, Any]]) -> None:
        self.name = name
        stops = [line for line in diary if line["what"] == "stopped"]
        self.ends = [End(base, number, line["code"], line["seconds"]) for number, line in enumerate(stops)]
        self.last, self.code = base / "kept" / str(len(stops)), diary[-1]["code"]
        self.wrong = list(self._judge(base))

    def _judge(self, base: Path) -> Iterator[str]:
        for run_dir in (*(end.run_dir for end in self.ends), self.last):
            for trouble in corruption(run_dir):
                yield f"{run_dir.name}: {trouble}"
        said = [path.read_text() for path in sorted(base.glob("*.err"))]
        if self.code != 0:
            yield f"the resume ended with {self.code}: {said[-1][-300:]}"
        if any("Traceback" in one for one in said):
            yield "a traceback on stderr"
        for end in self.ends:
            if not isinstance(end.code, int):
                yield end.code
        yield from lineage_of(self.last)

    def lines(self) -> Iterator[str]:
        """For the log."""
        for end in self.ends:
            yield f"{self.name:28} exit {end.code} after {end.seconds} s: {end.reason}"
        yield f"{'':28} resumed: exit {self.code}"


def _done(out: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in out.read_text().splitlines() if line.startswith("{")]
    return next((line for line in lines if line.get("type") == "done"), {})


def corruption(run_dir: Path) -> Iterator[str]:
    """What in a run directory cannot be read: journal, captures, checkpoints that are listed."""
    from console.gateway.embedded.checkpoints import Checkpoints
    from console.records.capture_paths import trial_files
    from console.records.captured_calls import CapturedTrialFile
    from console.records.cookbook import checkpoint_rows
    from console.records.token_check import check_tokens
    from console.state.reduce import fold
    from console.training.embedded_store import find_checkpoint

    if not list((run_dir / "journal").glob("*")):
        return
    try:
        journal = Journal(run_dir / "journal")
        events = list(journal.events())
        fold(events)
        if [e.seq for e in events] != list(range(1, len(events) + 1)):
            yield "the journal has holes"
        if journal.damage:
            yield f"the journal is damaged: {journal.damage}"
    except Exception as error:
        yield f"the journal: {error!r}"
    for path in trial_files(run_dir):
        try:
            file = CapturedTrialFile(path)
            file.refresh()
            if file.sealed is not None:
                for problem in check_tokens(file):
                    yield f"{path.name}: {problem}"
        except Exception as error:
            yield f"{path.name}: {error!r}"
    store = run_dir / "gateway"
    for row in checkpoint_rows(run_dir):
        for key in ("state_path", "sampler_path"):
            if row.get(key):
                found = find_checkpoint(store, row[key])
                if found is None:
                    yield f"the checkpoint {row[key]} is listed and is not there"
                    continue
                loaded = Checkpoints(store).find(found.relative_to(store).parts[0], row[key])
                loaded.lora()
                if key == "state_path":
                    loaded.optimizer()


def lineage_of(run_dir: Path) -> Iterator[str]:
    """Whether each step is there once, trained once, from trials that were scored once."""
    from console.journal.reader import Journal
    from console.state.reduce import fold

    view = fold(Journal(run_dir / "journal").events())
    rows = view.history.rows
    if [row.step for row in rows] != list(range(STEPS)):
        yield f"the steps are {[row.step for row in rows]}"
    kept = [bool(row.groups_kept) and row.tokens_trained != 0 for row in rows]  # null: recovered
    trained = [sum(kept[: i + 1]) for i in range(len(rows))]
    if [row.policy_version for row in rows] != trained:
        yield f"policy versions {[row.policy_version for row in rows]}, trained {kept}"
    scored = Counter(
        (e.step, e.group, e.trial, e.try_)
        for e in Journal(run_dir / "journal").events()
        if isinstance(e, ev.TrialFinished) and e.reward is not None and not e.reused
    )
    again = [trial for trial, count in scored.items() if count > 1]
    if again:
        yield f"scored twice: {again}"
    if view.state.status != "finished":
        yield f"status {view.state.status}: {view.state.reason}"


def spend(name: str, base: Path, *more: str) -> Case:
    """A case: `PLACE@MOMENT`, or several with a `+` between them, one after the other. `more`: options of the run.

    Raises `AssertionError` with what it said when it cannot be judged.
    """
    tasks = base / "tasks"
    for task in ("create-file", "note-write"):
        shutil.copytree(ROOT / "configs/tasks" / task, tasks / task)
    (base / "disk").mkdir()
    plan = {
        "base": str(base), "stages": [stage.split("@") for stage in name.split("+")],
        "words": [*words(base / "disk/run", tasks, ROOT / "configs/trials/terminal-bwrap.json"), *more],
    }  # fmt: skip
    (base / "plan.json").write_text(json.dumps(plan))
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, HERE.parent / "support", HERE))),
        "QUARTERDECK_STATE_DIR": str(base / "state"),
    }
    done = subprocess.run(
        [sys.executable, str(Path(__file__)), "--room", str(base / "plan.json")],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{name}: {done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return Case(base, name, [json.loads(line) for line in done.stdout.splitlines()])


def main(argv: list[str]) -> int:
    """All cases, or those that are named."""
    failed = 0
    for name in argv or CASES:
        base = Path(tempfile.mkdtemp(prefix="disk-full-"))
        try:
            case = spend(name, base)
            lines, wrong = list(case.lines()), case.wrong
        except AssertionError as error:
            lines, wrong = [name], [str(error)]
        failed += bool(wrong)
        print("\n".join([*lines, *(f"{'':28} WRONG: {one}" for one in wrong)]), flush=True)
        if wrong:
            print(f"{'':28} kept in {base}", flush=True)
        else:
            shutil.rmtree(base)
    print(f"{failed} of {len(argv or CASES)} went wrong")
    return failed


if __name__ == "__main__":
    if sys.argv[1:2] == ["--room"]:
        room(json.loads(Path(sys.argv[2]).read_text()))
    else:
        sys.exit(main(sys.argv[1:]))
