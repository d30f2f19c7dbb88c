"""The part of `quarterdeck export` that writes captured tokens. Needs the run's files only, whatever became of it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from console.errors import RecordingError, UsageError
from console.records.capture_paths import place_of_file
from console.records.captured_calls import CapturedTrialFile, trial_files
from console.records.token_rows import (
    Chosen,
    Counts,
    Selection,
    TrialFacts,
    chosen_files,
    missing,
    summary,
    token_rows,
    trained_of,
    trial_facts,
)

if TYPE_CHECKING:
    from console.records.token_rows import Row

EPILOG = """\
tokens (--tokens), one object a line:
  a segment   `tokens`, with `mask` 1 and a log-prob where the policy sampled one, 0 and null elsewhere; `nodes`, its \
calls; `kind`, and the `reason` why it begins; outcome and reward of the trial. A token that trains is in one segment.
  --calls     a call: `prompt_new`, the ids behind its `parent` (that one's prompt and sample), the sampled `tokens`, \
`logprobs`, how it was sampled and ended, and its `use` within the trial: trained (if the trial is), or why not.
  `trained`   true: the trial's last try was scored, its group was kept (`group_kept`), its step ended. false: not so. \
null: cannot be known, because the step has not ended, or there is no journal of it. Rows of trials that did not train \
are there too, unless --trained is given.
Step, group, trial and try count from 0; `name` is the screen's. As long as a trial is not `sealed`, because it runs \
or its engine was killed, all answered calls count, in sequences that extend each other. `earlier` is N for the Nth \
file that was set aside when a resumed run did the same try again (--all-tries; no outcome and reward), else 0.

"""
NAMED = 4
"""Missing files that are named."""

_NUMBER = re.compile(r"[0-9]{1,9}")


class Progress(Protocol):
    """`total` files are to be done; called with how many are."""

    total: int

    def __call__(self, done: int, /) -> object: ...


class Told(msgspec.Struct):
    """What is to be said about an export: lines, and the exit code."""

    lines: list[str] = []
    exit_code: int = 0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    tokens = parser.add_argument_group("captured tokens (JSON lines)")
    tokens.add_argument("--tokens", action="store_true", help="what may be trained: one segment a line, see below")
    tokens.add_argument("--trained", action="store_true", help="only what is known to have trained")
    tokens.add_argument("--calls", action="store_true", help="one model call a line, also those that are not trained")
    tokens.add_argument("--step", metavar="N", help="of this step only")
    tokens.add_argument("--group", metavar="G", help="of this group only: g2 as on the screen, or its index from 0")
    tokens.add_argument("--trial", metavar="T", help="of this trial only: t1 as on the screen, or its index from 0")
    tokens.add_argument("--all-tries", action="store_true", help="also tries that were replaced, by a resumed run too")


def is_wanted(args: argparse.Namespace, kind: str) -> bool:
    """Whether --tokens is given. Raises `UsageError` for options that do not go with it, or that need it.

    `kind`: the format that was found for the output.
    """
    alone = [name for name in ("calls", "all_tries", "trained") if getattr(args, name)]
    alone += [name for name in ("step", "group", "trial") if getattr(args, name) is not None]
    if not args.tokens:
        if alone:
            raise UsageError(f"--{alone[0].replace('_', '-')} is for --tokens")
        return False
    if kind != "json":
        raise UsageError(f"--tokens is written as JSON lines: leave out --format {kind}, or name the file *.jsonl")
    others = {"--what": args.what, "--at": args.at if args.at != "end" else None}
    for name, value in others.items():
        if value is not None:
            raise UsageError(f"{name} does not go with --tokens")
    return True


def wanted(args: argparse.Namespace) -> Selection:
    """The selection of the options. Raises `UsageError`."""
    return Selection(
        step=_number("--step", args.step, ""), group=_number("--group", args.group, "g"),
        trial=_number("--trial", args.trial, "t"), all_tries=args.all_tries, trained=args.trained,
    )  # fmt: skip


def _number(option: str, text: str | None, letter: str) -> int | None:
    if text is None:
        return None
    named = bool(letter) and text[:1] == letter
    digits = text[1:] if named else text
    if _NUMBER.fullmatch(digits) is None or int(digits) < named:
        offer = f"give {letter}1 and up as on the screen, or an index from 0" if letter else "give a number from 0"
        raise UsageError(f"{option} {text}: {offer}")
    return int(digits) - named


def export_tokens(
    run_dir: Path, selection: Selection, by_call: bool, write: Callable[[str], object], progress: Progress
) -> Told:
    """Write the rows of the tries that are wanted; a file that is broken is told of and costs its own rows only.

    Raises:
        UsageError: nothing was captured, or nothing of what is wanted.
        RecordingError: the directory cannot be read; OSError: of `write`.
    """
    told = Told()
    facts = _facts(run_dir, told)
    files = _chosen(run_dir, selection, facts)
    if gone := missing(selection, facts, files):
        named = ", ".join(gone[:NAMED]) + (f" and {len(gone) - NAMED} more" if len(gone) > NAMED else "")
        told.lines.append(f"{run_dir}/capture: calls were captured whose files are gone: {named}")
        told.exit_code = RecordingError.exit_code
    progress.total = len(files)
    counts = Counts()
    for number, chosen in enumerate(files):
        file = CapturedTrialFile(chosen.path)
        try:
            _look(file)
            if selection.trained and not trained_of(chosen, file, facts):
                counts.left_out += 1
            else:
                for row in _rows(chosen, file, facts, counts, by_call):
                    if row["trained"] or not selection.trained:
                        write(msgspec.json.encode(row).decode() + "\n")
            problem = file.damage
        except RecordingError as error:
            problem = file.damage or str(error)
        if problem:
            told.lines.append(problem)
            told.exit_code = RecordingError.exit_code
        progress(number + 1)
    told.lines.append(summary(counts, by_call))
    return told


def _facts(run_dir: Path, told: Told) -> TrialFacts:
    from console.records.run_dir import RunRecord

    try:
        return trial_facts(RunRecord(run_dir))
    except RecordingError as error:
        told.lines.append(f"{error}; the tokens are exported without outcome and reward")
        return TrialFacts()


def _chosen(run_dir: Path, selection: Selection, facts: TrialFacts) -> list[Chosen]:
    try:
        if files := chosen_files(run_dir, selection, facts):
            return files
        known = [place for path in trial_files(run_dir) if (place := place_of_file(path.name)) is not None]
    except OSError as error:
        raise RecordingError(f"{run_dir}/capture: cannot be read ({error.strerror})") from error
    if not known:
        raise UsageError(f"{run_dir}: no model calls were captured in it (capture/ has none)")
    steps = sorted({place[0] for place in known})
    raise UsageError(f"nothing was captured of what is asked for: there are steps {steps[0]} to {steps[-1]}")


def _rows(
    chosen: Chosen, file: CapturedTrialFile, facts: TrialFacts, counts: Counts, by_call: bool
) -> Iterator[Row]:  # fmt: skip
    try:
        yield from token_rows(chosen, file, facts, counts, by_call)
    except OSError as error:
        raise RecordingError(f"{file.shown_path}: cannot be read ({error.strerror})") from error


def _look(file: CapturedTrialFile) -> None:
    """Take in the file as it is now. Raises RecordingError."""
    try:
        there = file.refresh()
        while there and not file.complete:
            there = file.refresh()
    except OSError as error:
        raise RecordingError(f"{file.path}: cannot be read ({error.strerror})") from error
    if not there:
        raise RecordingError(file.damage or f"{file.path}: is gone")
