"""A long text that is read while it grows."""

from __future__ import annotations

import random

import pytest
from rich.cells import cell_len

from console.tui import reading
from console.tui.reading import LongText
from console.tui.spans import cut_line, highlight, wrap_line
from console.tui.text import Line, Span, line, plain


def numbered(first: int, last: int) -> list[Line]:
    return [line(Span(f"line {n}")) for n in range(first, last)]


def seen(text: LongText, cells: int = 40, rows: int = 5) -> list[str]:
    return [plain(row).rstrip() for row in text.window(cells, rows)]


def test_it_follows_until_it_is_scrolled_up_and_counts_what_comes_then() -> None:
    text = LongText()
    text.append(numbered(0, 10))
    assert seen(text) == [f"line {n}" for n in range(5, 10)]
    text.append(numbered(10, 12))
    assert seen(text)[-1] == "line 11"
    text.scroll(-1)
    text.append(numbered(12, 20))
    assert seen(text) == [f"line {n}" for n in range(6, 11)]
    assert (text.follow, text.new) == (False, 8)
    text.scroll(100)
    assert seen(text)[-1] == "line 19"
    assert not text.follow
    text.append(numbered(20, 21))
    assert seen(text)[-1] == "line 19"
    text.to_last()
    assert seen(text)[-1] == "line 20"
    assert (text.follow, text.new) == (True, 0)
    text.toggle_follow()
    text.append(numbered(21, 22))
    assert (seen(text)[-1], text.new) == ("line 20", 1)


def test_first_page_and_shorter_texts() -> None:
    text = LongText(follow=False)
    text.append(numbered(0, 3))
    assert seen(text) == ["line 0", "line 1", "line 2"]
    text.scroll(5)
    assert seen(text)[0] == "line 0"
    text.append(numbered(3, 30))
    text.page(1)
    assert seen(text)[0] == "line 4"
    text.page(-1)
    assert seen(text)[0] == "line 0"
    text.to_first()
    assert text.span == (1, 5)


def test_wrapped_rows_scroll_one_by_one_and_a_new_width_keeps_the_line() -> None:
    text = LongText(follow=False)
    text.append([line(Span("abcdefghij" * 3)), *numbered(1, 20)])
    assert seen(text, 10, 4) == ["abcdefghij", "abcdefghij", "abcdefghij", "line 1"]
    text.scroll(2)
    assert seen(text, 10, 4) == ["abcdefghij", "line 1", "line 2", "line 3"]
    assert seen(text, 15, 4)[0] == "abcdefghijabcde"
    text.to_last()
    assert seen(text, 10, 2) == ["line 18", "line 19"]


def test_a_line_longer_than_the_window_can_be_read_to_its_end() -> None:
    text = LongText()
    text.append([line(Span("".join(chr(97 + i) * 10 for i in range(20))))])
    assert seen(text, 10, 4) == ["q" * 10, "r" * 10, "s" * 10, "t" * 10]
    text.scroll(-16)
    assert seen(text, 10, 4)[0] == "a" * 10
    text.scroll(3)
    assert seen(text, 10, 4)[0] == "d" * 10


def test_cut_lines_move_sideways() -> None:
    text = LongText(follow=False)
    text.append([line(Span("0123456789" * 5)), line(Span("short"))])
    text.window(20, 5)
    text.shift(1)
    assert text.left == 0  # wrapped: there is nothing to the right
    text.toggle_wrap()
    assert seen(text, 20, 5) == ["0123456789012345678…", "short"]
    text.shift(1)
    assert seen(text, 20, 5) == ["…789012345678901234…", ""]
    text.shift(1)
    assert seen(text, 20, 5) == ["…34567890123456789", ""]
    for _ in range(9):
        text.shift(1)
    assert seen(text, 20, 5)[0] == "…"
    text.shift(-9)
    assert seen(text, 20, 5)[1] == "short"


def test_memory_is_bounded_and_what_was_let_go_is_known() -> None:
    text = LongText(kept=100)
    for n in range(0, 1000, 10):
        text.append(numbered(n, n + 10))
    assert (text.first, text.total, len(text.lines)) == (900, 1000, 100)
    text.to_first()
    assert seen(text)[0] == "line 900"
    text.append(numbered(1000, 1050))  # the lines that are read go: the window stays on what exists
    assert seen(text)[0] == "line 950"
    assert text.span[0] == 951
    big = LongText()
    big.append(numbered(0, reading.KEPT * 3))
    assert len(big.lines) <= reading.KEPT + 1000


