"""Strings that do harm when a terminal, a markup parser or a line of text gets them as they are, by family.

`FAMILIES` has the corpus; `STRINGS` is all of it, each one once. Whatever would show in a title, on the clipboard or in
an answer that the terminal types back says PWNED. Numbers in cursor moves lie outside of any screen under test, and
colours are such that the console never uses, so that a sequence that comes through cannot pass for one of its own.
"""

from __future__ import annotations

import base64

ESC, BEL, ST, C1_ST = "\x1b", "\x07", "\x1b\\", "\x9c"
PAYLOAD = base64.b64encode(b"PWNED").decode()
LONGEST = 1_000_000

_OSC = {
    "icon and title": "0;PWNED", "icon": "1;PWNED", "title": "2;PWNED", "property": "3;_NAME=PWNED",
    "palette": "4;1;rgb:ff/00/ff", "palette query": "4;1;?", "directory": "7;file://host/PWNED",
    "link": "8;;http://example.org/PWNED", "notify": "9;PWNED", "progress": "9;4;1;50", "foreground": "10;#ff00ff",
    "background": "11;#ff00ff", "background query": "11;?", "cursor colour": "12;#ff00ff",
    "log file": "46;/tmp/PWNED", "font": "50;PWNED", "clipboard": f"52;c;{PAYLOAD}", "clipboard query": "52;c;?",
    "selection": f"52;p;{PAYLOAD}", "clear clipboard": "52;c;!", "reset palette": "104", "reset foreground": "110",
    "prompt mark": "133;A", "command": "133;C;PWNED", "notify urxvt": "777;notify;PWNED;PWNED",
    "iterm mark": "1337;SetMark", "iterm file": f"1337;File=name=UFdORUQ=;inline=1:{PAYLOAD}",
    "iterm copy": f"1337;Copy=:{PAYLOAD}", "vscode": "633;E;PWNED", "linux palette": "P1ff00ff", "linux reset": "R",
    "sun title": "lPWNED",
}  # fmt: skip

_STRINGS = {
    "request status": "P$q q", "request termcap": "P+q544e", "set termcap": "P+p544e",
    "user keys": "P0;1|17/50574e4544", "sixel": 'Pq"1;1;9;9#0;2;100;0;100#0!9~', "regis": "P0pP[9,9]",
    "tmux passthrough": "Ptmux;\x1b\x1b]0;PWNED\x07", "screen passthrough": "P\x1b]0;PWNED\x07",
    "synchronised": "P=1s", "kitty picture": f"_Ga=T,f=24,s=9,v=9;{PAYLOAD}",
    "kitty query": "_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA", "kitty file": f"_Ga=T,t=f;{PAYLOAD}", "application": "_PWNED",
    "privacy": "^PWNED", "start of string": "XPWNED", "screen title": "kPWNED",
}  # fmt: skip

_CSI = {
    "up": "777A", "down": "777B", "right": "777C", "left": "777D", "next line": "777E", "line before": "777F",
    "column": "777G", "home": "H", "place": "777;777H", "place too": "777;777f", "column too": "777`", "row": "777d",
    "tabs": "777I", "tabs back": "777Z", "save": "s", "restore": "u", "erase below": "J", "erase above": "1J",
    "erase screen": "2J", "erase history": "3J", "erase line": "K", "erase the line": "2K", "erase some": "777X",
    "insert": "777@", "delete": "777P", "insert lines": "777L", "delete lines": "777M", "scroll up": "777S",
    "scroll down": "777T", "repeat": "777b", "region": "2;5r", "margins": "2;5s", "clear tabs": "3g", "blink": "5m",
    "conceal": "8m", "palette colour": "38;5;201m", "background": "48;5;201m", "colons": "38:2::255:0:255m",
    "double underline": "21m", "overline": "53m", "underline colour": "58;5;201m", "font": "11m",
    "many": "5;6;8;21;53m", "attributes": "c", "second attributes": ">c", "third attributes": "=c", "version": ">q",
    "status": "5n", "where": "6n", "where exactly": "?6n", "theme": "?996n", "request mode": "?1049$p",
    "parameters": "x", "checksum": "1;1;1;1;9;9*y", "window title": "21t", "icon title": "20t", "resize": "8;99;99t",
    "iconify": "2t", "push title": "22;0t", "pop title": "23;0t", "pixels": "14t", "insert mode": "4h",
    "line feed mode": "20h", "locked": "2h", "shape": "5 q", "soft reset": "!p", "level": "62;1\"p",
    "protect": "1\"q", "leds": "1q", "kitty keys": ">31u", "kitty set": "=31;1u", "kitty query": "?u",
    "modify keys": ">4;2m", "pointer": ">1p", "left scroll": "777 @", "media copy": "5i", "print screen": "i",
    "paste begins": "200~", "paste ends": "201~", "private": "?9999z", "endless": "1" * 300 + "m",
    "too many": "5;" * 200 + "5m", "cut off": "", "cut off too": "38;5", "bytes between": "1 !\"#$%&'()*+,-./z",
    "control inside": "3\x081m", "line break inside": "3\n1m",
}  # fmt: skip

