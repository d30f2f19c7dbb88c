"""Filters: what they mean, what they refuse, and that no text breaks them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.errors import UsageError
from console.tui.filters import FIELDS, Filter, parse

ROW = {
    "name": "g3",
    "task": "Fix-Git history",
    "g": "3",
    "t": "1 2 8",
    "class": "infrastructure pass",
    "phase": "agent",
}


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("", True), ("   ", True), ("git", True), ("GIT fix", True), ("git svn", False), ("g3", True), ("agent", False),
        ("class:infra", True), ("class:INFRA phase:agent", True), ("class:zero", False), ("class:zero,pass", True),
        ("outcome:pass", True), ("g:3", True), ("g:1", False), ("g:13", False), ("g:2-5", True), ("g:4-9", False),
        ("g:7,3", True), ("t:8", True), ("t:3-7", False), ("!git", False), ("!svn", True), ("!class:infra", False),
        ("!class:zero g:3", True), ("!!git", True), ('"git hist"', True), ('"git  fix"', False), ('task:"t h"', True),
        ("task:git", True), ("status:kept", False), ("!status:kept", True), ("g:", None), ("class:", None), ("!", None),
        ("nope:1", None), ("g:x", None), ("g:3-", None), ('"git', None), ('task:"git', None), ("class:,", None),
    ],
)  # fmt: skip
def test_what_a_filter_lets_through(text: str, passes: bool | None) -> None:
    if passes is None:
        with pytest.raises(UsageError) as refused:
            parse(text)
        assert "\n" not in str(refused.value) and str(refused.value).startswith("filter: ")
    else:
        found = parse(text)
        assert found.matches(ROW) is passes
        assert bool(found) is bool(text.strip())


def test_a_filter_shows_what_was_typed_and_nothing_else() -> None:
    assert parse("  class:infra \t git\n").text == "class:infra git"
    assert parse("\x1b]0;x\x07a\u202eb").text == "ab"
    assert not Filter() and Filter().matches({})


def test_an_unknown_key_is_told_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"no key klass; there are class, phase, .*task"):
        parse("klass:infra")


@given(st.text(max_size=300))
def test_any_text_is_a_filter_or_one_line(text: str) -> None:
    said = ""
    try:
        found = parse(text)
    except UsageError as error:
        said = str(error)
        found = Filter()
    assert len(said.splitlines()) <= 1
    assert found.matches(ROW) in (True, False) and len(found.text) <= 200


@given(st.sampled_from(FIELDS), st.sampled_from(["infra", "3", "git", "agent"]))
def test_not_is_the_opposite(key: str, value: str) -> None:
    try:
        assert parse(f"!{key}:{value}").matches(ROW) is not parse(f"{key}:{value}").matches(ROW)
    except UsageError:
        assert key in ("g", "t", "step") and not value.isdigit()
