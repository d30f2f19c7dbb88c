"""One function that makes any string safe to paint: text of models, tools, sandboxes, gateways, file and task names.

A terminal obeys control characters wherever they come from, so a transcript could retitle the window, write the
clipboard or repaint the screen. `sanitize` is applied to each field on its own, before fields are joined, so that a
sequence opened in one field cannot swallow the next.
"""

from __future__ import annotations

import re
import unicodedata

FIELD_LIMIT = 4000
_COMBINING_LIMIT = 2
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

# A string sequence (OSC, DCS, APC, PM, SOS) goes as a whole when it is closed within bounds; an open one loses its
# introducer only, so that what follows stays readable.
_STRINGS = re.compile(r"(?:\x1b[\]P_^X]|[\x9d\x90\x9f\x9e\x98])[^\x07\x1b\x9c\n]{0,2000}(?:\x07|\x1b\\|\x9c)")
_CSI = re.compile(r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]")
_ESCAPES = re.compile(r"\x1b[ -/]{0,8}[0-~]")
_PLAIN = re.compile(r"[\x20-\x7e]*")
_SPACES = re.compile(r"[\t\n\r\x0b\x0c\x85\u2028\u2029]+")
# Marks that show nothing, or switch a glyph's width in some terminals and not in others: variation selectors, the
# grapheme joiner, Khmer inherent vowels, colours of skin.
_INVISIBLE_MARKS = re.compile(
    r"[\u034f\u17b4\u17b5\u180b-\u180d\u180f\ufe00-\ufe0f\U0001f3fb-\U0001f3ff\U000e0100-\U000e01ef]"
)
_FLAG_LETTERS = {0x1F1E6 + i: chr(ord("A") + i) for i in range(26)}
"""Regional indicators: two of them are a flag of two cells here, and of four there."""
_FILLERS = frozenset("\u115f\u1160\u3164\uffa0")
"""Hangul fillers: letters by category, blanks on the screen."""


def sanitize(text: object, limit: int = FIELD_LIMIT, keep_newlines: bool = False) -> str:
    """`text` as printable characters only.

    Escape sequences, C0 and C1 controls, DEL, bidi controls, zero-width, tag and other format characters, variation
    selectors and colours of skin are dropped; lone surrogates, private-use and unassigned characters become U+FFFD,
    flags their letters; runs of marks that take no cell are cut to two. Line breaks and tabs become one space, or, with
    `keep_newlines`, stay as line feeds and four spaces. The result has at most `limit` characters, the last one an
    ellipsis when something was cut; to sanitise it again changes nothing.
    """
    value = text if isinstance(text, str) else str(text)
    if len(value) <= limit and _PLAIN.fullmatch(value):
        return value
    cut = len(value) > limit * 4
    value = value[: limit * 4]
    value = _STRINGS.sub("", value)
    value = _CSI.sub("", value)
    value = _ESCAPES.sub("", value)
    if keep_newlines:
        value = value.replace("\r\n", "\n").replace("\t", "    ")
        value = "\n".join(_printable(_SPACES.sub(" ", line)) for line in value.split("\n"))
    else:
        value = _printable(_SPACES.sub(" ", value))
    if cut or len(value) > limit:
        value = value[: max(0, limit - 1)] + "…"
    return value


def _printable(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    text = text.translate(_FLAG_LETTERS)
    out: list[str] = []
    marks = 0
    for char in text:
        category = unicodedata.category(char)
        if category in ("Cc", "Cf") or _INVISIBLE_MARKS.match(char):
            continue  # and a run of marks goes on behind it, or what is left of it could be cut again
        if category in ("Mn", "Me", "Mc") or _joins(char):
            marks += 1
            if marks <= _COMBINING_LIMIT and out:
                out.append(char)
            continue
        marks = 0
        if category in ("Cs", "Co", "Cn"):
            out.append(_REPLACEMENT)
        elif category in ("Zs", "Zl", "Zp") or char in _FILLERS:
            out.append(" ")
        else:
            out.append(char)
    return "".join(out)


def _joins(char: str) -> bool:
    """Whether it is a vowel or final consonant of a Hangul syllable, which takes no cell of its own."""
    return "\u1161" <= char <= "\u11ff" or "\ud7b0" <= char <= "\ud7fb"
