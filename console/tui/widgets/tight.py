"""Screen updates in as few bytes as possible.

Textual's partial update repaints from the left edge of a widget to the right end of what changed, and resets and
repeats the whole style with every segment. Over SSH that is most of the traffic. `TightUpdate` sends the changed cells
only, and of a style only what differs from the one before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate

if TYPE_CHECKING:
    from rich.console import Console
    from textual.strip import Strip

_ATTRIBUTES = (("bold", "1"), ("dim", "2"), ("italic", "3"), ("underline", "4"), ("reverse", "7"), ("strike", "9"))


class _Pen(NamedTuple):
    """SGR parameters of a style: attributes, foreground, background."""

    attributes: tuple[str, ...]
    foreground: tuple[str, ...]
    background: tuple[str, ...]


_NO_PEN = _Pen((), (), ())


class TightUpdate(ChopsUpdate):
    """The same update, rendered cell by cell."""

    def render_segments(self, console: Console) -> str:
        """The bytes for the terminal, as text."""
        system = COLOR_SYSTEMS.get(console.color_system or "")
        out: list[str] = []
        pen = _NO_PEN
        for y, x1, x2 in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items()):
                if strip is None or x >= x2 or end <= x1:
                    continue
                first = max(x, x1)
                out.append(f"\x1b[{y + 1};{first + 1}H")
                for text, style, _ in strip.crop(first - x, min(end, x2) - x):
                    wanted = _pen(style, system)
                    if wanted != pen:
                        out.append(_change(pen, wanted))
                        pen = wanted
                    out.append(text)
        if pen != _NO_PEN:
            out.append("\x1b[0m")
        return "".join(out)


def tightened(update: object) -> object:
    """The update of a screen in as few bytes as possible; anything else as it is."""
    if type(update) is ChopsUpdate:
        return TightUpdate(update.chops, update.spans, update.chop_ends)
    return _whole(update) if type(update) is LayoutUpdate else update


def _whole(update: LayoutUpdate) -> TightUpdate:
    """All cells of a region."""
    left, top, width, _ = update.region
    chops: list[dict[int, Strip | None]] = []
    ends: list[list[int]] = []
    for strips in update.strips:
        line: dict[int, Strip | None] = {}
        x = left
        for strip in strips:
            line[x] = strip
            x += strip.cell_length
        chops.append(line)
        ends.append([*[*line][1:], x])
    spans = [(y, left, left + width) for y in range(top, top + len(chops))]
    none: list[dict[int, Strip | None]] = [{} for _ in range(top)]
    return TightUpdate(none + chops, spans, [[] for _ in range(top)] + ends)


_pens: dict[tuple[Style | None, ColorSystem | None], _Pen] = {}


def _pen(style: Style | None, system: ColorSystem | None) -> _Pen:
    found = _pens.get((style, system))
    if found is None:
        if style is None:
            found = _NO_PEN
        else:
            attributes = tuple(code for name, code in _ATTRIBUTES if getattr(style, name))
            colours = [
                () if colour is None or system is None else tuple(colour.downgrade(system).get_ansi_codes(foreground))
                for colour, foreground in ((style.color, True), (style.bgcolor, False))
            ]
            found = _Pen(attributes, colours[0], colours[1])
        if len(_pens) > 4096:
            _pens.clear()
        _pens[style, system] = found
    return found


def _change(old: _Pen, new: _Pen) -> str:
    """The shortest of the sequences that turn one pen into the other."""
    if old.attributes == new.attributes:
        codes = [new.foreground or ("39",) if old.foreground != new.foreground else ()]
        codes.append(new.background or ("49",) if old.background != new.background else ())
        return f"\x1b[{';'.join(code for group in codes for code in group)}m"
    return f"\x1b[{';'.join(('0', *new.attributes, *new.foreground, *new.background))}m"
