"""`quarterdeck demo`: the whole main job on this machine."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from console.commands.look import add_look, look_of
from console.commands.parsing import Parser
from console.commands.start import Watch, watch_run
from console.errors import UsageError
from console.findings import refuse
from console.launching import new_run_id, require_engine
from console.resources import configs_dir
from console.training.options import RunOptions, parse
from console.training.preflight import preflight
from console.tui.main import check_look, require_terminal

DESCRIPTION = """\
Trains the bundled tiny model on the bundled tasks for 15 steps of 4 groups x 8 trials: an embedded CPU gateway, real
Harbor trials in bubblewrap sandboxes, real PPO steps with the Tinker cookbook. Takes about a minute on two cores, needs
no network, no key, no root. Extra key=value options are those of `quarterdeck train`.
"""
EPILOG = """\
examples:  quarterdeck demo
           quarterdeck demo --headless --steps 30 | jq .reward_mean
           quarterdeck demo config.dataset_builder.tasks_dir=my-tasks
"""

LEAVE_AFTER = 8.0
"""Seconds after the run's end at which the console closes by itself."""


def demo_main(argv: list[str]) -> int:
    """Run `demo`; the exit code."""
    parser = Parser("demo", DESCRIPTION, EPILOG)
    parser.add_argument("--headless", action="store_true", help="no console: JSON lines on stdout")
    parser.add_argument("--plain", action="store_true", help="no console: one readable line a change")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of the task order; samples differ each time")
    parser.add_argument("--steps", type=int, metavar="N", help="training steps (default 15)")
    parser.add_argument("--dir", metavar="DIR", help="run directory (default: a new one)")
    parser.add_argument("options", nargs="*", metavar="key=value", help="options of `quarterdeck train`")
    add_look(parser)
    args = parser.parse_args(argv)
    look = look_of(args)
    check_look(look)
    require_engine()
    options = _options(_run_dir(args.dir), args.steps, args.seed, args.options)
    _refuse_taken(f"config.log_path={options.log_path}", options.log_path)
    refuse(preflight(options, os.environ))
    watch: Watch = "plain" if args.plain else "headless" if args.headless else "console"
    if watch == "console":
        try:
            require_terminal("so this is --plain")
        except UsageError as missing:
            sys.stderr.write(f"quarterdeck: {missing}\n")
            watch = "plain"
    code = watch_run(options, watch, look, leave_after=LEAVE_AFTER)
    if watch != "headless":
        _say_what_next(options.log_path)
    return code


def _run_dir(given: str | None) -> Path:
    """Where the run goes. Raises `UsageError` when the place is taken."""
    if given is None:
        from console.control.registry import state_dir

        return state_dir() / "runs" / f"demo-{new_run_id()}"
    if not given.strip():
        raise UsageError("--dir is empty: name a new directory")
    run_dir = Path(given).expanduser().resolve()
    _refuse_taken(f"--dir {given}", run_dir)
    return run_dir


def _refuse_taken(name: str, run_dir: Path) -> None:
    """Raise `UsageError` when the directory, named as it was given, is not a new one: a demo goes on with no run."""
    if (run_dir / "journal").exists():
        command = f"quarterdeck train {shlex.quote(str(configs_dir() / 'demo.toml'))}"
        raise UsageError(
            f"{name}: holds a run already; name a new directory, or go on with it: "
            f"{command} config.log_path={shlex.quote(str(run_dir))}"
        )
    try:
        if run_dir.exists() and any(run_dir.iterdir()):
            raise UsageError(f"{name}: is not empty; name a new directory")
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}; name a new directory") from None


def _options(run_dir: Path, steps: int | None, seed: int | None, more: list[str]) -> RunOptions:
    """The demo's options with what the command line changes; as many epochs as the steps need."""
    words = [str(configs_dir() / "demo.toml"), f"config.log_path={run_dir}"]
    if seed is not None:
        words.append(f"config.dataset_builder.shuffle_seed={seed}")
    if steps is None:
        return parse([*words, *more])
    if steps < 1:
        raise UsageError(f"--steps {steps}: must be at least 1")
    words.append(f"config.max_steps={steps}")
    if not any(word.startswith("config.dataset_builder.epochs=") for word in more):
        words.append(f"config.dataset_builder.epochs={_epochs(parse([*words, *more]), steps)}")
    return parse([*words, *more])


def _epochs(options: RunOptions, steps: int) -> int:
    try:
        tasks = sum((path / "task.toml").is_file() for path in options.tasks_dir.iterdir())
    except OSError:
        tasks = 0
    groups = max(1, int(options.value("config.dataset_builder.groups_per_batch")))
    return -(-steps * groups // max(1, tasks))


def _say_what_next(run_dir: Path) -> None:
    """Printed once the run is over; after a detach it goes on, and the console said so."""
    from console.control.runs import run_at

    if run_at(run_dir).state == "live":
        return
    # `uv run` puts the command on its child's path only.
    command = "python -m uv run quarterdeck" if os.environ.get("UV") else "quarterdeck"
    where = shlex.quote(str(run_dir))
    sys.stderr.write(
        f"\nThe run is kept in {where}. Try next:\n"
        f"  {command} replay {where}\n"
        f"  {command} demo config.dataset_builder.tasks_dir=DIR     on tasks of your own\n"
        f"  {command} train --help\n"
    )
