"""A trial close up as lines: verdict, the line that decided with those around it, phases, files. Pure."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator

from console.bench.model import Judged
from console.outcomes.meaning import CLASSES, rule_meaning
from console.records.redact import redact
from console.state.sanitize import sanitize
from console.tui.bench.evidence import Close, Excerpt
from console.tui.bench.reading import Seen
from console.tui.bench.trials import attempt, kind, reward
from console.tui.glyphs import SIGNS, Marks, sign_text
from console.tui.text import Line, Span, count, line, short_time, wrap

_PHASES = ("environment", "setup", "agent", "verify")
_NAME = 13
_MESSAGE_LINES, _MESSAGE = 12, 4_000


def close_up(seen: Seen, close: Close, marks: Marks, ascii_only: bool, marked: bool, cells: int) -> list[Line]:
    """Everything about the trial; words of ours in lines of at most `cells`, those of its files as long as they are."""

    def named(name: str, text: object, role: str = "") -> list[Line]:
        rows = wrap(_text(text), max(20, cells - _NAME - 4), role)
        return [line(Span(f"   {name if i == 0 else '':<{_NAME}}", "muted"), *row) for i, row in enumerate(rows)]

    judged = close.judged
    trial = judged.trial
    sign = SIGNS[kind(seen)]
    outcome = f"{judged.outcome.value}/{judged.cause}" if judged.cause else judged.outcome.value
    out = [
        line(
            Span(f" {sign_text(kind(seen), ascii_only)} ", sign.role),
            Span(sanitize(outcome, limit=120), f"{sign.role.split('+')[0]}+bold"),
            Span(f"  reward {reward(seen)}", "bold"),
            Span("  marked", "limit+bold" if marked else "") if marked else Span(""),
        ),
        *named("", CLASSES[judged.outcome]),
        *named("rule", f"{judged.rule}: {rule_meaning(judged.rule) or 'a rule of your own'}"),
        *named("confidence", judged.confidence.value),
    ]
    if not seen.row.chosen:
        out += named("try", "another try of this attempt stands for it", "limit")
    for note in judged.notes.values():
        out += named("also", note, "limit")
    if trial.problem:
        out += named("problem", trial.problem_text, "infra")
    out += [(), *_excerpt(judged, close.excerpt, marks)]
    out += _errors(judged)
    out += [(), _heading("Trial"), *_facts(seen, judged)]
    out += [(), _heading("Phases"), *_phases(judged)]
    out += [(), _heading(f"Files below {_text(seen.path)}")]
    out += [line(Span(f"   {_text(name, 300)}"), Span(f"  {_bytes(size)}", "muted")) for name, size in close.files]
    return out


def _text(text: object, limit: int = 1000) -> str:
    return sanitize(text, limit=limit)


def _heading(text: str) -> Line:
    return line(Span(f" {text}", "title"))


def _named(name: str, text: object, role: str = "") -> Line:
    return line(Span(f"   {name:<{_NAME}}", "muted"), Span(_text(text), role))


def _excerpt(judged: Judged, found: Excerpt, marks: Marks) -> Iterator[Line]:
    evidence = judged.evidence
    place = f":{evidence.line}" if evidence.line is not None else ""
    yield _heading(f"Evidence: {_text(evidence.file, 300)}{place}" if evidence.file else "Evidence")
    if not found.lines:
        text = evidence.text or ("the trial's files have no text that decided" if not evidence.file else "")
        yield line(Span(f"   {_text(redact(text))}", "bold" if evidence.text else "muted"))
        return
    width = len(str((found.first or 1) + len(found.lines)))
    for at, text in enumerate(found.lines):
        number = "" if found.first is None else str(found.first + at)
        here = at == found.at
        yield line(
            Span(f" {marks.cursor if here else ' '} {number:>{width}} ", "key" if here else "muted"),
            Span(sanitize(text, limit=600), "bold+reverse" if here else ""),
        )
    if found.at < 0:
        yield line(Span("   the deciding line was not found again; it said: ", "limit"), Span(_text(evidence.text)))


def _errors(judged: Judged) -> Iterator[Line]:
    for error in judged.trial.errors[:6]:
        step = f" of step {error.step}" if error.step else ""
        yield ()
        yield _heading(_text(f"Exception{step}: {error.type}", 300))
        message = sanitize(redact(error.message), limit=_MESSAGE, keep_newlines=True)
        rows = message.split("\n")
        yield from (line(Span(f"   {row[:600]}")) for row in rows[:_MESSAGE_LINES])
        if len(rows) > _MESSAGE_LINES:
            yield line(Span(f"   {len(rows) - _MESSAGE_LINES} more lines in {_text(error.file, 200)}", "muted"))


def _facts(seen: Seen, judged: Judged) -> Iterator[Line]:
    trial, row = judged.trial, seen.row
    yield _named("task", trial.task or "not recorded")
    yield _named("attempt, try", attempt(seen))
    yield _named("agent", " ".join(x for x in (trial.agent, trial.agent_version) if x) or "not recorded")
    yield _named("model", trial.model or "not recorded")
    yield _named("dataset", trial.dataset or "not recorded")
    if trial.agent_timeout is not None:
        yield _named("time-out", f"{short_time(trial.agent_timeout)} for the agent")
    names = (("input", trial.input_tokens), ("cached", trial.cached_tokens), ("output", trial.output_tokens))
    yield _named("tokens", ", ".join(f"{count(value)} {name}" for name, value in names))
    if trial.cost_usd is not None:
        yield _named("cost", f"${trial.cost_usd:,.4f}")
    if trial.rewards is not None and len(trial.rewards) > 1:
        some = list(trial.rewards.items())[:12]
        yield _named("rewards", ", ".join(f"{name} {value}" for name, value in some))
    yield _named("sandbox", trial.environment or "not recorded")
    yield _named("Harbor", trial.harbor or "not recorded")
    yield _named("job", row.job)


def _phases(judged: Judged) -> Iterator[Line]:
    found = judged.trial.phases
    if not found:
        yield _named("", "none was recorded")
    for name in sorted(found, key=lambda one: _PHASES.index(one) if one in _PHASES else len(_PHASES)):
        phase = found[name]
        when = "--" if phase.began is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(phase.began))
        yield _named(name, f"{when}  {'did not end' if phase.ended is None else short_time(phase.seconds)}")


def _bytes(size: int | None) -> str:
    if size is None:
        return "cannot be looked at"
    return f"{size:,} bytes" if size < 10_000 else f"{size / 1000:,.0f} KB" if size < 1e7 else f"{size / 1e6:,.0f} MB"


def place(seen: Seen) -> str:
    """The file to open, as a shell takes it, with the line behind a colon."""
    evidence = seen.evidence
    where = os.path.join(seen.path, evidence.file) if evidence.file else seen.path
    return where + (f":{evidence.line}" if evidence.line is not None else "")


def yank(trials: Iterable[Seen]) -> str:
    """Directories, a line each."""
    return "\n".join(seen.path for seen in trials)
