"""What is pasted is text, however the terminal's reads cut it, and whatever is in it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.events import Key, Paste

from console.tui.terminal_input import END, START, InputParser, PasteFilter


def events_of(*pieces: str) -> list[object]:
    parser = InputParser()
    return [event for piece in pieces for event in parser.feed(piece) if isinstance(event, Key | Paste)]


def test_a_paste_with_escape_sequences_presses_no_key() -> None:
    hostile = "a\x1b[5msss\x1b]0;PWNED\x07" + "\x1bq" * 9 + "\x1b" + "s" * 80 + "\x1b[200~\x1b[A\x1b[201\x1b"
    events = events_of(f"x{START}{hostile}{END}y")
    assert [event.key for event in events if isinstance(event, Key)] == ["x", "y"]
    pastes = [event.text for event in events if isinstance(event, Paste)]
    assert len(pastes) == 1 and pastes[0].startswith("a[5msss]0;PWNED") and "\x1b" not in pastes[0]


@given(st.text("ab\x1b[201~", max_size=40), st.lists(st.integers(0, 60), max_size=6))
def test_it_does_not_matter_where_the_reads_cut(body: str, cuts: list[int]) -> None:
    whole = f"j{START}{body.replace(END, '')}{END}k"
    if END in whole[: -len(END) - 1]:
        return  # what was left of a mark makes another one
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    pieces = [whole[a:b] for a, b in pairwise(places)]
    filtered = PasteFilter()
    assert "".join(filtered.clean(piece) for piece in pieces) == PasteFilter().clean(whole)
    assert PasteFilter().clean(whole) == f"j{START}{whole[7:-7].replace(chr(27), '')}{END}k"


@pytest.mark.parametrize("key", ["\x1b", "\x1b[A", "\x1bOP", "\x1b[20", "\x1b["])
def test_keys_are_passed_on_at_once(key: str) -> None:
    assert PasteFilter().clean(key) == key
