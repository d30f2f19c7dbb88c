"""`quarterdeck gateway`: the embedded CPU gateway on its own, and the launch command of the Miles gateway."""

from __future__ import annotations

import sys

from console.errors import UsageError

HELP = """\
usage: quarterdeck gateway serve [--model DIR] [--like NAME] [options]
       quarterdeck gateway command miles --checkpoint DIR [options]

serve    the embedded Tinker gateway: samples and trains small models on the
         CPU, over the real wire protocol. Without --model it serves the
         bundled tiny model; --like miles, hosted or skyrl makes it as strict
         as that service, to try a run before GPUs are rented.
command  print the command that starts a Miles gateway for a checkpoint, a
         window and a LoRA rank, with the options of `train` that fit it.
         Nothing is started.

`--help` after either lists its options.
"""


def gateway_main(argv: list[str]) -> int:
    """Run `gateway`; the exit code."""
    if not argv or argv[0] in ("-h", "--help"):
        sys.stdout.write(HELP)
        return 0 if argv else 2
    if argv[0] == "serve":
        from console.launching import require_engine

        require_engine()
        from console.gateway.embedded.serve import main

        return main(argv[1:])
    if argv[0] == "command":
        from console.gateway.command import command_text

        sys.stdout.write(command_text(argv[1:]))
        return 0
    raise UsageError(f"unknown command {argv[0]!r}: quarterdeck gateway serve, or quarterdeck gateway command")