def test_search_goes_round_highlights_and_grows_with_the_text() -> None:
    text = LongText(follow=False)
    text.append([line(Span(f"row {n} " + ("NEEDLE here" if n % 10 == 3 else "hay"))) for n in range(50)])
    text.window(40, 5)
    text.search("needle")
    assert text.matches == (0, 5)
    assert text.find()
    assert text.matches == (1, 5)
    roles = {span.text: span.role for row in text.window(40, 5) for span in row}
    assert roles["NEEDLE"] == reading.HERE
    for expected in (2, 3, 4, 5, 1):
        text.find()
        assert text.matches[0] == expected
    text.find(forward=False)
    assert text.matches[0] == 5
    assert any("row 43" in row for row in seen(text))
    text.append([line(Span("one more Needle"))])
    assert text.matches == (5, 6)
    text.search("")
    assert not text.find()
    roles = {span.role for row in text.window(40, 60) for span in row}
    assert roles == {""}


def test_search_forgets_lines_that_are_gone() -> None:
    text = LongText(kept=10)
    text.search("x")
    text.append([line(Span("x"))] * 30)
    assert text.matches == (0, 10)
    assert text.find(forward=False)
    assert text.pop() == line(Span("x"))
    assert text.matches[1] == 9


def test_the_chosen_line_stays_in_the_window_and_stands_out() -> None:
    text = LongText(wrap=False)
    text.chosen = 0
    text.append(numbered(0, 30))
    assert [span.role for span in text.window(20, 5)[-1]] == ["selected", "selected"]
    text.choose(28)
    assert (text.follow, text.chosen) == (False, 28)
    assert seen(text)[-1] == "line 29"
    text.choose(10)
    assert seen(text)[0] == "line 10"
    text.choose(40)
    assert (text.chosen, seen(text)[-1]) == (29, "line 29")


def test_only_what_is_seen_is_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped = []
    monkeypatch.setattr(reading, "wrap_line", lambda spans, cells: wrapped.append(1) or wrap_line(spans, cells))
    text = LongText()
    text.append([line(Span("word " * 50))] * 20_000)
    for cells in (80, 100, 120):
        text.window(cells, 40)
    text.scroll(-200)
    text.window(120, 40)
    assert len(wrapped) < 400


def test_replaced_text_keeps_the_place() -> None:
    text = LongText(follow=False)
    text.replace(numbered(0, 30))
    text.window(40, 5)
    text.scroll(7)
    version = text.version
    text.replace(numbered(0, 30))
    assert text.version == version
    text.replace(numbered(0, 29))
    assert seen(text)[0] == "line 7"
    text.replace(numbered(0, 3))
    assert seen(text) == ["line 0", "line 1", "line 2"]


ALPHABET = "ab c日本é\u0301🙂 -"


def random_line(rnd: random.Random) -> Line:
    spans = []
    for _ in range(rnd.randint(0, 6)):
        spans.append(Span("".join(rnd.choice(ALPHABET) for _ in range(rnd.randint(1, 20))), rnd.choice(["", "a", "b"])))
    return tuple(spans)


def test_wrapping_loses_nothing_and_fits() -> None:
    rnd = random.Random(3)
    for _ in range(400):
        spans, cells = random_line(rnd), rnd.randint(2, 30)
        rows = wrap_line(spans, cells)
        assert "".join(plain(row) for row in rows) == plain(spans)
        assert all(cell_len(plain(row)) <= cells for row in rows)
        roles = [(char, span.role) for span in spans for char in span.text]
        assert [(char, span.role) for row in rows for span in row for char in span.text] == roles


def test_cutting_fits_and_is_a_part_of_the_line_with_marks_where_more_is() -> None:
    rnd = random.Random(4)
    for _ in range(400):
        spans, left, cells = random_line(rnd), rnd.randint(0, 30), rnd.randint(1, 30)
        text, part = plain(spans), plain(cut_line(spans, left, cells))
        assert part.strip("… ") in text
        assert cell_len(part) <= cells
        if part.strip() and cells > 1:
            assert part.startswith("…") == (left > 0)
        if part.strip("… ") and cells > 1:
            assert part.endswith("…") == (cell_len(text) > left + cells)


def test_highlighting_marks_every_place_and_changes_no_text() -> None:
    rnd = random.Random(5)
    for _ in range(400):
        spans = random_line(rnd)
        found = highlight(spans, "b c", "hit")
        assert plain(found) == plain(spans)
        marked = "".join(span.text for span in found if span.role == "hit")
        assert marked == "b c" * plain(spans).count("b c")
    assert highlight(line(Span("a strasse"), Span(" Straße")), "strasse", "hit")[0].role == "hit"
