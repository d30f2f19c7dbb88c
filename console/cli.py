"""The command line. Starts fast: each command imports what it needs, and nothing heavy is imported at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from console import __version__
from console.errors import QuarterdeckError

HELP = """\
quarterdeck: the operator console for agentic RL

usage: quarterdeck COMMAND [ARGUMENTS]
       quarterdeck COMMAND --help teaches each one

start a run
  demo      the whole main job on this machine, in about a minute; needs nothing
  train     train a LoRA policy on Harbor tasks: [FILE.toml] config.K=V
            harbor.K=V console.K=V; a directory that holds a run is resumed
  fork      a new run from a checkpoint of another one, with other options

stand watch
  runs      list runs, live and recorded
  attach    open the console on a run; after a dropped line too
  ctl       act on a run from a script: cancel, retry, stop, status
  replay    play a recorded run through the same screen
  export    write a run or its captured tokens: JSON, CSV, SVG, text, asciicast

benchmark runs of Harbor
  bench     triage, tally, compare: what became of each trial, what the
            figures mean, and whether one run beat another

tools
  doctor    check this machine, the options and, with --live, the services
  reap      list and remove sandboxes that a run left behind
  keys      the console's keys; checks a file with others
  gateway   serve     the embedded CPU gateway on its own
            command   the command line that starts a Miles gateway

Leaving the console (q, d, a dropped line) never stops a run. Exit codes:
0 completed, 2 usage or preflight, 3 stopped by the operator, 4 stopped by
policy, 5 gateway lost, 6 capture integrity, 7 failed, 8 sandboxes left behind,
10 recording unreadable, 129, 130, 143 hang-up, interrupt, terminate.
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of `quarterdeck` and `python -m console`: runs a command and exits with its code."""
    sys.exit(run(list(sys.argv[1:] if argv is None else argv)))


def run(argv: list[str]) -> int:
    """Run one command line; the exit code. A user's mistake is one line on stderr."""
    _open_streams()
    if not argv or argv[0] in ("-h", "--help", "help"):
        _print(HELP)
        return 0 if argv else 2
    if argv[0] in ("-V", "--version"):
        _print(f"quarterdeck {__version__}\n")
        return 0
    command = COMMANDS.get(argv[0])
    if command is None:
        return fail(f"unknown command {argv[0]!r}: {', '.join(COMMANDS)}", 2)
    return guarded(lambda: command(argv[1:]))


def guarded(work: Callable[[], int]) -> int:
    """The work's exit code; an error raised on purpose is one line on stderr and its exit code."""
    try:
        return work()
    except QuarterdeckError as error:
        return fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter complains when it flushes at exit
        return 141
    except OSError as error:
        return fail(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""), 7)


def _open_streams() -> None:
    """A stream that the shell closed (`>&-`) swallows what is written: Python has None in its place."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def fail(message: str, code: int) -> int:
    """Say it on one line of stderr. It may name a file, or repeat what somebody else said."""
    from console.state.sanitize import sanitize

    sys.stderr.write("quarterdeck: " + " ".join(sanitize(message).split()) + "\n")
    return code


def _print(text: str) -> None:
    sys.stdout.write(text)


def _demo(argv: list[str]) -> int:
    from console.commands.demo import demo_main

    return demo_main(argv)


def _train(argv: list[str]) -> int:
    from console.commands.train import train_main

    return train_main(argv)


def _fork(argv: list[str]) -> int:
    from console.commands.fork import fork_main

    return fork_main(argv)


def _reap(argv: list[str]) -> int:
    from console.commands.reap import reap_main

    return reap_main(argv)


def _doctor(argv: list[str]) -> int:
    from console.commands.doctor import doctor_main

    return doctor_main(argv)


def _runs(argv: list[str]) -> int:
    from console.commands.runs import runs_main

    return runs_main(argv)


def _ctl(argv: list[str]) -> int:
    from console.commands.ctl import ctl_main

    return ctl_main(argv)


def _attach(argv: list[str]) -> int:
    from console.commands.watch import attach_main

    return attach_main(argv)


def _replay(argv: list[str]) -> int:
    from console.commands.watch import replay_main

    return replay_main(argv)


def _keys(argv: list[str]) -> int:
    from console.commands.keys import keys_main

    return keys_main(argv)


def _export(argv: list[str]) -> int:
    from console.commands.export import export_main

    return export_main(argv)


def _bench(argv: list[str]) -> int:
    from console.commands.bench import bench_main

    return bench_main(argv)


def _gateway(argv: list[str]) -> int:
    from console.commands.gateway import gateway_main

    return gateway_main(argv)


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "demo": _demo,
    "train": _train,
    "fork": _fork,
    "runs": _runs,
    "attach": _attach,
    "ctl": _ctl,
    "replay": _replay,
    "export": _export,
    "bench": _bench,
    "doctor": _doctor,
    "reap": _reap,
    "keys": _keys,
    "gateway": _gateway,
}
