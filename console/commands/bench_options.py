"""What the commands of `quarterdeck bench` share: options, the session they open, progress, and how they answer."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from console.bench.rows import counted
from console.commands.bench_text import PIPE_WIDTH, clean
from console.errors import MissingExtraError
from console.state.sanitize import sanitize

if TYPE_CHECKING:
    from console.bench.rules.user import UserRules
    from console.bench.session import Session

PROGRESS_AFTER = 1.0
_PROGRESS_EVERY = 0.1

RULE_FILE = """\
a rule file (--rules FILE, TOML) adds what you know of your own programs:
  [[rule]]                              [[override]]
  name = "our-proxy"                    trial = "my-job/fix-git__*"
  pattern = "upstream connect error"    class = "infrastructure"
  where = "agent"                       cause = "sandbox"
  class = "infrastructure"              why = "power cut in the machine room"
  cause = "api"
"""


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Options of everything that reads trials; of its paths, those that are `type=Path`, none may be empty."""
    parser.register("type", Path, _path)
    parser.add_argument("--rules", type=Path, metavar="FILE", help="your own rules and overrides, see below")
    parser.add_argument(
        "--task", action="append", default=[], metavar="GLOB", help="only tasks of this name; repeat for more"
    )
    parser.add_argument("--no-cache", action="store_true", help="judge every trial anew, and keep nothing")


def _path(text: str) -> Path:
    """An empty one is a variable of a script that was not set; as a path it would be the working directory."""
    if not text:
        raise argparse.ArgumentTypeError("an empty path was given; write . for the working directory")
    return Path(text)


def add_formats(parser: argparse.ArgumentParser, what: str) -> None:
    """How to answer: text without any of them."""
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help=what)
    formats.add_argument("--csv", action="store_true", help="comma-separated values, for a spreadsheet")
    formats.add_argument("--markdown", action="store_true", help="a table in Markdown")


def require_statistics(command: str) -> None:
    """Raises MissingExtraError where scipy is not installed."""
    if importlib.util.find_spec("scipy") is None:
        raise MissingExtraError(f"{command}: its statistics need the extra `bench`: install quarterdeck[bench]")


def load(args: argparse.Namespace) -> UserRules | None:
    """The rule file, if one was given. Tells, on stderr, of overrides that concern no trial below any path that was.

    Raises:
        UsageError: the file is wrong, or with overrides in it, one of the paths.
    """
    if args.rules is None:
        return None
    from console.bench.rules.user import load_rules

    rules = load_rules(args.rules)
    paths = [*args.dirs, *(path for side in getattr(args, "side", ()) for path in side)]
    if rules.overrides and paths:
        from console.records.harbor.discovery import find_jobs

        # Of all sides of a comparison together: an override of one side concerns nothing of the other.
        found = find_jobs(paths)
        complain(rules.idle(trial for job in found.jobs for trial in found.trials_of(job)))
    return rules


def idle_rules(rules: UserRules | None, decided: Collection[str]) -> list[str]:
    """A line for each rule of the file that decided on no trial, of those that were read."""
    return rules.undecided(decided) if rules else []


def open_session(
    args: argparse.Namespace, paths: Sequence[Path], rules: UserRules | None, progress: Progress
) -> Session:
    """The jobs below the paths, with what the options say. Raises UsageError."""
    from console.bench.session import Session

    return Session(paths, rules=rules, tasks=args.task, cache=not args.no_cache, heard=progress)


class Progress:
    """One line on a terminal's stderr, rewritten, once something takes longer than a second."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._next = self._began + PROGRESS_AFTER
        self._shown = False
        self._on = sys.stderr.isatty()

    def __call__(self, count: int, job: Path) -> None:
        """So many trials were read, the last one of this job."""
        if not self._on:
            return
        now = time.monotonic()
        if now < self._next:
            return
        self._next, self._shown = now + _PROGRESS_EVERY, True
        said = f"{counted(count, 'trial')} read, {now - self._began:.0f} s, {job}"
        sys.stderr.write(f"\r\x1b[K{clean(said, PIPE_WIDTH - 1)}")
        sys.stderr.flush()

    def end(self) -> None:
        """Take the line away."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False


def complain(lines: Iterable[str], limit: int = 20) -> None:
    """What could not be read, on stderr, one line each."""
    lines = list(lines)
    for line in lines[:limit]:
        sys.stderr.write(f"quarterdeck: {sanitize(line, limit=600)}\n")
    if len(lines) > limit:
        sys.stderr.write(f"quarterdeck: and {len(lines) - limit} more of this kind\n")


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterable[str]:
    """A table in Markdown, line by line: cells of others are safe for a terminal and cannot break its columns."""
    yield _markdown_row(columns)
    yield _markdown_row(["---"] * len(columns))
    for row in rows:
        yield _markdown_row(["" if cell is None else cell for cell in row])


def _markdown_row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(sanitize(cell).replace("\\", "\\\\").replace("|", "\\|") for cell in cells) + " |"
