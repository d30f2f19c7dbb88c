"""README's command line against gateways as people have them, by hand: `python -m tests.faults.gateway_recipe`.

Like Miles: trains, is killed with -9, waits for its slot, resumes; stops in order, and waits all the same; a second run
beside it is refused in time. Like SkyRL and the hosted service: two steps, each of an engine of its own.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(Path(__file__).parent)]

from served_gateway import ServedGateway  # noqa: E402
from test_resume_replayed import check_lineage  # noqa: E402
from whole_runs import Run, processes_of  # noqa: E402

from console.control.runs import run_at  # noqa: E402
from console.errors import RecordingError  # noqa: E402
from console.journal import events as ev  # noqa: E402
from console.journal.reader import Journal  # noqa: E402
from console.records.run_dir import RunRecord  # noqa: E402

MODEL = "quarterdeck/midshipman"


def recipe(gateway: ServedGateway, run_dir: Path, **values: object) -> list[str]:
    """The words of README's command line, for this machine. `values`: by the last part of an option's name."""
    (text,) = re.findall(
        r"^(quarterdeck train \\\n  config\.base_url.*?)\n```", (ROOT / "README.md").read_text(), re.M | re.S
    )
    words = dict(word.split("=", 1) for word in shlex.split(text.replace("\\\n", ""))[2:])
    words |= {
        "config.base_url": gateway.url,
        "config.model_name": MODEL,
        "config.renderer_name": "qwen3_instruct",
        "config.log_path": str(run_dir),
        "config.max_tokens": "24",  # the tiny model's window is not Qwen3.6's
        "config.dataset_builder.tasks_dir": str(ROOT / "configs/tasks"),
        "config.dataset_builder.groups_per_batch": "1",
        "config.dataset_builder.group_size": "2",
        "config.max_steps": "3",
        "harbor.trial_config": str(ROOT / "configs/trials/terminal-bwrap.json"),
        "harbor.advertised_host": "127.0.0.1",
    }
    words |= {name.replace("__", "."): str(value) for name, value in values.items()}
    return [f"{name}={value}" for name, value in words.items()]


def until(condition: Callable[[], Any], process: subprocess.Popen[str] | None = None, seconds: float = 150.0) -> Any:
    """Wait for a condition; its value."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        assert process is None or process.poll() is None, "the command has ended"
        time.sleep(0.05)
    raise AssertionError("it never came")


def events(run_dir: Path, kind: type) -> list[Any]:
    """Of a type, so far."""
    try:
        return [event for event in Journal(run_dir / "journal").events() if isinstance(event, kind)]
    except RecordingError:
        return []


def kill_engine(run_dir: Path, command: subprocess.Popen[str]) -> None:
    """With -9, and the command that owns it."""
    os.kill(run_at(run_dir).pid, signal.SIGKILL)
    command.kill()
    command.wait()
    until(lambda: not run_at(run_dir).alive())


