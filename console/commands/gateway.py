"""`quarterdeck gateway serve`: the embedded CPU gateway on its own."""

from __future__ import annotations

import sys

from console.errors import UsageError

HELP = """\
usage: quarterdeck gateway serve [--model DIR] [options]

serve   the embedded Tinker gateway: samples and trains small models on the CPU,
        over the real wire protocol. Without --model it serves the bundled tiny
        model. `quarterdeck gateway serve --help` lists its options.
"""


def gateway_main(argv: list[str]) -> int:
    """Run `gateway`; the exit code."""
    if not argv or argv[0] in ("-h", "--help"):
        sys.stdout.write(HELP)
        return 0 if argv else 2
    if argv[0] != "serve":
        raise UsageError(f"unknown command {argv[0]!r}: quarterdeck gateway serve")
    from console.launching import require_engine

    require_engine()
    from console.gateway.embedded.serve import main

    return main(argv[1:])