_MODES = (1, 2, 3, 5, 6, 8, 9, 12, 25, 30, 40, 45, 47, 66, 67, 69, 80, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007,
          1015, 1016, 1034, 1047, 1048, 1049, 2004, 2026, 2027, 2031, 2048)  # fmt: skip

_ESCAPES = {
    "reset": "c", "save": "7", "restore": "8", "index": "D", "next line": "E", "reverse index": "M", "set tab": "H",
    "identify": "Z", "numeric keys": ">", "application keys": "=", "shift two": "N", "shift three": "O",
    "graphics": "(0", "graphics too": ")0", "utf-8 off": "%@", "utf-8 on": "%G", "test pattern": "#8",
    "double height": "#3", "seven bits": " F", "eight bits": " G", "lock": "n", "lock too": "o", "home down": "F",
    "memory lock": "l", "alone": "", "doubled": "\x1b[5m", "line break": "\n[5m",
}  # fmt: skip

_BIDI = {
    "lrm": "\u200e", "rlm": "\u200f", "alm": "\u061c", "lre": "\u202a", "rle": "\u202b", "pdf": "\u202c",
    "lro": "\u202d", "rlo": "\u202e", "lri": "\u2066", "rli": "\u2067", "fsi": "\u2068", "pdi": "\u2069",
}  # fmt: skip

_UNSEEN = {
    "soft hyphen": "\u00ad", "zero width space": "\u200b", "non-joiner": "\u200c", "joiner": "\u200d",
    "word joiner": "\u2060", "invisible times": "\u2062", "byte order mark": "\ufeff",
    "annotation": "\ufff9a\ufffab\ufffb", "hangul filler": "\u3164", "half filler": "\uffa0", "choseong": "\u115f",
    "khmer": "\u17b4", "mongolian": "\u180e", "grapheme joiner": "\u034f", "text style": "a\ufe0e",
    "emoji style": "a\ufe0f", "supplement": "a\U000e0100", "tag": "\U000e0001",
    "tag letters": "".join(chr(0xE0000 + ord(c)) for c in "PWNED"), "musical": "\U0001d173",
    "shorthand": "\U0001bca0", "inhibit": "\u206a", "line separator": "a\u2028b", "paragraph separator": "a\u2029b",
    "ogham": "\u1680", "hair": "\u200a", "ideographic space": "\u3000", "braille blank": "\u2800",
}  # fmt: skip

_MARKS = {
    "zalgo": "Z" + "\u0301\u0316\u035c\u0489" * 200, "flood": "\u0300" * 5000, "enclosing": "a\u20dd\u20e3" * 50,
    "spacing": "\u0915" + "\u093e" * 300, "sara am": "\u0e33" * 200, "jamo": "\u1100\u1161\u11a8" * 60,
    "vowels": "\u1161" * 300, "first": "\u0301PWNED", "musical": "\U0001d165" * 50,
}  # fmt: skip

