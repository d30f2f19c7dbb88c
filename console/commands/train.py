"""`quarterdeck train`: the recipe's command line."""

from __future__ import annotations

import os
import sys

from console.commands.look import LOOK_HELP, add_look, look_of
from console.commands.parsing import Parser
from console.commands.start import Watch, preflight_findings, start
from console.errors import UsageError
from console.findings import errors, report, report_json
from console.launching import require_engine
from console.training.options import parse

_FLAGS = {"--headless": "headless", "--plain": "plain", "--detach": "detach"}


def train_main(argv: list[str]) -> int:
    """Run `train`; the exit code. Raises `QuarterdeckError` for what is one line on stderr."""
    if "--help" in argv or "-h" in argv:
        from console.training.schema import help_text

        sys.stdout.write(f"{help_text().rstrip()}\n\n{LOOK_HELP}")
        return 0
    parser = Parser("train", "", "")
    add_look(parser)
    args, argv = parser.parse_known_args(argv)
    watch, check, as_json, words = _flags(argv)
    options = parse(words)
    if check:
        require_engine()
        findings = preflight_findings(options, os.environ, whole=True)
        sys.stdout.write((report_json if as_json else report)(findings) + "\n")
        return 2 if errors(findings) else 0
    return start(options, watch, look_of(args))


def _flags(argv: list[str]) -> tuple[Watch, bool, bool, list[str]]:
    watches = [word for word in argv if word in _FLAGS]
    if len(set(watches)) > 1 and set(watches) != {"--headless", "--plain"}:
        raise UsageError(f"{' and '.join(sorted(set(watches)))} exclude each other")
    check, as_json = "--check" in argv, "--json" in argv
    if as_json and not check:
        raise UsageError("--json goes with --check; a headless run prints JSON lines anyway")
    words = [word for word in argv if word not in (*_FLAGS, "--check", "--json")]
    watch: Watch = "console"
    if "--plain" in watches:
        watch = "plain"
    elif "--headless" in watches:
        watch = "headless"
    elif "--detach" in watches:
        watch = "detach"
    return watch, check, as_json, words
