"""The constructed trials against what triage says of them: `python -m tests.bench.constructed.table [--keep DIR]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.constructed import before, exits, noted, shapes, traps, types_told, verified, whole
from tests.bench.constructed.building import Workshop
from tests.bench.constructed.kinds import FINDINGS, KINDS
from tests.bench.constructed.making import MANY, Made

TRIALS: tuple[Made, ...] = tuple(
    made
    for part in (before, exits, types_told, verified, noted, traps, whole, shapes)
    for made in part.TRIALS
)  # fmt: skip


class Judged(NamedTuple):
    """A constructed trial, the rows that triage gave of it, and what is wrong with them."""

    made: Made
    rows: list[dict[str, Any]]
    wrong: list[str]


def judged(shop: Workshop) -> list[Judged]:
    """Every trial with its rows."""
    by_place: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in shop.triage(*sorted(path for path in shop.jobs.iterdir() if path.is_dir())):
        by_place[_job(row), row["task"]].append(row)
    for row in shop.running:
        by_place["running", row["task"]].append(row)
    out = []
    for made in shop.trials:
        rows = by_place[made.job, made.name]
        wrong = [said for row in rows for said in mistakes(made, row)]
        if len(rows) != made.attempts:
            wrong.append(f"{len(rows)} rows for {made.attempts} attempts")
        out.append(Judged(made, rows, wrong))
    return out


def _job(row: dict[str, Any]) -> str:
    name = Path(row["job"]).name
    return MANY if name.startswith(f"{MANY}-") else name


def mistakes(made: Made, row: dict[str, Any]) -> list[str]:
    """What a row says otherwise than it must."""
    want, evidence = made.want, row["evidence"]
    verdict = f"{row['class']}/{row['cause']}" if row["cause"] else row["class"]
    said = {
        "verdict": (verdict, want.verdict),
        "rule": (row["rule"], want.rule),
        "file": (evidence["file"], want.file),
        "reward": (row["reward"], want.reward),
        "exception": (row["exception"], want.exception),
    }
    wrong = [f"{name} is {is_!r}, not {wanted!r}" for name, (is_, wanted) in said.items() if is_ != wanted]
    if not row["confidence"] or " ".join(want.text.split()) not in evidence["text"]:
        wrong.append(f"the line is {evidence['text']!r}, not one with {want.text!r}")
    wrong += [f"no note {name}" for name in want.notes if name not in row["notes"]]
    wrong += [f"note {name}: {row['notes'][name]}" for name in want.silent if name in row["notes"]]
    return wrong + _line(made, row)


def _line(made: Made, row: dict[str, Any]) -> list[str]:
    """Whether the evidence stands on the line of the file that it names."""
    file, number, text = (row["evidence"][key] for key in ("file", "line", "text"))
    if row["class"] == "unreadable" or row["rule"].startswith("calls."):
        return []
    if number is None:
        return [f"no line of {file} is named"]
    lines = (Path(row["trial_dir"]) / file).read_text(errors="replace").split("\n")
    there = " ".join(lines[number - 1].split())
    if file == "result.json" and f'"exception_type": "{row["exception"]}"' in there:
        return []  # an exception of a step: where it stands in the result, with its message behind it
    return [] if text.strip("…").strip() in there else [f"line {number} of {file} is {there!r}"]


class Summary(NamedTuple):
    """Counts: kinds with their trials, trials by what wrote them, what is wrong."""

    kinds: Counter[str]
    by: Counter[str]
    wrong: list[str]


def summary(found: Iterable[Judged], shop: Workshop) -> Summary:
    """Everything that is wrong, findings included."""
    kinds: Counter[str] = Counter()
    by: Counter[str] = Counter()
    wrong = []
    for one in found:
        kinds[one.made.kind] += one.made.attempts
        by[one.made.by] += one.made.attempts
        wrong += [f"{one.made.job}/{one.made.name}: {said}" for said in one.wrong]
    wrong += [f"no finding says {text!r}" for said in FINDINGS.values() for text in said if text not in shop.findings]
    return Summary(kinds, by, wrong)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table. 1 when a verdict is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="make the job directories here, and leave them")
    told = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        shop = Workshop(told.keep or Path(scratch) / "shop", TRIALS)
        shop.make()
        found = judged(shop)
        counts = summary(found, shop)
        for kind, why in KINDS.items():
            group = [one for one in found if one.made.kind == kind]
            good = sum(one.made.attempts for one in group if not one.wrong)
            verdicts = ", ".join(dict.fromkeys(one.made.want.verdict for one in group))
            print(f"{counts.kinds[kind]:3} {good:3} right  {kind}: {verdicts}  ({why})")
        total, right = sum(counts.kinds.values()), sum(one.made.attempts for one in found if not one.wrong)
        by = ", ".join(f"{count} {name}" for name, count in counts.by.most_common())
        print(f"\n{total} trials of {len(KINDS)} kinds ({by}); {right} judged as they must be, in {shop.seconds:.0f} s")
        print(f"{sum(map(len, FINDINGS.values()))} findings about {len(FINDINGS)} whole jobs")
        for line in counts.wrong:
            print(f"  ! {line}")
    return 1 if counts.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
