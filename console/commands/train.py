"""`quarterdeck train`: the recipe's command line."""

from __future__ import annotations

import os
import sys

from console.commands.look import LOOK_HELP, add_look, look_of
from console.commands.options_file import options_of
from console.commands.parsing import Parser, wrapped
from console.commands.start import Watch, preflight_findings, start
from console.errors import UsageError
from console.findings import Finding, errors, report, report_json
from console.launching import require_engine
from console.training.options import RunOptions, parse, parse_all

_FLAGS = {"--headless": "headless", "--plain": "plain", "--detach": "detach"}


def train_main(argv: list[str]) -> int:
    """Run `train`; the exit code. Raises `QuarterdeckError` for what is one line on stderr."""
    if "--help" in argv or "-h" in argv:
        from console.training.schema import help_text

        sys.stdout.write(wrapped(f"{help_text().rstrip()}\n\n{LOOK_HELP}"))
        return 0
    parser = Parser("train", "", "")
    parser.add_argument("--resume", metavar="RUN")
    add_look(parser)
    args, argv = parser.parse_known_args(argv)
    watch, check, as_json, words = split_flags(argv)
    base = None if args.resume is None else options_of(args.resume, words)
    if check:
        require_engine()
        return tell(_all_findings(words) if base is None else _findings(parse(words, base=base)), as_json)
    return start(parse(words, base=base), watch, look_of(args))


def tell(findings: list[Finding], as_json: bool) -> int:
    """Print the findings of `--check`; the exit code."""
    sys.stdout.write((report_json if as_json else report)(findings) + "\n")
    return 2 if errors(findings) else 0


def _findings(options: RunOptions) -> list[Finding]:
    return preflight_findings(options, os.environ, whole=True)


def _all_findings(words: list[str]) -> list[Finding]:
    """Also of the other options, when some do not fit. Raises `UsageError` for words that are no options."""
    options, faults = parse_all(words)
    keys = {fault.key for fault in faults}
    findings = [
        Finding(code="option.value", object=fault.key, message=fault.text.replace(f"{fault.key} ", "", 1))
        for fault in faults
    ]
    if options is not None:
        # An option that was left out has its default meanwhile: what is said of that does not help.
        findings += [f for f in _findings(options) if f.object not in keys]
    return findings


def split_flags(argv: list[str]) -> tuple[Watch, bool, bool, list[str]]:
    """How to watch, `--check`, `--json`, and the other words. Raises `UsageError` for flags that exclude each other."""
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
