"""What an operator's script has: the command line, the journal as `ctl events` tells it, and a diary."""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from console.cli import run as quarterdeck
from console.control.runs import find_run

QUARTERDECK = (sys.executable, "-m", "console")
POLL_SECONDS = 0.15
PATIENCE_SECONDS = 100.0
PONDER_SECONDS = 2.2
PR_SET_CHILD_SUBREAPER = 36

Event = dict[str, Any]


def write(what: str, **fields: Any) -> None:
    """A line of the diary, on stdout."""
    sys.stdout.write(json.dumps({"what": what, "ts": time.time(), **fields}) + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def started(words: Sequence[str]) -> Iterator[Operator]:
    """A run, started as a user does who does not stay. It should end by itself, and the diary gets its exit code."""
    # The engine becomes a child of this process when the command that started it has ended.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is begun is ended
    command = [*QUARTERDECK, "train", *words, "--detach"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=90)
    assert done.returncode == 0
    info = find_run(done.stdout.strip())
    assert info.pid is not None
    try:
        yield Operator(info.run_id)
        _, status = os.waitpid(info.pid, 0)
        write("exit", code=os.waitstatus_to_exitcode(status))
    finally:
        if info.alive():
            os.kill(info.pid, signal.SIGKILL)


class Operator:
    """Watches one run and acts on it, by `quarterdeck ctl` only.

    Attributes:
        events: those of the journal so far.

    Args:
        run: its id.
    """

    def __init__(self, run: str) -> None:
        self.run = run
        self.events: list[Event] = []

    # --- looking ------------------------------------------------------------------------------------------------

    def ask(self, *words: str) -> dict[str, Any]:
        """What `ctl WORDS --json` answers. In this process: it asks often, and a process each time would cost most."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = quarterdeck(["ctl", "--run", self.run, *words, "--json"])
        assert code == 0, f"ctl {words} ended with {code}"
        return dict(json.loads(out.getvalue()))

    def look(self) -> None:
        """Take in what is new in the journal."""
        more = True
        while more:
            cursor = self.events[-1]["seq"] if self.events else 0
            answer = self.ask("events", "--after", str(cursor))
            self.events += answer["events"]
            more = answer["more"]

    def until(self, what: str, found: Callable[[], Any]) -> Any:
        """Look until there is something. Raises `AssertionError` when it takes too long, or the run ends meanwhile."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            self.look()
            if answer := found():
                return answer
            assert not self.of("run.finished"), f"the run ended before {what}: {self.events[-1]}"
            assert time.monotonic() < deadline, f"waited in vain for {what}, with alarms {self.alarms()}"
            time.sleep(POLL_SECONDS)

    def of(self, kind: str, **fields: Any) -> list[Event]:
        """The events of a type whose fields have these values (the journal leaves out what is 0 or empty)."""
        return [e for e in self.events if e["type"] == kind and all(e.get(k, 0) == v for k, v in fields.items())]

    def alarms(self, prefix: str = "") -> list[Event]:
        """The alarms that are open now, by the last word about each, oldest first."""
        found: dict[str, Event] = {}
        for event in self.events:
            if event["type"] == "alarm.opened":
                found[event["key"]] = event
            elif event["type"] == "alarm.closed":
                found.pop(event["key"], None)
        return [event for key, event in found.items() if key.startswith(prefix)]

    def rung(self, prefix: str) -> Event:
        """Wait for an alarm."""
        alarm: Event = self.until(f"an alarm {prefix}", lambda: self.alarms(prefix))[0]
        self.note_alarms()
        return alarm

    def ponder(self, alarm: Event) -> None:
        """Do nothing about an alarm until it could have been told again: it is looked for once a second."""
        self.until(f"news about {alarm['key']}", lambda: self.events[-1]["ts"] > alarm["ts"] + PONDER_SECONDS)

    def note_alarms(self) -> None:
        """Write down what `ctl alarms` says."""
        write("alarms", alarms=self.ask("alarms")["alarms"])

    # --- acting -------------------------------------------------------------------------------------------------

    def order(self, *words: str, reason: str = "") -> None:
        """Ask the run for something, as from a shell."""
        why = ("--reason", reason) if reason else ()
        command = [*QUARTERDECK, "ctl", "--run", self.run, *words, "--yes", "--json", *why]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        assert done.returncode in (0, 1), done.stderr
        write("order", words=words, reason=reason, exit_code=done.returncode, answer=json.loads(done.stdout))
