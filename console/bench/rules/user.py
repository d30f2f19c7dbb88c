"""A user's own rules: a TOML file that classifies what the built-in rules do not know, and single trials by hand.

reward_key = "score"                # the key among the verifier's rewards; "reward" unless given

[[rule]]
name = "proxy"
pattern = "upstream connect error"  # a regular expression, searched line by line
where = "agent"                     # exception, agent, verifier, trial.log; one or a list
class = "infrastructure"
cause = "api"
task = "qemu-*"                     # optional
order = "before"                    # before the built-in rules, or after those that left it undecided

[[override]]
trial = "my-job/fix-git__AbCdEfG"   # a glob of the trial's directory
class = "infrastructure"
cause = "sandbox"
why = "power cut in the machine room"
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from console.bench.rules.patterns import LINE, compile_pattern
from console.errors import UsageError
from console.outcomes.classes import OutcomeClass
from console.outcomes.text import TAIL
from console.records.regular import open_regular

MOST_BYTES = 1 << 20
MOST_RULES = 500
WHERE = ("exception", "agent", "verifier", "trial.log")
_PLACES = {"exception": "exception", "agent": "agent's log", "verifier": "verifier's output", "trial.log": "trial.log"}
ORDERS = ("before", "after")

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,59}", re.IGNORECASE)
_CAUSE = re.compile(r"[a-z][a-z0-9_]{0,39}")
_CAPTURE = {OutcomeClass.CAPTURE_LOSS, OutcomeClass.NO_LOGPROBS, OutcomeClass.NO_SAMPLES}
CLASSES = tuple(outcome.value for outcome in OutcomeClass if outcome not in _CAPTURE)
"""Classes that a rule may give: those of captured calls mean nothing here."""

_RULE_KEYS = {"name", "pattern", "where", "class", "cause", "task", "order", "ignore_case"}
_OVERRIDE_KEYS = {"trial", "class", "cause", "why"}


class UserRule(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern and what it means. `where`: which texts of a trial are searched; `task`: glob, "*" for every task."""

    name: str
    pattern: re.Pattern[str]
    where: tuple[str, ...]
    outcome: OutcomeClass
    cause: str
    task: str = "*"
    before: bool = True

    def concerns(self, task: str) -> bool:
        """Whether it is about this task, named with or without its organisation."""
        return self.task == "*" or any(fnmatch.fnmatchcase(name, self.task) for name in (task, task.rsplit("/", 1)[-1]))


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody knows of single trials. `trial`: a glob of the name, of job/name, or of the whole path."""

    trial: str
    outcome: OutcomeClass
    cause: str
    why: str

    def concerns(self, path: Path) -> bool:
        """Whether it is about the trial in this directory."""
        if "/" not in self.trial:
            return fnmatch.fnmatchcase(path.name, self.trial)
        return fnmatch.fnmatchcase(str(path), self.trial) or fnmatch.fnmatchcase(str(path), f"*/{self.trial}")


class UserRules(msgspec.Struct, frozen=True, kw_only=True):
    """A rule file, checked. `digest`: the first 12 hexadecimal digits of its SHA-256."""

    path: str
    digest: str
    reward_key: str = "reward"
    rules: tuple[UserRule, ...] = ()
    overrides: tuple[Override, ...] = ()

    def override(self, path: Path) -> Override | None:
        """The first override that concerns this trial."""
        return next((entry for entry in self.overrides if entry.concerns(path)), None)

    def idle(self, trials: Iterable[Path]) -> list[str]:
        """A line for each override that concerns none of these trials: its glob may be mistyped."""
        left = dict(enumerate(self.overrides, 1))
        for path in trials:
            if not left:
                break
            left = {number: entry for number, entry in left.items() if not entry.concerns(path)}
        return [f"override {number} ({entry.trial}) matched no trial" for number, entry in left.items()]

    def undecided(self, decided: Collection[str]) -> list[str]:
        """A line for each rule that is not among those that decided on a trial: its pattern may be mistyped."""
        return [
            f"rule {number} ({rule.name}) decided on no trial: its pattern is in no "
            f"{' and no '.join(_PLACES[place] for place in rule.where)}, or another rule decides first"
            for number, rule in enumerate(self.rules, 1)
            if rule.name not in decided
        ]


class Match(NamedTuple):
    """The line, counted from 0 in the text, that a rule's pattern was found in: the last one."""

    line: int
    text: str


def last_match(pattern: re.Pattern[str], text: str) -> Match | None:
    """The last line that the pattern is found in, of those at the end of `text` that make `TAIL` characters.

    Of a long line only its first `LINE` characters are searched.
    """
    lines = text.split("\n")
    searched = 0
    for number in range(len(lines) - 1, -1, -1):
        if pattern.search(lines[number][:LINE]):
            return Match(number, lines[number])
        searched += len(lines[number]) + 1
        if searched > TAIL:
            break
    return None