_WIDE = {
    "chinese": "\u6f22\u5b57" * 300, "full width": "\uff21\uff22\uff23" * 40, "emoji": "\U0001f600" * 90,
    "family": "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466" * 12,
    "flags": "\U0001f1e9\U0001f1ea" * 30, "one flag letter": "\U0001f1e9", "keycap": "1\ufe0f\u20e3" * 20,
    "skin": "\U0001f44d\U0001f3ff" * 30, "heart": "\u2764\ufe0f" * 30,
    "ambiguous": "\u00b1\u00b0\u03b1\u0416\u2605\u25cf" * 30, "long dashes": "\u2e3a\u2e3b" * 9,
    "bismillah": "\ufdfd" * 5, "tibetan": "\u0f04\u0f05" * 9, "arabic": "\u0645\u0631\u062d\u0628\u0627" * 9,
    "tamil": "\u0b95\u0bca\u0b95\u0bcb" * 20, "odd cell": "a" + "\u6f22" * 200,
}  # fmt: skip

_BROKEN = {
    "high": "\ud800", "low": "\udfff", "pair reversed": "\udc00\ud800", "escaped C1": "\udc9b2J",
    "escaped bytes": "\udc80\udcff\udce9", "escaped OSC": "\udc9d0;PWNED\udc9c",
    "latin": b"caf\xe9 \x9b5m".decode("utf-8", "surrogateescape"), "private": "\ue000\uf8ff",
    "plane 16": "\U0010fffd", "unassigned": "\u0378\U000e0fff", "no character": "\uffff\ufdd0\U0001ffff",
    "replacement": "\ufffd",
}  # fmt: skip

_MARKUP = {
    "bold": "[bold red]PWNED[/bold red]", "closing": "[/]", "closing unknown": "[/nothing]",
    "link": "[link=http://example.org]x[/link]", "click": "[@click=app.quit]PWNED[/]",
    "click bell": "[@click='app.bell']x[/]", "action": "[@click=screen.exec('x')]", "emoji": ":skull: :pile_of_poo:",
    "open": "[", "brackets": "[[[[", "backslash": "\\[bold]", "ansi": "[#ff00ff on #00ff00]x",
    "variable": "$error [$error]x[/]", "style": "[reverse]x[/reverse]", "json": '{"a": [1, 2], "b": "[/b]"}',
    "markdown": "# PWNED\n**x** `y` [z](http://example.org)", "html": "<script>PWNED</script>&lt;",
    "svg": '"/></text><image href="http://example.org"/>', "css": "MainScreen { display: none; }",
}  # fmt: skip

_FORMATS = {
    "percent": "%s%n%d%%x", "braces": "{0.__class__} {} {x!r} {", "template": "${HOME} `id` $(id)",
    "logging": "%(message)s", "rich": "{task.percentage}", "quotes": "'\"`\\", "null": "nan None null inf -inf",
    "sql": "'; DROP TABLE runs; --", "path": "../../../etc/passwd", "dash": "--help", "regex": "(a+)+$",
    "date": "%Y%m%d", "json end": '"}\n{"type":"run.finished"}',
}  # fmt: skip

_LAYOUT = {
    "carriage return": "failed\rPASSED", "returns": "\r" * 200 + "PASSED", "feeds": "a\nb\nc\n\n\n",
    "many lines": "line\n" * 3000, "crlf": "a\r\nb\r\n", "overprint": "x\b\b\b\bPWNED", "backspaces": "\b" * 500,
    "tabs": "\t" * 300, "tab between": "a\tb\tc", "vertical": "a\x0bb\x0cc", "next line": "a\x85b",
    "long word": "W" * 5000, "spaces": " " * 5000, "blank": "", "blanks": "   \t ", "long line": "x" * LONGEST,
    "long escape": "\x1b]0;" + "P" * 50_000 + "\x07", "long csi": "\x1b[" + "5;" * 20_000 + "m", "deep": "[" * 3000,
    "prompt": "$ quarterdeck\n", "eof": "\x04", "rows of wide": "\u6f22\n" * 500,
}  # fmt: skip


def _osc() -> dict[str, str]:
    out: dict[str, str] = {}
    ends = {"bell": BEL, "st": ST, "c1": C1_ST, "open": ""}
    for at, (name, body) in enumerate(_OSC.items()):
        # The dangerous ones with each terminator, the rest with two of them.
        wanted = list(ends) if body[:2] in ("0;", "2;", "52", "8;", "9;") else [list(ends)[at % 3], "open"]
        for end in wanted:
            out[f"{name}, {end}"] = f"{ESC}]{body}{ends[end]}"
        out[f"{name}, c1 introducer"] = f"\x9d{body}{C1_ST}"
    return out


