"""`quarterdeck demo`: the whole main job on this machine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from console.commands.start import Watch, check_watch, has_terminal, watch_run
from console.errors import UsageError
from console.launching import new_run_id, require_engine
from console.resources import configs_dir
from console.training.options import parse

DESCRIPTION = """\
Trains the bundled tiny model on the bundled tasks for 15 steps of 4 groups x 8 trials: an embedded CPU gateway, real
Harbor trials in bubblewrap sandboxes, real PPO steps with the Tinker cookbook. Takes about a minute on two cores, needs
no network, no key, no root. Extra key=value options are those of `quarterdeck train`.
"""

LEAVE_AFTER = 8.0


def demo_main(argv: list[str]) -> int:
    """Run `demo`; the exit code."""
    parser = argparse.ArgumentParser(
        prog="quarterdeck demo", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--headless", action="store_true", help="no console: JSON lines on stdout")
    parser.add_argument("--plain", action="store_true", help="no console: one readable line a change")
    parser.add_argument(
        "--seed", type=int, default=None, metavar="N", help="seed of the task order; samples differ each time"
    )
    parser.add_argument("--steps", type=int, default=None, metavar="N", help="training steps (default 15)")
    parser.add_argument("--dir", type=Path, default=None, metavar="DIR", help="run directory (default: a new one)")
    parser.add_argument("options", nargs="*", metavar="key=value", help="options of `quarterdeck train`")
    args = parser.parse_args(argv)
    watch: Watch = "plain" if args.plain else "headless" if args.headless else "console"
    if watch == "console" and not has_terminal():
        sys.stderr.write("quarterdeck: no terminal to paint on, so this is --plain\n")
        watch = "plain"
    check_watch(watch)
    require_engine()
    run_dir = (args.dir or _demo_dir()).resolve()
    if (run_dir / "journal").exists():
        raise UsageError(f"--dir {run_dir}: holds a run already; name a new directory")
    words = [str(configs_dir() / "demo.toml"), f"config.log_path={run_dir}"]
    if args.steps is not None:
        if args.steps < 1:
            raise UsageError(f"--steps {args.steps}: must be at least 1")
        words.append(f"config.max_steps={args.steps}")
    if args.seed is not None:
        words.append(f"config.dataset_builder.shuffle_seed={args.seed}")
    options = parse([*words, *args.options])
    code = watch_run(options, watch, leave_after=LEAVE_AFTER)
    if watch != "headless":
        _say_what_next(run_dir)
    return code


def _demo_dir() -> Path:
    from console.control.registry import state_dir

    return state_dir() / "runs" / f"demo-{new_run_id()}"


def _say_what_next(run_dir: Path) -> None:
    sys.stderr.write(
        f"\nThe run is kept in {run_dir}. Try next:\n"
        f"  quarterdeck replay {run_dir}\n"
        "  quarterdeck demo on your own tasks: config.dataset_builder.tasks_dir=DIR\n"
        "  quarterdeck train --help\n"
    )