def load_rules(path: Path) -> UserRules:
    """Read and check a rule file.

    Raises:
        UsageError: it cannot be read, or something in it is wrong; one line for each mistake, which names the rule.
    """
    try:
        raw = _bytes(path)
        document = tomllib.loads(raw.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"rules {path}: {error.strerror or error}; give a TOML file with --rules") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"rules {path}: no TOML: {' '.join(str(error).split())[:200]}") from error
    faults: list[str] = []
    unknown = sorted(set(document) - {"reward_key", "rule", "override"})
    faults += [f"unknown key {key!r}; known are reward_key, [[rule]], [[override]]" for key in unknown]
    rules = [_read(_rule, "rule", number, entry, faults) for number, entry in _entries(document, "rule", faults)]
    overrides = [
        _read(_override, "override", number, entry, faults) for number, entry in _entries(document, "override", faults)
    ]
    key = document.get("reward_key", "reward")
    if not isinstance(key, str) or not key:
        faults.append("reward_key: a text is expected, the name of one of the verifier's rewards")
        key = "reward"
    names = [rule.name for rule in rules if rule is not None]
    faults += [f"rule {name!r} is there twice; give each its own name" for name in sorted(_twice(names))]
    if faults:
        raise UsageError("\n".join(f"rules {path}: {fault}" for fault in faults[:20]))
    return UserRules(
        path=str(path),
        digest=hashlib.sha256(raw).hexdigest()[:12],
        reward_key=key,
        rules=tuple(rule for rule in rules if rule is not None),
        overrides=tuple(entry for entry in overrides if entry is not None),
    )


def _bytes(path: Path) -> bytes:
    target = path.resolve()
    fd = open_regular(target)
    if fd is None:
        raise OSError("it is no regular file" if target.exists() else "there is no such file")
    with os.fdopen(fd, "rb") as file:
        raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise OSError(f"it is larger than {MOST_BYTES >> 20} MB")
    return raw


def _twice(names: list[str]) -> set[str]:
    return {name for name in names if names.count(name) > 1}


def _entries(document: Mapping[str, Any], key: str, faults: list[str]) -> list[tuple[int, Mapping[str, Any]]]:
    entries = document.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        faults.append(f"{key}: write each as a table that begins with [[{key}]]")
        return []
    if len(entries) > MOST_RULES:
        faults.append(f"{key}: {len(entries)} are given, at most {MOST_RULES} may be")
        return []
    return list(enumerate(entries, 1))


def _read[T](
    reader: Callable[[Mapping[str, Any]], T], kind: str, number: int, entry: Mapping[str, Any], faults: list[str]
) -> T | None:
    """One entry, or None with its mistakes among `faults`."""
    name = entry.get("name", entry.get("trial", ""))
    shown = f"{kind} {number}" + (f" ({name})" if isinstance(name, str) and name else "")
    try:
        return reader(entry)
    except ValueError as error:
        faults.append(f"{shown}: {error}")
        return None


def _rule(entry: Mapping[str, Any]) -> UserRule:
    _known(entry, _RULE_KEYS)
    name = _text(entry, "name")
    if not _NAME.fullmatch(name):
        raise ValueError("name: letters, digits, '.', '_' and '-' only, at most 60")
    ignore_case = entry.get("ignore_case", True)
    if not isinstance(ignore_case, bool):
        raise ValueError("ignore_case: true or false is expected")
    try:
        pattern = compile_pattern(_text(entry, "pattern"), ignore_case=ignore_case)
    except ValueError as error:
        raise ValueError(f"pattern: {error}") from error
    where = entry.get("where", "exception")
    where = [where] if isinstance(where, str) else where
    if not isinstance(where, list) or not where or not all(place in WHERE for place in where):
        raise ValueError(f"where: one or several of {', '.join(WHERE)} are expected")
    order = entry.get("order", "before")
    if order not in ORDERS:
        raise ValueError(f"order: {' or '.join(ORDERS)} is expected, of the built-in rules")
    outcome, cause = _verdict(entry)
    task = _text(entry, "task") if "task" in entry else "*"
    return UserRule(
        name=name,
        pattern=pattern,
        where=tuple(where),
        outcome=outcome,
        cause=cause,
        task=task,
        before=order == "before",
    )


def _override(entry: Mapping[str, Any]) -> Override:
    _known(entry, _OVERRIDE_KEYS)
    outcome, cause = _verdict(entry)
    return Override(trial=_text(entry, "trial"), outcome=outcome, cause=cause, why=_text(entry, "why"))


def _known(entry: Mapping[str, Any], keys: set[str]) -> None:
    unknown = sorted(set(entry) - keys)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(keys))}")


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{key}: a text is expected")
    if len(value) > 1000:
        raise ValueError(f"{key}: at most 1000 characters are expected")
    return value


def _verdict(entry: Mapping[str, Any]) -> tuple[OutcomeClass, str]:
    name = _text(entry, "class")
    if name not in CLASSES:
        raise ValueError(f"class: {name!r} is none; one of {', '.join(CLASSES)} is expected")
    cause = entry.get("cause", "")
    if not isinstance(cause, str) or (cause and not _CAUSE.fullmatch(cause)):
        raise ValueError("cause: a word of small letters, digits and '_' is expected")
    return OutcomeClass(name), cause
