"""A run in which every text is hostile: as a journal, and as a live engine with its content.

`python hostile_run.py RUN_DIR SOCKET` serves one until it is killed. Each text begins with a tell, four letters that
say which path it came by, so that a test sees that the path was painted at all. Trial g2/t2 of the last step has
captured calls and files, as sandboxes and policies leave them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "control"))

import hostile
from capture_files import CallsFile
from small_engine import SmallEngine

from console.control.commands import Command
from console.journal import events as ev
from console.journal.writer import JournalWriter

STEPS = 64
FIELD = 20_000
"""Characters of a text in most fields; notes and evidence have it whole."""
CALLS = 24
LIVE_STEPS = 12


def run_started(text: str, run_dir: Path, socket: Path | None = None, step: int | None = None) -> ev.RunStarted:
    """The start of a run, or of an engine that goes on with it at `step`."""
    text = text[:FIELD]
    return ev.RunStarted(
        run_id=f"qrid{text}", name=f"qnam{text}", run_dir=str(run_dir), pid=os.getpid() if socket else 0,
        socket=str(socket) if socket else None, model=f"qmod{text}", gateway_url=f"qgwu{text}", steps=STEPS,
        versions={f"qvrk{text}": f"qvrv{text}"}, config={f"qcfk{text}": f"qcfv{text}"}, groups_per_batch=2,
        group_size=2, on_failure=f"qonf{text}", hold_timeout=600.0, resumed_from=step,
        tunables={"parallel": 2.0, f"qtun{text}": 1.0}, thresholds={f"qthr{text}": 1.0},
    )  # fmt: skip


def step_of(number: int, texts: Iterator[str], last: bool = False) -> Iterator[ev.Event]:
    """The events of a step; its texts are taken one after the other. The last one does not end."""

    def text(tell: str, limit: int = FIELD) -> str:
        return f"{tell}{next(texts)[:limit]}"

    yield ev.RunPhase(phase="rollout", detail=text("qphd"))
    yield ev.StepStarted(step=number, groups=2, policy_version=number)
    yield ev.GatewayHealth(reachable=False, latency_ms=1.0, detail=text("qgwd"))
    yield ev.SandboxStats(live=1, left=[text("qsbx")])
    yield ev.CheckpointSaved(name=text("qckn"), step=number, path=text("qckp"), kind=text("qckk"))
    yield ev.StopRequested(when="after_step", by=text("qstp"))
    yield ev.DispatchPaused(paused=True, by=text("qpau"))
    yield ev.RunTuned(name="parallel", old=1.0, new=2.0, by=text("qtby"))
    yield ev.TaskQuarantined(task=text("qqua"), by=text("qqby"))
    yield ev.WatchTaken(by=text("qwby"), previous=text("qwpr"))
    yield ev.Note(text=text("qnot", hostile.LONGEST), level="error", source=text("qsrc"))
    for key, level in (("now", "critical"), (text("qaky"), "warning"), ("level", text("qlvl"))):
        yield ev.AlarmOpened(key=key, level=level, text=text("qatx"), remedy=text("qarm"), consequence=text("qaco"))
    yield ev.AlarmAcked(key="now", by=text("qack"))
    for group in range(2):
        yield ev.GroupStarted(step=number, group=group, task=text("qtsk"), size=2)
        at = {"step": number, "group": group}
        for trial in range(2):
            yield ev.TrialPhase(**at, trial=trial, phase=text("qtph"))
            yield ev.TrialTurn(**at, trial=trial, turn=1, prompt_tokens=9, sampled_tokens=9, status=text("qtst"))
        yield ev.TrialFinished(
            **at, trial=0, outcome="infrastructure", cause=text("qcau"), rule=text("qrul"),
            evidence=text("qevi", hostile.LONGEST), exception=text("qexc"), trial_dir=text("qdir"), retryable=True,
        )  # fmt: skip
        if group == 0:
            yield ev.TrialRetried(**at, trial=0, by=text("qrty"))
            yield ev.TrialPhase(**at, trial=0, try_=1, phase=text("qtph"))
        else:
            yield ev.TrialHeld(**at, trial=0, deadline=4e9)
            yield ev.TrialFinished(
                **at, trial=1, outcome=text("qout"), reward=0.5, seconds={text("qsec"): 1.0},
                trial_dir=f"trials/{key_of(number)}" if last else text("qdir"), cause=text("qcau"), rule=text("qrul"),
            )  # fmt: skip
            if not last:
                yield ev.GroupFinished(**at, kept=False, reason=text("qgrs"))
    name = f"c{number}"
    yield ev.CommandRequested(
        id=name, command=text("qcmd"), args={text("qark"): text("qarv")}, author=text("qaut"), reason=text("qrea")
    )
    yield ev.CommandAccepted(id=name, effect=text("qeff"))
    if not last:
        yield ev.CommandFinished(id=name, status="refused", result=text("qres"))
        yield ev.StepFinished(step=number, reward_mean=0.5, outcomes={text("qoco"): 4}, nonfinite=[text("qnon")])


def key_of(step: int) -> str:
    """The engine's name of the trial that has content."""
    return f"s{step}.g1.t1.y0"


