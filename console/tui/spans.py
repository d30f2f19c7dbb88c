"""Lines of spans cut, wrapped and marked, as they go on a screen of so many cells. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, get_character_cell_size

from console.tui.text import Line, Span, plain

_MORE = "…"


def wrap_line(spans: Line, cells: int) -> list[Line]:
    """A line in rows of at most `cells`, broken after a space where there is one in the last third."""
    text = plain(spans)
    if cells <= 0 or (text.isascii() and len(text) <= cells) or (not text.isascii() and cell_len(text) <= cells):
        return [spans]
    return _split(spans, _breaks(text, cells))


def _breaks(text: str, cells: int) -> list[int]:
    """Where rows end, as offsets into `text`, the last one its length."""
    out: list[int] = []
    start, size = 0, len(text)
    narrow = text.isascii()
    while True:
        end = min(size, start + cells) if narrow else _fits(text, start, cells)
        if end >= size:
            return [*out, size]
        space = text.rfind(" ", start + cells * 2 // 3, end)
        if space > start:
            end = space + 1
        out.append(end)
        start = end


def _fits(text: str, start: int, cells: int) -> int:
    """The end of what fits into `cells` from `start` on; at least one character, with the marks that belong to it."""
    left, at = cells, start
    while at < len(text):
        size = get_character_cell_size(text[at])
        if size > left and at > start:
            break
        left -= size
        at += 1
    return at


def _split(spans: Line, ends: Sequence[int]) -> list[Line]:
    """The line cut at `ends`."""
    rows: list[Line] = []
    row: list[Span] = []
    at, wanted = 0, iter(ends)
    end = next(wanted)
    for text, role in spans:
        start = 0
        while at + len(text) - start > end:
            part = text[start : start + end - at]
            if part:
                row.append(Span(part, role))
            rows.append(tuple(row))
            row, start, at = [], start + len(part), end
            end = next(wanted)
        if start < len(text):
            row.append(Span(text[start:], role))
        at += len(text) - start
    return [*rows, tuple(row)]


def cut_line(spans: Line, left: int, cells: int) -> Line:
    """The part of a line from cell `left` on, at most `cells` wide, with marks where more of it is.

    A wide character at the edge goes as a whole.
    """
    if not left and cell_len(plain(spans)) <= cells:
        return spans
    out: list[Span] = []
    skip, room = left, cells
    for text, role in spans:
        if room <= 0:
            break
        if text.isascii():
            part = text[skip : skip + room]
            skip = max(0, skip - len(text))
            room -= len(part)
        else:
            chars: list[str] = []
            for char in text:
                size = get_character_cell_size(char)
                if skip > 0:
                    skip = max(0, skip - size)
                    continue
                if size > room:
                    room = 0
                    break
                chars.append(char)
                room -= size
            part = "".join(chars)
        if part:
            out.append(Span(part, role))
    seen = [i for i, span in enumerate(out) if cell_len(span.text)]
    out = out[seen[0] : seen[-1] + 1] if seen else []
    if out and left:
        out[0] = _more_before(out[0])
    if out and cell_len(plain(spans)) > left + cells:
        out[-1] = _more_after(out[-1])
    return tuple(out)


def _more_before(span: Span) -> Span:
    """Its first character, with the marks on it, gives way. Some character of it is seen."""
    sizes = [get_character_cell_size(char) for char in span.text]
    first = next(i for i, size in enumerate(sizes) if size)
    rest = next((i for i, size in enumerate(sizes[first + 1 :], first + 1) if size), len(sizes))
    return Span(_MORE + " " * (sizes[first] - 1) + span.text[rest:], span.role)


def _more_after(span: Span) -> Span:
    """Its last character gives way. Some character of it is seen."""
    last = next(i for i in reversed(range(len(span.text))) if get_character_cell_size(span.text[i]))
    return Span(span.text[:last] + " " * (get_character_cell_size(span.text[last]) - 1) + _MORE, span.role)


def highlight(spans: Line, needle: str, role: str) -> Line:
    """The line with every place of `needle` (casefolded) in `role`."""
    text = plain(spans)
    folded = text.casefold()
    if len(folded) != len(text):  # a letter that folds into two: the whole line is the place
        return tuple(Span(s.text, role) for s in spans)
    marks: list[tuple[int, int]] = []
    at = folded.find(needle)
    while at >= 0:
        marks.append((at, at + len(needle)))
        at = folded.find(needle, at + len(needle))
    out: list[Span] = []
    start, queue = 0, iter(marks)
    mark = next(queue, None)
    for piece, own in spans:
        end = start + len(piece)
        at = start
        while mark is not None and mark[0] < end:
            low, high = max(mark[0], at), min(mark[1], end)
            if low > at:
                out.append(Span(piece[at - start : low - start], own))
            if high > low:
                out.append(Span(piece[low - start : high - start], role))
            at = high
            if mark[1] > end:
                break
            mark = next(queue, None)
        if at < end:
            out.append(Span(piece[at - start :], own))
        start = end
    return tuple(out)
