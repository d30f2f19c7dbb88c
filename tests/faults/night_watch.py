"""A night on watch: `python night_watch.py PLAN.json`, in a room with a small disk (see `night_room`).

Starts a run as a user would, breaks four things one after the other, and reacts to the alarms as an operator would, who
is told of nothing else. Prints a diary, one JSON object a line.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from night_operator import QUARTERDECK, Operator, started, write
from night_room import fill
from slow_gateway import SlowGateway, slow_gateway

from console.control.runs import find_run, load_view
from console.state.model import encode_state

BROKEN_TEST = Path(__file__).parents[1] / "fixtures/tasks_bad/tests-none-ran/tests/test.sh"


class Plan(msgspec.Struct):
    """What a night needs.

    Attributes:
        gateway: URL; words: of `quarterdeck train`, without the gateway's address and the run directory.
        disk: directory of the small disk; kept: where the run directory is copied to when the run is over.
        tasks: directory of the tasks; broken: the one whose verifier breaks.
        slow_ms: latency between the relay's fast and slow; leave: bytes that are left on the disk when it fills.
    """

    gateway: str
    words: list[str]
    disk: str
    kept: str
    tasks: str
    broken: str
    slow_ms: float
    leave: int

    @classmethod
    def read(cls, path: str) -> Plan:
        """From its file."""
        return msgspec.json.decode(Path(path).read_bytes(), type=cls)


def hanging_trials(operator: Operator) -> None:
    """Each trial that stalls is cancelled; its group trains without it."""
    seen: set[str] = set()
    write("cause", name="hang")
    while not operator.of("step.finished", step=0):
        operator.until("a trial that stalls", lambda: operator.alarms("stalled.") or operator.of("step.finished"))
        for alarm in operator.alarms("stalled."):
            target = alarm["key"].removeprefix("stalled.")
            if target not in seen:
                seen.add(target)
                operator.note_alarms()
                operator.ponder(alarm)
                operator.order("cancel-trial", target, reason=f"{target} hangs")
        time.sleep(0.1)


def slowness(operator: Operator, gateway: SlowGateway, slow_ms: float) -> None:
    """No trial is begun while the gateway is slow. It is so twice within seconds, which is one trouble."""

    def latest(count: int, slow: bool) -> bool:
        return all((e.get("latency_ms", slow_ms) >= slow_ms) == slow for e in operator.of("gateway.health")[-count:])

    operator.until("trials of step 1", lambda: operator.of("trial.phase", step=1, phase="agent"))
    write("cause", name="slow")
    gateway.slow()
    operator.rung("gateway.slow")
    operator.order("pause", reason="the gateway is slow")
    gateway.recover()
    operator.until("a fast gateway", lambda: latest(2, slow=False))
    gateway.slow()
    operator.until("a gateway that is slow again", lambda: latest(4, slow=True))
    gateway.recover()
    write("over", name="slow")
    operator.until("a fast gateway", lambda: latest(2, slow=False))
    operator.order("resume", reason="the gateway answers as usual")


def broken_verifier(operator: Operator, tasks: Path, task: str) -> None:
    """The task is left out from now on, and the group that waits is given up."""

    def idle() -> bool:
        """Whether the task has been at work, and is not now: each group sees either verifier, and never both."""
        begun = {(e["step"], e["group"]) for e in operator.of("group.started", task=task)}
        return bool(begun) and begun <= {(e["step"], e["group"]) for e in operator.of("group.finished")}

    operator.until(f"the end of the groups of {task}", idle)
    write("cause", name="verifier")
    shutil.copyfile(BROKEN_TEST, tasks / task / "tests/test.sh")
    alarm = operator.rung("verifier.broken.")
    operator.ponder(alarm)
    name = alarm["key"].removeprefix("verifier.broken.")
    operator.order("quarantine", name, reason="its tests do not run any more")
    for held in operator.alarms("held."):
        operator.order("cancel-group", held["key"].removeprefix("held."), reason=f"{name} gives no rewards")
    operator.until("the end of both alarms", lambda: not operator.alarms("verifier.") + operator.alarms("held."))


def full_disk(operator: Operator, disk: Path, leave: int) -> None:
    """No trial is begun while there is no room. What fills the disk goes, and a note says so."""
    write("cause", name="disk")
    filler = fill(disk, leave)
    alarm = operator.rung("host.disk")
    operator.order("ack", alarm["key"], reason="looking for what fills it")
    operator.order("pause", reason="the disk is nearly full")
    write("over", name="disk")
    filler.unlink()
    operator.order("note", "removed a core dump from the disk of the run")
    operator.until("room on the disk", lambda: not operator.alarms("host.disk"))
    operator.order("resume", reason="there is room again")


def morning(operator: Operator) -> None:
    """When all is quiet, the run is stopped in order."""
    operator.until("quiet", lambda: not operator.alarms())
    operator.note_alarms()
    operator.order("ack", reason="seen in the morning")
    operator.note_alarms()
    view = load_view(find_run(operator.run))
    write("view", state=json.loads(encode_state(view.state)), rows=msgspec.to_builtins(view.history.rows))
    operator.order("stop-after-step", reason="the night is over")
    operator.until("the end of the run", lambda: operator.of("run.finished"))


@contextmanager
def followed(run: str, records: Path) -> Iterator[None]:
    """Somebody else follows the run, as records."""
    with records.open("w") as out:
        command = [*QUARTERDECK, "attach", run, "--headless"]
        viewer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL)
        try:
            yield
            write("viewer", exit_code=viewer.wait(60))
        finally:
            viewer.kill()


def main() -> None:
    """The night."""
    plan = Plan.read(sys.argv[1])
    run_dir, kept = Path(plan.disk, "run"), Path(plan.kept)
    with slow_gateway(plan.gateway) as gateway:
        words = [*plan.words, f"config.base_url={gateway.url}", f"config.log_path={run_dir}"]
        try:
            with started(words) as operator, followed(operator.run, kept.parent / "headless.jsonl"):
                hanging_trials(operator)
                slowness(operator, gateway, plan.slow_ms)
                broken_verifier(operator, Path(plan.tasks), plan.broken)
                full_disk(operator, Path(plan.disk), plan.leave)
                morning(operator)
        finally:
            shutil.copytree(run_dir, kept)


if __name__ == "__main__":
    main()