def events_of(run_dir: Path, socket: Path | None = None, steps: int = STEPS) -> Iterator[ev.Event]:
    """A run in its last step. Each step begins with another engine, whose header shows another text."""
    texts = itertools.cycle(hostile.STRINGS)
    heads = itertools.cycle(hostile.STRINGS[:: max(1, len(hostile.STRINGS) // steps)])
    for number in range(steps):
        if number == 0 or socket is None:
            yield run_started(next(heads), run_dir, socket, step=number or None)
        yield from step_of(number, texts, last=number == steps - 1)


def write_content(run_dir: Path, step: int) -> None:
    """Captured calls and Harbor's files of the trial that has content."""
    texts, key = hostile.STRINGS, key_of(step)
    roles = itertools.cycle(("system", "user", "assistant", "tool", "qrol\x1b[5m\u202e"))
    file = CallsFile(run_dir, key)
    for call in range(CALLS):
        part = [text[:FIELD].encode("utf-8", "replace").decode() for text in texts[call::CALLS]]
        reply = f"qrpl{part[-1]}"
        pieces = [reply[at : at + 200] for at in range(0, len(reply), 200)] + [f"qtok{text[:200]}" for text in part]
        messages = [(role, f"qmsg{text}\n{text}") for text, role in zip(part, roles)]
        file.call(
            messages, "".join(pieces), prompt=[1], tokens=range(len(pieces)), pieces=pieces,
            logprobs=[-float(i % 4) for i in range(len(pieces))], stop_reason=f"qsto{part[0]}",
        )  # fmt: skip
        failed = file.begin()
        file.end(failed, status="backend", error=f"qerr{part[0]}")
    trial = run_dir / "trials" / key
    (trial / "verifier").mkdir(parents=True)
    raw = b"\n".join(b"q%s" % kind + bytes(range(256)).replace(b"\n", b"") for kind in (b"raw", b"rax"))
    for name, tell in (("trial.log", "qlog"), ("exception.txt", "qxcp"), ("verifier/test-stdout.txt", "qver")):
        lines = [f"{tell}{text}" for text in texts]
        (trial / name).write_bytes("\n".join(lines).encode("utf-8", "surrogatepass") + b"\n" + raw)
    for name in hostile.file_names()[::40]:
        (trial / "verifier" / os.fsencode(f"qfil{name}").decode("utf-8", "surrogateescape")).write_text("x")
    result = {f"qrek{text[:99]}{i}": f"qrev{text[:FIELD]}" for i, text in enumerate(texts)}
    (trial / "result.json").write_text(json.dumps(result))


def record(run_dir: Path) -> None:
    """Write the run as a recording that ended badly."""
    with JournalWriter(run_dir / "journal") as journal:
        for event in events_of(run_dir):
            journal.append(event)
        journal.append(ev.RunFinished(status="failed", exit_code=7, reason=f"qend{hostile.STRINGS[0]}", steps=STEPS))
    write_content(run_dir, STEPS - 1)


class _Handler:
    """Says what it would do, and what it did, in hostile words."""

    def __init__(self) -> None:
        self._texts = itertools.cycle(hostile.joined_per_family())

    def describe(self, command: Command) -> tuple[bool, str]:
        return True, f"qdry{next(self._texts)}"

    async def execute(self, command: Command) -> tuple[bool, str]:
        return False, f"qdon{next(self._texts)}"


async def main() -> None:
    run_dir, socket = Path(sys.argv[1]), Path(sys.argv[2])
    engine = SmallEngine(run_dir, socket, run_id=f"qrid{hostile.STRINGS[0]}"[:FIELD])
    engine.dispatcher._handler = _Handler()
    for event in events_of(run_dir, socket, LIVE_STEPS):
        engine.writer.append(event)
    write_content(run_dir, LIVE_STEPS - 1)
    await engine.server.start()
    os.write(1, b"ready\n")
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
