"""`quarterdeck bench triage`: what became of each trial, and the line of which file says so."""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.commands.bench_options import (
    RULE_FILE,
    Progress,
    add_formats,
    add_reading,
    complain,
    idle_rules,
    load,
    markdown_table,
    open_session,
)
from console.commands.parsing import Parser
from console.errors import UsageError
from console.outcomes.classes import OutcomeClass
from console.outcomes.meaning import CLASSES

if TYPE_CHECKING:
    from console.bench.model import Judged
    from console.bench.rules.user import UserRules
    from console.bench.session import Session

NOT_HERE = (OutcomeClass.CAPTURE_LOSS, OutcomeClass.NO_LOGPROBS, OutcomeClass.NO_SAMPLES)
"""Classes of training, which a job directory cannot tell."""
COLUMNS = (
    "job", "trial_dir", "task", "agent", "model", "attempt", "try", "class", "cause", "reward", "exception",
    "evidence_file", "evidence_line", "evidence_text", "confidence", "rule", "notes",
)  # fmt: skip
_MARKDOWN = ("task", "attempt", "try", "class", "cause", "reward", "exception", "evidence_text", "trial_dir")

_WORDING = ("commands/bench_triage.py", "commands/bench_triage_text.py", "commands/bench_text.py", "state/sanitize.py")
"""Code that puts verdicts into the words that are kept as an answer."""

_EPILOG = (
    "classes: what became of a trial\n"
    + "".join(f"  {outcome.value:<18}{CLASSES[outcome]}\n" for outcome in OutcomeClass if outcome not in NOT_HERE)
    + """
Each verdict names the file, line and text that decided it, and how sure it is: high (a type or a phase says it),
medium (a text says it), low (the best of several readings). What contradicts itself stays ambiguous: no rule guesses.
Findings are about the job as a whole: everything failing the same way, sandboxes killed when idle, a crowded run.

a reading of what is often taken for the agent's fault:
  infrastructure     run these again; an AgentTimeoutError is a result unless it came long before its limit, and \
then somebody else's
  bad_reward         the verifier wrote a zero, or nothing, without having run its tests
  configuration      an expired key or quota fails every trial: nothing here says anything about the model
  agent_timeout      with next to no output tokens often runaway thinking: switch thinking off at the server \
(enable_thinking false), and check that reasoning_tokens are 0

How a healthy hard trial looks (one run, as a scale and not as a target): atrx-vep-crispr of Terminal-Bench 3.0,
a task of 7 expert hours, Qwen3.8-27B-FP8 with terminus-2: no exception, reward 0, 3 h 6 min, about 5.68 M input and
681 K output tokens. A zero like that is the model's; a zero after 20 seconds seldom is.

"""
    + RULE_FILE
    + """
examples:
  quarterdeck bench triage jobs/a            what failed, with evidence
  quarterdeck bench triage jobs/a --trials   and each trial that failed
  quarterdeck bench triage jobs/a --only infrastructure/api
  quarterdeck bench triage jobs/a --json | jq -r .task
"""
)


def triage_main(argv: Sequence[str]) -> int:
    """Run `bench triage`; the exit code."""
    parser = Parser(
        "bench triage",
        "Tells what became of each trial of Harbor's job directories: an outcome class and a cause, with the evidence.",
        _EPILOG,
    )
    parser.add_argument("dirs", nargs="+", type=Path, metavar="DIR", help="job directory, directory of jobs, or trial")
    parser.add_argument(
        "--only", action="append", default=[], metavar="CLASS[/CAUSE]", help="only these trials; repeat for more"
    )
    parser.add_argument("--trials", action="store_true", help="a line for each trial that did not simply complete")
    add_reading(parser)
    add_formats(parser, "one JSON object a trial and line, as they are read")
    args = parser.parse_args(argv)
    only = [_wanted(text) for text in args.only]
    rules = load(args)
    progress = Progress()
    session = open_session(args, args.dirs, rules, progress)
    complain(session.problems)
    if args.json or args.csv or args.markdown:
        chosen = (judged for judged in _read(session.numbered(), progress) if _fits(judged, only))
        for text in _answer(args, chosen, rules):
            sys.stdout.write(text)
        complain(idle_rules(rules, session.decided))
        return 0
    lines, decided = _text(args, session, only, progress)
    complain(idle_rules(rules, decided))
    for line in lines:
        sys.stdout.write(line + "\n")
    return 0


def _wanted(text: str) -> tuple[str, str]:
    """Class and cause (a glob) of `--only`. Raises UsageError."""
    outcome, _, cause = text.partition("/")
    known = [one.value for one in OutcomeClass if one not in NOT_HERE]
    if outcome not in known:
        raise UsageError(f"--only {text}: {outcome!r} is no class; one of {', '.join(known)}, with /CAUSE behind it")
    return outcome, cause or "*"


def _fits(judged: Judged, only: Sequence[tuple[str, str]]) -> bool:
    return not only or any(
        judged.outcome.value == outcome and fnmatch.fnmatchcase(judged.cause, cause) for outcome, cause in only
    )


def _text(
    args: argparse.Namespace, session: Session, only: Sequence[tuple[str, str]], progress: Progress
) -> tuple[list[str], Collection[str]]:
    """The lines for a terminal, and the user's rules that decided, out of the cache where nothing has changed."""
    from console.bench.answers import keep, recall
    from console.bench.cache import code_digest
    from console.commands.bench_text import columns

    def key() -> str | None:
        found = session.fingerprint()
        return None if found is None else f"triage {code_digest(_WORDING)} {columns()} {only} {args.trials} {found}"

    answer = recall(session.directory, before := key(), tuple[list[str], list[str]])
    if answer is None:
        from console.commands.bench_triage_text import triage_text

        each = bool(args.trials or only)
        stream = _read(session.numbered(), progress) if each else session.judged()
        wanted = (lambda judged: _fits(judged, only)) if only else None
        lines = list(triage_text(session, stream, wanted, each=each))
        progress.end()
        answer = lines, sorted(session.decided)
        keep(session.directory, before or key(), answer)
    return answer


def _read(stream: Iterator[Judged], progress: Progress) -> Iterator[Judged]:
    """A stream that has read everything before its first verdict."""
    for judged in stream:
        progress.end()
        yield judged
    progress.end()


def _answer(args: argparse.Namespace, chosen: Iterable[Judged], rules: UserRules | None) -> Iterator[str]:
    from console.bench.triage import as_row
    from console.records.tables import csv_lines

    if args.json:
        for judged in chosen:
            yield json.dumps(as_row(judged, rules)) + "\n"
        return
    rows = (_flat(as_row(judged, rules)) for judged in chosen)
    if args.csv:
        yield from csv_lines(COLUMNS, ([row[name] for name in COLUMNS] for row in rows))
    else:
        for line in markdown_table(_MARKDOWN, ([row[name] for name in _MARKDOWN] for row in rows)):
            yield line + "\n"


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row of plain values, for tables."""
    evidence, notes = row.pop("evidence"), row.pop("notes")
    return {**row, **{f"evidence_{key}": value for key, value in evidence.items()}, "notes": "; ".join(notes.values())}
