"""`quarterdeck reap`: what runs have left behind is listed, then removed, and made sure of."""

from __future__ import annotations

import asyncio
import getpass
import importlib.util
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from console.commands.parsing import Parser, say, table
from console.control.registry import engine_alive, entries
from console.control.runs import find_run
from console.errors import MissingExtraError, UsageError
from console.records.sandbox_ledger import LEDGER, OPEN, Entry, Gone, LedgerView
from console.state.sanitize import sanitize

EXIT_LEFT = 8
_EPILOG = """\
Only sandboxes that stand in the ledger of a run (sandboxes.jsonl) are looked for,
and those that a live engine works with are left alone. The list comes first;
nothing is removed before you say yes.

states:
  there     it exists: it will be removed
  gone      it is not there any more: its entry will be closed
  unknown   it cannot be looked for now, and why

examples:
  quarterdeck reap                    what all runs left behind; asks before it removes
  quarterdeck reap --dry-run          only look
  quarterdeck reap RUN --yes          of one run, in a script: exit code 8 when something is left
  quarterdeck reap --all --yes        of all known runs, as the last step of a CI job
  quarterdeck reap RUN --forget NAME  you made sure that it is gone: close its entry unseen
"""


class Orphan(msgspec.Struct, kw_only=True):
    """A sandbox that nobody works with. `cost`: USD so far, None where no price is known; `seen`: what is known now."""

    run: str
    ledger: Path
    entry: Entry
    cost: float | None
    state: str = "unknown"
    ids: tuple[str, ...] = ()
    why: str = ""
    removed: bool = False

    def row(self, now: float) -> dict[str, Any]:
        """As `--json` has it; `age` in seconds."""
        made = self.entry.made
        return {
            "run": self.run,
            "run_dir": str(self.ledger.parent),
            "trial": made.trial,
            "key": made.key,
            "name": made.name,
            "kind": made.kind,
            "ids": list(self.ids or self.entry.ids),
            "age": round(now - self.entry.since, 1),
            "state": self.state,
            "removed": self.removed,
            "cost": None if self.cost is None else round(self.cost, 4),
            "why": self.why,
        }


def reap_main(argv: Sequence[str]) -> int:
    """`quarterdeck reap`. Exit code 0 nothing is left, 8 something is or may be, 2 bad usage."""
    parser = Parser("reap", "Find and remove the sandboxes that dead runs have left behind.", _EPILOG)
    parser.add_argument("runs", nargs="*", metavar="RUN", help="id, name or directory; without it: all known runs")
    parser.add_argument("--all", action="store_true", help="all known runs, where nobody can be asked")
    parser.add_argument("--dry-run", action="store_true", help="look, and change nothing")
    parser.add_argument("--yes", action="store_true", help="remove without asking")
    parser.add_argument("--json", action="store_true", help="one JSON object: sandboxes, removed, gone, left")
    parser.add_argument(
        "--forget",
        action="append",
        default=[],
        metavar="NAME",
        help="close this entry without looking; repeat for more",
    )
    args = parser.parse_args(argv)
    asked = sys.stdin.isatty() and sys.stderr.isatty()
    if args.runs and args.all:
        raise UsageError("reap: name runs or give --all, not both")
    if args.forget and (args.dry_run or args.json):
        raise UsageError("reap: --forget looks at nothing and lists nothing")
    if not (args.runs or args.all or args.dry_run or asked):
        raise UsageError("reap: name a run, or give --all for all known ones")
    if not (args.yes or args.dry_run or args.forget or asked):
        raise UsageError("reap: add --yes to remove, or --dry-run to see what it would do")
    ledgers = _ledgers(args.runs)
    if args.forget:
        return _forget(ledgers, args.forget)
    return _reap(ledgers, dry=args.dry_run, yes=args.yes, as_json=args.json)


