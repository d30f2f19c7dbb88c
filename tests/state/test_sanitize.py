"""Whatever goes in, only printable characters come out, and harmless text comes out unchanged."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.state.sanitize import sanitize

INTRODUCERS = [
    "\x1b]",
    "\x1b[",
    "\x1bP",
    "\x1b_",
    "\x1b^",
    "\x1bX",
    "\x9b",
    "\x9d",
    "\x90",
    "\x1b",
    "\x07",
    "\x9c",
    "\x1b\\",
]
HOSTILE = st.lists(
    st.one_of(
        st.sampled_from(INTRODUCERS),
        st.characters(max_codepoint=0xA0),
        st.characters(categories=["Cc", "Cf", "Cs", "Co", "Mn", "Zl", "Zp"]),
        st.text(max_size=8),
    ),
    max_size=40,
).map("".join)
FORBIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@given(HOSTILE)
def test_only_printable_characters_survive(text: str) -> None:
    clean = sanitize(text)
    assert not [c for c in clean if unicodedata.category(c) in FORBIDDEN]
    assert sanitize(clean) == clean


@given(HOSTILE)
def test_newlines_survive_only_when_asked(text: str) -> None:
    clean = sanitize(text, keep_newlines=True)
    assert not [c for c in clean if c != "\n" and unicodedata.category(c) in FORBIDDEN]


@given(HOSTILE, st.integers(min_value=1, max_value=50))
def test_length_is_bounded(text: str, limit: int) -> None:
    assert len(sanitize(text, limit=limit)) <= limit


@given(st.text(alphabet=st.characters(min_codepoint=0x20, max_codepoint=0x7E)))
def test_plain_text_is_untouched(text: str) -> None:
    assert sanitize(text, limit=10_000) == text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("\x1b]0;PWNED\x07title", "title"),
        ("\x1b]52;c;aGk=\x1b\\clip", "clip"),
        ("a\x1b[2J\x1b[Hb", "ab"),
        ("\x9b31mred", "red"),
        ("\x1bP1;2q#0~\x1b\\sixel", "sixel"),
        ("\x1b]0;never closed", "0;never closed"),
        ("two\nlines\tand tab", "two lines and tab"),
        ("abc\u202edef", "abcdef"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("lone \ud800 surrogate", "lone � surrogate"),
        ("e" + "\u0301" * 20, "e\u0301\u0301"),
        ("日本 ✓ é", "日本 ✓ é"),
        (17, "17"),
    ],
)
def test_examples(text: object, clean: str) -> None:
    assert sanitize(text) == clean
