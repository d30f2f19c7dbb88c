"""A long run on the embedded gateway: what grows with its steps, and what levels off.

    python benchmarks/soak.py [--steps 300] [--every 10] [--run-dir DIR] [--json]

Sampled from outside after every so many steps: resident memory, open files and threads of engine, gateway, runner and
warden, loggers of the runner, sandboxes' roots, and files of the run directory by kind. A figure is the growth over the
last third of the run, a step; what a run keeps on purpose (journal, captured calls, Harbor's trial directories) is told
apart. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from report import Figure, add_json_option, emit

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from console.control.runs import run_at  # noqa: E402
from console.errors import RecordingError  # noqa: E402
from console.records.cookbook import last_checkpoint_batch  # noqa: E402
from console.records.run_dir import RunRecord  # noqa: E402

PARTS = {"console.engine": "engine", "console.gateway.embedded": "gateway", "console.trials.runner": "runner"}


def part_of(process: psutil.Process) -> str:
    words = " ".join(process.cmdline())
    return next((name for module, name in PARTS.items() if module in words), "warden" if "warden" in words else "")


def sample(pid: int, run_dir: Path, loggers: Path) -> dict[str, float]:
    """One look at the run's processes and directories."""
    engine = psutil.Process(pid)
    found: dict[str, float] = {}
    for process in (engine, *engine.children(recursive=True)):
        try:
            name = part_of(process)
            if name:
                found[f"{name} rss MB"] = process.memory_info().rss / 2**20
                found[f"{name} files"] = process.num_fds()
                found[f"{name} threads"] = process.num_threads()
                if name == "runner" and (loggers / str(process.pid)).exists():
                    found["runner loggers"] = float((loggers / str(process.pid)).read_text() or 0)
        except (psutil.Error, OSError):
            continue
    for name in ("sandboxes", "trials", "capture", "gateway", "journal"):
        files = [path for path in (run_dir / name).rglob("*") if not path.is_dir()]
        found[f"{name}/ files"] = len(files)
        found[f"{name}/ MB"] = sum(path.lstat().st_size for path in files) / 1e6
    found["other files"] = sum(not path.is_dir() for path in run_dir.iterdir())
    return found


def steps_done(run_dir: Path) -> int:
    try:
        return RunRecord(run_dir).view_at_end().state.steps_done
    except RecordingError:
        return -1


def command(run_dir: Path, steps: int, trial: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "console", "train", str(ROOT / "configs/demo.toml"), "--headless"),
        *(f"config.log_path={run_dir}", f"config.max_steps={steps}", "config.save_every=20"),
        *("config.dataset_builder.groups_per_batch=2", "config.dataset_builder.group_size=4"),
        *(f"config.dataset_builder.epochs={steps // 8 + 1}", f"harbor.trial_config={trial}"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--run-dir", type=Path)
    add_json_option(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        loggers = place / "loggers"
        loggers.mkdir()
        trial = json.loads((ROOT / "configs/trials/terminal-bwrap.json").read_text())
        trial["agent"]["import_path"] = "soak_agent:CountingAgent"
        (place / "trial.json").write_text(json.dumps(trial))
        run_dir = args.run_dir or place / "run"
        environment = os.environ | {
            "QUARTERDECK_STATE_DIR": str(place / "state"),
            "QUARTERDECK_SOAK_LOGGERS": str(loggers),
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "benchmarks"))),
        }
        os.environ.update(environment)
        with open(place / "out", "wb") as out:
            process = subprocess.Popen(
                command(run_dir, args.steps, place / "trial.json"), env=environment, cwd=place, stdout=out, stderr=out
            )
            rows = watch(process, run_dir, loggers, args.every)
        if process.returncode != 0:
            sys.exit(f"the run ended with {process.returncode}: {(place / 'out').read_text()[-2000:]}")
        print(f"checkpoint at step {last_checkpoint_batch(run_dir)}", file=sys.stderr)
    emit(figures(rows), args.json)


def watch(
    process: subprocess.Popen[bytes], run_dir: Path, loggers: Path, every: int
) -> list[tuple[int, dict[str, float]]]:
    """(steps done, sample) after every so many steps, until the run ends; each is printed as it comes."""
    rows: list[tuple[int, dict[str, float]]] = []
    due = every
    while process.poll() is None:
        time.sleep(0.3)
        done = steps_done(run_dir)
        if done < due:
            continue
        try:
            row = sample(run_at(run_dir).pid or 0, run_dir, loggers)
        except (psutil.Error, RecordingError, OSError):
            continue
        rows.append((done, row))
        due = done + every
        print(done, json.dumps({name: round(value, 1) for name, value in row.items()}), file=sys.stderr, flush=True)
    return rows


def figures(rows: list[tuple[int, dict[str, float]]]) -> list[Figure]:
    """Values at the end of the first third and at the end of the run, and the growth a step of the last third."""
    if len(rows) < 6:
        return [Figure("samples", len(rows), "")]
    first, late = rows[len(rows) // 3], rows[-len(rows) // 3 :]
    found = []
    for name in late[-1][1]:
        values = [(step, row[name]) for step, row in late if name in row]
        steps = values[-1][0] - values[0][0]
        found.append(Figure(f"{name}, at step {first[0]}", round(first[1].get(name, 0.0), 1), ""))
        found.append(Figure(f"{name}, at step {late[-1][0]}", round(values[-1][1], 1), ""))
        growth = (values[-1][1] - values[0][1]) / steps if steps else None
        found.append(Figure(f"{name}, growth a step", round(growth, 4) if growth is not None else None, ""))
    return found


if __name__ == "__main__":
    main()