def _ledgers(runs: Sequence[str]) -> list[tuple[str, Path, bool]]:
    """Run id, ledger, and whether its engine is known to live (as of another machine), of the runs that have one.

    Raises:
        UsageError: a name fits no run, or several.
    """
    found: dict[Path, tuple[str, Path, bool]] = {}
    if runs:
        for query in runs:
            path = Path(query).expanduser()
            if (path / LEDGER).is_file() and not (path / "journal").is_dir():  # trials without a journal
                found[path.resolve()] = (path.name, path / LEDGER, False)
                continue
            run = find_run(query)
            directory = Path(run.run_dir)
            found[directory.resolve()] = (run.run_id, directory / LEDGER, run.state == "live")
    else:
        for entry in entries():
            directory = Path(entry.run_dir)
            if (directory / LEDGER).is_file():
                found[directory.resolve()] = (entry.run_id, directory / LEDGER, engine_alive(entry))
    return list(found.values())


def _orphans(ledgers: Sequence[tuple[str, Path, bool]]) -> tuple[list[Orphan], int, int]:
    """What nobody works with, oldest first, the number of those that a live engine has, and that of damaged lines.

    Raises RecordingError.
    """
    found, busy, damaged = [], 0, 0
    now = time.time()
    for run, ledger, live in ledgers:
        view = LedgerView(ledger.parent)
        view.refresh()
        if view.damaged:
            damaged += view.damaged
            sys.stderr.write(
                f"quarterdeck: {sanitize(str(ledger))}: {view.damaged} lines cannot be read, so sandboxes may be "
                "missing here: look for them at the provider, then remove these lines\n"
            )
        for entry in [*view.open, *(one for one in view.cut_off if _doubtful(one, now))]:
            if entry.state in ("creating", "live") and _worked_with(entry, live):
                busy += 1
            else:
                found.append(Orphan(run=run, ledger=ledger, entry=entry, cost=entry.cost(view.until(entry, now))))
    return sorted(found, key=lambda one: one.entry.since), busy, damaged


def _worked_with(entry: Entry, live: bool) -> bool:
    """Whether its engine runs; `live`: what the registry knows of one on another machine."""
    from console.trials.ledger import this_host
    from console.trials.orphans import abandoned

    if entry.made.host and entry.made.host != this_host():
        return live
    return not abandoned(entry, engine=True)


def _doubtful(entry: Entry, now: float) -> bool:
    """Whether one whose create was cut off may have come up after nobody saw it, and its lease may not be over yet."""
    return entry.closed is not None and now - entry.closed < (entry.made.lease or 0.0)


def _reap(ledgers: Sequence[tuple[str, Path, bool]], *, dry: bool, yes: bool, as_json: bool) -> int:
    orphans, busy, damaged = _orphans(ledgers)
    _check_means(orphans)
    if orphans:
        asyncio.run(_look(orphans))
    orphans = [one for one in orphans if one.entry.state in OPEN or one.state == "there"]
    there = [one for one in orphans if one.state == "there"]
    if not as_json:
        _show(orphans, busy)
    if not dry:
        if there and not yes:
            _ask(len(there))
        if orphans:
            asyncio.run(_remove(orphans))
    left = [one for one in orphans if one.state != "gone"]
    if as_json:
        now = time.time()
        counts = {
            "removed": sum(one.removed for one in orphans),
            "gone": sum(one.state == "gone" and not one.removed for one in orphans),
            "left": len(left),
            "busy": busy,
            "damaged_lines": damaged,
            "dry_run": dry,
        }
        say(json.dumps({"sandboxes": [one.row(now) for one in orphans]} | counts, indent=2))
    elif orphans and not dry:
        _report(orphans, left)
    return EXIT_LEFT if left or damaged else 0


def _check_means(orphans: Sequence[Orphan]) -> None:
    """Raises UsageError when a provider cannot be asked at all."""
    rented = [one for one in orphans if one.entry.made.kind == "e2b"]
    if not rented:
        return
    if importlib.util.find_spec("e2b") is None:
        raise MissingExtraError("reap: looking for E2B sandboxes needs the extra `engine`: install quarterdeck[engine]")
    if not os.environ.get("E2B_API_KEY"):
        raise UsageError(f"E2B_API_KEY is not set, and {len(rented)} sandboxes of E2B are to be looked for: export it")


