"""`quarterdeck bench cache`: what makes a second look fast, and how to be rid of it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from console.bench.cache import clear, held, place
from console.bench.rows import counted
from console.commands.parsing import Parser, say
from console.state.sanitize import sanitize

_EPILOG = """\
Verdicts and answers are kept in your cache directory, a file a job and a file an answer, so that a second look at ten
thousand trials takes a second. A verdict is given anew when any file that it rests on has changed, or when the rules
have. It is always safe to delete. `--no-cache` of the other commands neither reads nor writes it;
QUARTERDECK_CACHE_DIR puts it elsewhere.

examples:
  quarterdeck bench cache             where it is, and how large
  quarterdeck bench cache --clear     delete it
"""


def cache_main(argv: Sequence[str]) -> int:
    """Run `bench cache`; the exit code."""
    parser = Parser("bench cache", "Shows or deletes what triage keeps to be fast.", _EPILOG)
    parser.add_argument("--clear", action="store_true", help="delete it")
    parser.add_argument("--json", action="store_true", help="one JSON object: place, files, bytes, cleared")
    args = parser.parse_args(argv)
    files, size = clear() if args.clear else held()
    if args.json:
        say(json.dumps({"place": str(place()), "files": files, "bytes": size, "cleared": args.clear}))
        return 0
    # Whole kilobytes up to where they would be written as 1,000.
    shown = f"{size / 1e6:.1f} MB" if size >= 999_500 else f"{size / 1e3:.0f} KB"
    say(f"{'deleted: ' if args.clear else ''}{counted(files, 'file')}, {shown}, in {sanitize(str(place()))}")
    return 0
