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
        st.characters(categories=["Cc", "Cf", "Cs", "Co", "Mn", "Mc", "Me", "Zl", "Zp"]),
        st.sampled_from("\u034f\u1160\u1161\u11a8\u3164\ufe0f\U000e0100\U000e0041\x85"),
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


@given(HOSTILE, st.integers(min_value=1, max_value=12))
def test_what_was_cut_stays_as_it_is(text: str, limit: int) -> None:
    clean = sanitize(text, limit=limit)
    assert sanitize(clean, limit=limit) == clean


@given(HOSTILE)
def test_no_character_carries_more_than_two_that_take_no_cell(text: str) -> None:
    run = 0
    for char in sanitize(text):
        run = run + 1 if unicodedata.category(char) in ("Mn", "Me", "Mc") or "\u1161" <= char <= "\u11ff" else 0
        assert run <= 2


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
        ("हिन्दी, ไทยนี้, 한국어, עִבְרִית", "हिन्दी, ไทยนี้, 한국어, עִבְרִית"),
        ("a\u0301\x9b\u0301\u0301\u0301", "a\u0301\u0301"),
        ("heart \u2764\ufe0f x\U000e0100", "heart \u2764 x"),
        ("tag\U000e0041\U000e007f", "tag"),
        ("fill\u3164er\u115f", "fill er "),
        ("next\x85line\x0b\x0cpage\u2028a\u2029b", "next line page a b"),
        ("\u0301alone", "alone"),
        ("\x1bX sos \x1b\\a\x1b^pm\x9cb\x1b_apc\x07c", "abc"),
        ("\x98sos\x9ca\x9epm\x9cb\x9fapc\x9cc\x90dcs\x9cd", "abcd"),
        ("\x1b\x1b[31m[2Jx", "2Jx"),
        ("\x1bc\x1b(0\x1b#8\x1b%Gx", "x"),
        ("\u2066isolate\u2069\u200f\u061c\ufeff\u2060\u180e", "isolate"),
        ("del\x7f\x00nul", "delnul"),
        ("private \ue000 \U000f0000", "private � �"),
        (17, "17"),
    ],
)
def test_examples(text: object, clean: str) -> None:
    assert sanitize(text) == clean