async def _look(orphans: Sequence[Orphan]) -> None:
    """Fill in what is there."""
    from console.trials import finders

    sightings = await finders.look([one.entry for one in orphans])
    for one in orphans:
        seen = sightings[one.entry.name]
        one.state, one.ids, one.why = seen.state, seen.ids, seen.why


async def _remove(orphans: Sequence[Orphan]) -> None:
    """Remove what is there, a few at a time, and close every entry of which something is known now."""
    from console.trials import finders
    from console.trials import orphans as closing
    from console.trials.finders import Sighting

    by = f"reap by {_user()}"
    slots = asyncio.Semaphore(8)

    async def one(orphan: Orphan) -> None:
        async with slots:
            seen = Sighting(state=orphan.state, ids=orphan.ids, why=orphan.why)
            after = await finders.remove(orphan.entry, seen)
            await asyncio.to_thread(closing.close, orphan.ledger, orphan.entry, after, by)
            orphan.state, orphan.why, orphan.removed = after.state, after.why, after.removed

    async with asyncio.TaskGroup() as group:
        for orphan in orphans:
            group.create_task(one(orphan))


def _forget(ledgers: Sequence[tuple[str, Path, bool]], names: Sequence[str]) -> int:
    """Close entries that the operator has looked after. Raises UsageError for one that is not open."""
    from console.trials.ledger import append

    where = {one.entry.name: one for one in _orphans(ledgers)[0]}
    for name in names:
        if name not in where:
            raise UsageError(f"--forget {name}: no open sandbox of that name; `quarterdeck reap --dry-run` lists them")
    for name in names:
        gone = Gone(ts=time.time(), name=name, by=f"reap by {_user()}", how="by the operator's word")
        append(where[name].ledger, gone)
    say(f"{len(names)} closed without looking")
    return 0


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody"


def _ask(count: int) -> None:
    """Raises UsageError when the answer is no."""
    sys.stderr.write(f"Remove {count} sandbox{'es' if count > 1 else ''}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was removed")


def _show(orphans: Sequence[Orphan], busy: int) -> None:
    if busy:
        say(f"{busy} sandboxes belong to live engines and are left alone")
    if not orphans:
        say("No sandboxes left behind.")
        return
    now = time.time()
    rows = [("RUN", "TRIAL", "KIND", "ID", "AGE", "STATE", "COST")]
    for one in orphans:
        made = one.entry.made
        name = (*one.ids, *one.entry.ids, made.ref, "--")[0]
        cost = "--" if one.cost is None else f"${one.cost:.2f}"
        row = (one.run, made.trial or made.name, made.kind, name, _age(now - one.entry.since), one.state, cost)
        rows.append(tuple(sanitize(cell, 200) for cell in row))  # type: ignore[arg-type]
    say(table(rows))
    for why in dict.fromkeys(one.why for one in orphans if one.why):
        say(f"  {sanitize(why, max(80, shutil.get_terminal_size().columns) - 2)}")
    costs = [one.cost for one in orphans if one.cost]
    if costs:
        say(f"Estimated cost so far: ${sum(costs):.2f}")


def _report(orphans: Sequence[Orphan], left: Sequence[Orphan]) -> None:
    removed = sum(one.removed for one in orphans)
    gone = sum(one.state == "gone" for one in orphans) - removed
    say(f"{removed} removed, {gone} were gone already, {len(left)} left")
    for one in left:
        say(f"  {sanitize(one.entry.name, 120)}: {sanitize(one.why or 'it is still there', 300)}")


def _age(seconds: float) -> str:
    minutes = int(max(0.0, seconds) // 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes < 48 * 60 else f"{minutes // 1440} days"
