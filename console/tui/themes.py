"""Theme files: YAML, checked against a type, turned into a Textual theme and into the styles of the roles.

A file that cannot be read or does not fit is reported by name and skipped; the console starts without it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import yaml
from rich.style import Style

from console.state.sanitize import sanitize

if TYPE_CHECKING:
    from textual.theme import Theme

DEFAULT_THEME = "dark"
_ANSI = "default|(bright_)?(black|red|green|yellow|blue|magenta|cyan|white)"
Colour = Annotated[str, msgspec.Meta(pattern=rf"^(#[0-9a-fA-F]{{6}}|{_ANSI})$", description="#rrggbb or an ANSI name")]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9-]{0,30}$")]
_FLAGS = {"bold": Style(bold=True), "reverse": Style(reverse=True)}


class OutcomeColours(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Colours of the four outcome roles."""

    passed: Colour = msgspec.field(name="pass")
    zero: Colour
    limit: Colour
    infra: Colour


class ThemeFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One theme.

    Attributes:
        name: how it is chosen; title: how it is shown.
        dark: dark background; ansi: colours are the terminal's own names, not hex.
        background, foreground: of everything; muted: secondary text; rule: lines; accent: titles, keys and plots;
            selection: background of the selected row.
        infra_reverse: infrastructure failures are always in reverse video (for backgrounds where the hue is too near).
        plain: no colour tells outcomes apart, attributes do; exempt from the test of colour distance.
    """

    name: Name
    title: str
    dark: bool = True
    ansi: bool = False
    background: Colour
    foreground: Colour
    muted: Colour
    rule: Colour
    accent: Colour
    selection: Colour
    outcome: OutcomeColours
    infra_reverse: bool = False
    plain: bool = False

    def textual(self) -> Theme:
        """The Textual theme: colours of the widgets that are not painted through the palette."""
        from textual.theme import Theme

        def name(colour: str) -> str:
            return colour if colour.startswith("#") else f"ansi_{colour}"

        return Theme(
            name=self.name,
            dark=self.dark,
            ansi=self.ansi,
            primary=name(self.accent),
            accent=name(self.accent),
            secondary=name(self.muted),
            foreground=name(self.foreground),
            background=name(self.background),
            surface=name(self.background),
            panel=name(self.background),
            boost=name(self.background),
            warning=name(self.outcome.limit),
            error=name(self.outcome.infra),
            success=name(self.outcome.passed),
            variables={"ansi-background": "ansi_default", "ansi-foreground": "ansi_default"} if self.ansi else {},
        )


class Palette:
    """Role names to Rich styles, for one theme. `a+b` combines roles and flags, the later ones win."""

    def __init__(self, theme: ThemeFile) -> None:
        self.theme = theme
        bg = theme.background
        out = theme.outcome
        self._base = {
            "": Style(),
            "text": Style(),
            "muted": Style(color=theme.muted),
            "rule": Style(color=theme.rule),
            "title": Style(color=theme.accent, bold=True),
            "accent": Style(color=theme.accent),
            "key": Style(color=theme.accent, bold=True),
            "selected": Style(bgcolor=theme.selection) if theme.selection != bg else Style(reverse=True),
            "pass": Style(color=out.passed),
            "zero": Style(color=out.zero),
            "limit": Style(color=out.limit),
            "infra": Style(color=out.infra, reverse=theme.infra_reverse or None),
            "alert": self._badge(out.infra),
            "badge-live": self._badge(out.passed),
            "badge-replay": self._badge(out.limit),
            "badge-warn": self._badge(out.limit),
            "badge-dead": self._badge(out.infra),
            "badge-quiet": self._badge(theme.muted),
        }
        self._cache: dict[str, Style] = {}
        self.base = Style(color=theme.foreground, bgcolor=bg)

    def _badge(self, colour: str) -> Style:
        if self.theme.ansi:
            return Style(color=colour, bold=True, reverse=True)
        return Style(color=self.theme.background, bgcolor=colour, bold=True, reverse=False)

    def style(self, role: str) -> Style:
        """The style of a role; an unknown role is plain text."""
        found = self._cache.get(role)
        if found is None:
            found = self.base
            for name in role.split("+"):
                found = found + (_FLAGS.get(name) or self._base.get(name, Style()))
            self._cache[role] = found
        return found


class Themes:
    """All themes of some directories: `loaded` by name, and `failed` as one line per bad file.

    A theme of a later directory takes the place of an earlier one's of the same name.
    """

    def __init__(self, *directories: Path) -> None:
        self.loaded: dict[str, ThemeFile] = {}
        self.failed: list[str] = []
        self._directories = directories
        self._files: dict[str, Path] = {}
        self._stamps: dict[Path, tuple[int, int]] = {}
        self.scan()
        if DEFAULT_THEME not in self.loaded:
            self.loaded = {DEFAULT_THEME: FALLBACK, **self.loaded}

    def scan(self) -> list[ThemeFile]:
        """Load files that are new since the last time; the themes in them."""
        found = []
        for path in [p for directory in self._directories for p in sorted(directory.glob("*.yaml"))]:
            if path in self._stamps:
                continue
            self._stamps[path] = _stamp(path)
            try:
                theme = load_theme(path)
            except ValueError as error:
                self.failed.append(str(error))
            else:
                self.loaded[theme.name], self._files[theme.name] = theme, path
                found.append(theme)
        return found

    def reload(self, name: str) -> ThemeFile | None:
        """The theme anew when its file was changed, else None. Raises `ValueError` once for a file that is broken."""
        path = self._files.get(name)
        if path is None or (stamp := _stamp(path)) in (self._stamps[path], _GONE):
            return None
        self._stamps[path] = stamp
        theme = load_theme(path)
        if theme == self.loaded[name]:
            return None
        if theme.name != name:
            raise ValueError(f"theme {path.name}: calls itself {theme.name} now; it stays {name} until the next start")
        self.loaded[name] = theme
        return theme


_GONE = (0, -1)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return _GONE
    return found.st_mtime_ns, found.st_size


def load_theme(path: Path) -> ThemeFile:
    """One theme file. Raises `ValueError` with one line that names the file, the key and the fault."""
    try:
        data = yaml.load(path.read_text("utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return msgspec.convert(data, ThemeFile)
    except OSError as error:
        raise ValueError(f"theme {path.name}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"theme {path.name}: not UTF-8") from error
    except yaml.YAMLError as error:
        raise ValueError(f"theme {path.name}: not YAML ({sanitize(str(error), limit=120)})") from error
    except msgspec.ValidationError as error:
        raise ValueError(f"theme {path.name}: {sanitize(_in_words(str(error)), limit=200)}") from error


_FAULT = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<where>.*)`)?", re.DOTALL)
_TYPES = {"str": "a text", "bool": "true or false", "int": "a number", "float": "a number", "null": "nothing",
          "object": "a list of `key: value` lines", "array": "a list"}  # fmt: skip


def _in_words(fault: str) -> str:
    """What is wrong with a theme, as somebody who writes one would say it."""
    found = _FAULT.fullmatch(fault)
    what, where = (found["what"], found["where"] or "") if found is not None else (fault, "")
    at = f"{where}: " if where else ""
    if "matching regex" in what:
        if where == "name":
            return "name: use a-z, 0-9 and -, a letter first, 31 characters at most"
        return f"{at}no colour: write #rrggbb, or a terminal colour as red or bright_blue, or default"
    names = re.findall(r"`([^`]*)`", what)
    inside = f"{where}." if where else ""
    if what.startswith("Object missing") and names:
        return f"{inside}{names[0]} is missing"
    if what.startswith("Object contains unknown") and names:
        known = OutcomeColours if where else ThemeFile
        return f"{inside}{names[0]} is no key of a theme: there are {', '.join(known.__struct_encode_fields__)}"
    if what.startswith("Expected") and len(names) == 2:
        wanted, got = (_TYPES.get(name, name) for name in names)
        return f"{at}{wanted} is expected, not {got}"
    return fault


_PLAIN = OutcomeColours("default", "default", "default", "default")
FALLBACK = ThemeFile(
    name=DEFAULT_THEME,
    title="Terminal colours",
    ansi=True,
    background="default",
    foreground="default",
    muted="default",
    rule="default",
    accent="default",
    selection="default",
    outcome=_PLAIN,
    plain=True,
)
