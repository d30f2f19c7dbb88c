"""One trial close up: read again, judged again, and the lines around what decided. Bounded, whatever the files hold."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from console.bench.model import Evidence, Judged
from console.bench.rules.user import UserRules
from console.bench.triage import judge
from console.records.harbor.evidence import COUNTED, TAIL, agent_texts, tail
from console.records.harbor.files import below, directory
from console.records.harbor.model import JobRecord
from console.records.harbor.trials import read_trial
from console.records.redact import redact
from console.tui.bench.reading import Seen

AROUND = 6
"""Lines before and after the one that decided."""
LINE = 500
"""Characters of a line that are kept."""
_READ = 64 << 10
_BLOCK = 1 << 20
_OTHERS = ("result.json", "config.json", "exception.txt", "trial.log")


@dataclass(frozen=True)
class Excerpt:
    """Some lines of a file, not yet made safe for a terminal.

    Attributes:
        file: as the evidence names it; first: number of the first line, from 1, None where it is not known.
        lines: cut to `LINE` characters; at: index of the one that decided, -1 when it was not found again.
    """

    file: str = ""
    first: int | None = None
    lines: tuple[str, ...] = ()
    at: int = -1


@dataclass(frozen=True)
class Close:
    """A trial close up.

    Attributes:
        judged: its verdict as of now; excerpt: around its evidence; files: names below its directory, with sizes in
            bytes, None for one that cannot be looked at.
    """

    judged: Judged
    excerpt: Excerpt
    files: tuple[tuple[str, int | None], ...]


def look_close(seen: Seen, job: JobRecord | None, rules: UserRules | None) -> Close:
    """Read a trial again. What cannot be read is part of the answer."""
    path = Path(seen.path)
    judged = judge(read_trial(Path(seen.row.job), path), rules, job)
    # A trial without a result does not know its agent's name; those that were read with it told it.
    agent = seen.row.group.agent or judged.trial.agent
    judged = msgspec.structs.replace(judged, trial=msgspec.structs.replace(judged.trial, agent=agent))
    return Close(judged, excerpt(path, judged.evidence), tuple(_sizes(path, (*_OTHERS, *agent_texts(path)))))


def _sizes(path: Path, names: Iterable[str]) -> Iterable[tuple[str, int | None]]:
    for name in dict.fromkeys(names):
        try:
            info = os.stat(path / name, follow_symlinks=False)
        except FileNotFoundError:
            continue
        except OSError:
            yield name, None
        else:
            yield name, info.st_size


def excerpt(path: Path, evidence: Evidence, around: int = AROUND) -> Excerpt:
    """The lines around the evidence, in a file of the trial; without any for a file that cannot be read.

    Of a file without line numbers, which is a very long one, only the end is looked at.
    """
    if not evidence.file or os.path.isabs(evidence.file):
        return Excerpt(evidence.file)
    if evidence.line is not None:
        return _at_line(path, evidence.file, evidence.line, around)
    read = tail(path, evidence.file, TAIL)
    if not read.text:
        return Excerpt(evidence.file)
    lines = read.text.split("\n")
    wanted = " ".join(evidence.text.strip("…").split())[:120]
    # The evidence quotes no key, so the lines are compared without theirs.
    said = (" ".join(str(redact(one)).split()) for one in reversed(lines))
    at = next((len(lines) - 1 - back for back, one in enumerate(said) if wanted and wanted in one), -1)
    low = max(0, (at if at >= 0 else len(lines)) - around)
    some = lines[low : (at if at >= 0 else len(lines)) + around + 1]
    first = None if read.first_line is None else read.first_line + low
    return Excerpt(evidence.file, first, tuple(_clean(one) for one in some), at - low if at >= 0 else -1)


def _at_line(path: Path, name: str, line: int, around: int) -> Excerpt:
    first = max(1, line - around)
    try:
        with directory(path) as dir_fd, below(dir_fd, name) as found:
            if found is None:
                return Excerpt(name)
            fd, size = found
            start = _offset(fd, min(size, COUNTED + TAIL), first)
            data = b"" if start is None else os.pread(fd, _READ, start)
    except OSError:
        return Excerpt(name)
    lines = data.decode("utf-8", "replace").split("\n")[: line - first + 1 + around]
    if len(data) < _READ and lines and not lines[-1]:
        lines.pop()
    at = line - first if line - first < len(lines) else -1
    return Excerpt(name, first, tuple(_clean(one) for one in lines), at)


def _offset(fd: int, end: int, line: int) -> int | None:
    """Where line number `line` (from 1) begins; None when the first `end` bytes have fewer lines."""
    left, at = line - 1, 0
    while left and at < end:
        block = os.pread(fd, min(_BLOCK, end - at), at)
        if not block:
            return None
        found = block.count(b"\n")
        if found < left:
            left, at = left - found, at + len(block)
            continue
        place = -1
        for _ in range(left):
            place = block.index(b"\n", place + 1)
        return at + place + 1
    return None if left else at


def _clean(text: str) -> str:
    """Cut, and without what is shaped like a key."""
    return str(redact(text[:LINE])) + ("…" if len(text) > LINE else "")
