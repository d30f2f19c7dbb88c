"""What the operator types after `/`: words and `key:value` terms, all of which must hold. Pure; every list uses it.

git fix            both words occur in the names (keys `name`, `task`, `text`)
class:infra        the field `class` has a word that contains `infra`
class:infra,zero   one of the two
g:3  g:3-8  g:3,7  numbers (`g`, `t`, `step`) are compared as such
!class:infra       not so
"two words"        quotes keep spaces together, also after a colon
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from console.errors import UsageError
from console.state.sanitize import sanitize

NAMES = ("name", "task", "text")
"""Fields that plain words look in."""
NUMBERS = ("g", "t", "step")
FIELDS = ("class", "phase", "level", "status", "run", "model", *NAMES, *NUMBERS)
_LONGEST = 200
_ALIASES = {"group": "g", "trial": "t", "outcome": "class", "kind": "class"}
_TERM = re.compile(r'(?P<no>!*)(?:(?P<key>[A-Za-z_]+):)?(?P<value>(?:"[^"]*"|[^\s"])*)')


@dataclass(frozen=True)
class Term:
    """One condition: `key` empty for a plain word; any of `values` will do; `no` turns it round."""

    key: str
    values: tuple[str, ...]
    no: bool = False

    def holds(self, fields: Mapping[str, str]) -> bool:
        """Whether it holds for a row."""
        return self._found(fields) is not self.no

    def _found(self, fields: Mapping[str, str]) -> bool:
        if self.key in NUMBERS:
            have = fields.get(self.key, "").split()
            return any(_within(number, value) for number in have for value in self.values)
        names = NAMES if not self.key else (self.key,)
        texts = [fields[name].casefold() for name in names if name in fields]
        return any(value in text for value in self.values for text in texts)


@dataclass(frozen=True)
class Filter:
    """A parsed filter; false when it lets everything through. `text` is as typed, fit to be painted."""

    text: str = ""
    terms: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether a row passes. A value may be several words, separated by spaces; a missing field has none."""
        return all(term.holds(fields) for term in self.terms)


def parse(text: str) -> Filter:
    """The filter that `text` spells. Raises `UsageError` with one line for an unknown key, a lone `!` or quote."""
    clean = " ".join(sanitize(text, limit=_LONGEST).split())
    terms: list[Term] = []
    at = 0
    while at < len(clean):
        if clean[at] == " ":
            at += 1
            continue
        found = _TERM.match(clean, at)
        if found is None or found.end() == at:
            raise UsageError(f"filter: the quote at {clean[at:][:20]} is not closed")
        at = found.end()
        if at < len(clean) and clean[at] == '"':
            raise UsageError(f"filter: the quote at {clean[at:][:20]} is not closed")
        terms.append(_term(found))
    return Filter(clean, tuple(terms))


def _term(found: re.Match[str]) -> Term:
    key, value = (found["key"] or "").casefold(), found["value"].replace('"', "").casefold()
    key = _ALIASES.get(key, key)
    if key and key not in FIELDS:
        raise UsageError(f"filter: no key {key}; there are {', '.join(FIELDS)}")
    values = tuple(v for v in (value.split(",") if key else [value]) if v)
    if not values:
        raise UsageError(f"filter: nothing after {found['no']}{key + ':' if key else ''}")
    if key in NUMBERS:
        wrong = next((v for v in values if not re.fullmatch(r"\d{1,9}(-\d{1,9})?", v)), None)
        if wrong is not None:
            raise UsageError(f"filter: {key}: wants a number or a range such as 3-8, not {wrong}")
    return Term(key, values, no=len(found["no"]) % 2 == 1)


def _within(number: str, value: str) -> bool:
    if not number.isdigit():
        return False
    low, _, high = value.partition("-")
    return int(low) <= int(number) <= int(high or low)