_SPLIT = {
    "esc": "\x1b", "csi": "]0;PWNED", "open title": "\x1b]0;PWN", "rest": "ED\x07", "open clipboard": "\x1b]52;c;",
    "rest of it": f"{PAYLOAD}\x1b\\", "colour": "\x1b[5", "its end": ";8m", "c1": "\x9b", "mode": "?1049h",
    "dcs": "\x1bP", "its body": "$qm\x1b\\", "st": "\x1b", "its backslash": "\\", "nested": "\x1b\x1b[[5mm",
    "hidden": "\x1b\x1b]0;x\x07]0;PWNED\x07", "inside": "\x1b\x1b[5m[5m", "joined": "\x1b\u200b[5m",
    "joined too": "\x1b\u202e]0;PWNED\x07", "surrogate": "\x1b\ud800[5m", "mark": "\x1b\u0300[5m",
}  # fmt: skip
"""Halves: whoever joins two fields before both are clean has the whole; and what is whole once something is removed."""

_C1_STRINGS = {"dcs": "\x90", "sos": "\x98", "pm": "\x9e", "apc": "\x9f"}
_C1_CSI = ("place", "erase screen", "blink", "where", "soft reset", "region")

FAMILIES: dict[str, dict[str, str]] = {
    "OSC": _osc(),
    "DCS, APC, PM, SOS": {
        f"{name}, {how}": text
        for name, body in _STRINGS.items()
        for how, text in (("st", f"{ESC}{body}{ST}"), ("open", f"{ESC}{body}"))
    },
    "C1 strings": {name: f"{c1}PWNED{C1_ST}" for name, c1 in _C1_STRINGS.items()},
    "CSI": {name: f"{ESC}[{body}" for name, body in _CSI.items()},
    "CSI as C1": {name: f"\x9b{_CSI[name]}" for name in _C1_CSI},
    "modes": {
        f"{mode}{final}": f"{ESC}[?{mode}{final}"
        for mode in _MODES
        for final in ("hl" if mode in (25, 1049, 2004) else "h")
    },
    "escapes": {name: f"{ESC}{body}" for name, body in _ESCAPES.items()},
    "C0": {f"{code:02x}": f"a{chr(code)}b" for code in (*range(0x20), 0x7F)},
    "C1": {f"{code:02x}": f"a{chr(code)}b" for code in range(0x80, 0xA0)},
    "runs of C0": {
        "enquiry": "\x05", "bells": "\x07" * 50, "shift out": "\x0eqqqq\x0f", "cancel": "\x1b[5\x18m",
        "substitute": "\x1b[5\x1am",
    },
    "bidi": {name: f"a{char}DENWP{char}" for name, char in _BIDI.items()},
    "unseen": _UNSEEN,
    "marks": _MARKS,
    "wide": _WIDE,
    "broken": _BROKEN,
    "markup": _MARKUP,
    "formats": _FORMATS,
    "layout": _LAYOUT,
    "split": _SPLIT,
}  # fmt: skip

STRINGS: tuple[str, ...] = tuple(dict.fromkeys(text for family in FAMILIES.values() for text in family.values()))


def joined_per_family(limit: int = 3000) -> list[str]:
    """Each family in a few texts of about `limit` characters, for fields of which a run has only one or two."""
    out: list[str] = []
    for family in FAMILIES.values():
        current = ""
        for text in family.values():
            if current and len(current) + len(text) > limit:
                out.append(current)
                current = ""
            current += text[:limit] + " "
        out.append(current)
    return out


def file_names() -> list[str]:
    """Those that can be the name of a file, as Python has it: no slash, no NUL, no surrogate that is no byte."""
    out: dict[str, None] = {}
    for text in STRINGS:
        name = text.replace("/", "-").replace("\0", "")[:60]
        try:
            raw = name.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            continue
        if 0 < len(raw) <= 250 and name not in (".", ".."):
            out[name] = None
    return list(out)