def ctl(run_dir: Path, *words: str) -> str:
    """What `ctl` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "console", "ctl", str(run_dir), *words],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=ROOT, check=True,
    )  # fmt: skip
    return done.stdout


def check_whole(run_dir: Path, steps: int) -> Run:
    """A completed run: each step once, nothing left."""
    run = Run(0, RunRecord(run_dir).view_at_end(), run_dir)
    assert run.view.state.status == "finished"
    assert [row.step for row in run.view.history.rows] == list(range(steps))
    assert run.view == run.folded()
    check_lineage(run)
    assert processes_of(run_dir) == []
    return run


def start(words: list[str], home: Path, name: str) -> subprocess.Popen[str]:
    """`train --headless`; what it prints goes to files."""
    with (home / f"{name}.jsonl").open("w") as stdout, (home / f"{name}.err").open("w") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", "console", "train", *words, "--headless"],
            stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=ROOT, text=True,
        )  # fmt: skip


def say(text: str) -> None:
    """A line of the log."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def like_miles(home: Path, lease: float, groups: int, size: int) -> None:
    """The whole life of a run there."""
    run_dir = home / "run"
    shape: dict[str, object] = {
        f"config__dataset_builder__{n}": v
        for n, v in zip(("groups_per_batch", "group_size", "epochs"), (groups, size, 9))
    }
    with ServedGateway(home / "gateway", "--like", "miles", "--lease", str(lease)) as gateway:
        words = recipe(gateway, run_dir, **shape, config__max_steps=4)
        first = start(words, home, "first")
        until(lambda: any(e.step == 1 for e in events(run_dir, ev.TrialFinished)), first, 300)
        (profiled,) = events(run_dir, ev.GatewayProfiled)
        say(f"trains, as {profiled.profile}, {profiled.how}; translated: {'; '.join(profiled.translated)}")
        ctl(run_dir, "pause")
        beside = start(recipe(gateway, home / "beside", **shape, console__slot_wait=3), home, "beside")
        code = beside.wait(200)
        say(f"a second run beside it: exit {code}: {RunRecord(home / 'beside').view_at_end().state.reason}")
        assert code == 5
        kill_engine(run_dir, first)
        killed = time.monotonic()
        say("killed with -9")
        second = start(words, home, "second")
        waiting = until(lambda: events(run_dir, ev.GatewayWaiting), second, 300)[0]
        say(f"{time.monotonic() - killed:.0f} s later it waits for {waiting.reason}")
        say("ctl status: " + next(line for line in ctl(run_dir, "status").splitlines() if "slot" in line).strip())
        until(lambda: len(events(run_dir, ev.GatewayWaiting)) == 2, second, 300)
        say(f"{time.monotonic() - killed:.0f} s after the kill the slot is free")
        assert second.wait(400) == 0, (home / "second.err").read_text()
        run = check_whole(run_dir, 4)
        (resumed,) = run.of(ev.RunResumed)
        say(f"complete: resumed from {resumed.checkpoint}, replayed {resumed.replayed}, reused {resumed.reused}")
        say("stderr: " + " | ".join(x for x in (home / "second.err").read_text().splitlines() if "wait" in x))
        more = start(recipe(gateway, run_dir, **shape, config__max_steps=5), home, "more")
        assert more.wait(400) == 0, (home / "more.err").read_text()
        waited = len(events(run_dir, ev.GatewayWaiting)) > 2
        say(f"one step more, at once after an end in order: waited: {waited}")
        check_whole(run_dir, 5)


def like(home: Path, name: str) -> None:
    """Two steps, each of an engine of its own."""
    run_dir = home / f"run-{name}"
    with ServedGateway(home / f"gateway-{name}", "--like", name) as gateway:
        for steps in (1, 2):
            process = start(recipe(gateway, run_dir, config__max_steps=steps), home, f"{name}{steps}")
            assert process.wait(300) == 0, (home / f"{name}{steps}.err").read_text()
    run = check_whole(run_dir, 2)
    (resumed,) = run.of(ev.RunResumed)
    profiled = run.of(ev.GatewayProfiled)[-1]
    assert profiled.profile == name
    translated = "; ".join(profiled.translated) or "-"
    say(f"like {name}: two steps, resumed from {resumed.checkpoint}; translated: {translated}")


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lease", type=float, default=60.0, help="of the gateway like Miles, longer than a start")
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--only", choices=("miles", "skyrl", "hosted"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recipe-") as home:
        os.environ |= {"QUARTERDECK_STATE_DIR": f"{home}/state", "QUARTERDECK_ALLOW_INSECURE": "1"}
        os.environ["TINKER_API_KEY"] = "tml-recipe"
        if args.only in (None, "miles"):
            like_miles(Path(home), args.lease, args.groups, args.size)
        for name in ("skyrl", "hosted"):
            if args.only in (None, name):
                like(Path(home), name)


if __name__ == "__main__":
    main()
