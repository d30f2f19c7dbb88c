"""The terminal: what the console can paint on it."""

from __future__ import annotations

from collections.abc import Iterator

from console.doctor.case import Case
from console.doctor.report import Check, Question
from console.tui.main import NO_TERMINALS, ascii_only

SMALLEST = (80, 24)
"""Columns and rows that every page of the console is made for."""

TTY = Question("term.tty", "the console opens on a terminal only")
KIND = Question("term.type", "the console paints with escape sequences, which a terminal without them shows as text")
UTF8 = Question("term.utf8", "the console draws its marks and plots with characters beyond ASCII where it can")
COLOURS = Question("term.colours", "themes are made of 24-bit colours; fewer are an approximation")
SIZE = Question("term.size", "in a smaller terminal pages leave columns out")

_HEADLESS = "use --headless, --plain or --detach"


def tty(case: Case) -> Iterator[Check]:
    """Whether the three streams are terminals. A pipe after doctor itself says nothing about its output."""
    named = zip(("input", "output", "error output"), case.host.terminals, strict=True)
    missing = [name for name, there in named if not there]
    if missing:
        yield TTY.note(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} no terminal", _HEADLESS)
    else:
        yield TTY.ok("input, output and errors are a terminal")


def kind(case: Case) -> Iterator[Check]:
    """The TERM variable."""
    term = case.host.env.get("TERM", "")
    if any(case.host.terminals) and term in NO_TERMINALS:
        yield KIND.warning(f"TERM={term or '(unset)'}", f"set TERM to what the terminal is, or {_HEADLESS}")
    elif term in NO_TERMINALS:
        yield KIND.skipped("no terminal")
    else:
        yield KIND.ok(f"TERM={term}")


def utf8(case: Case) -> Iterator[Check]:
    """What the locale and the terminal's kind say of characters."""
    if ascii_only(case.host.env):
        yield UTF8.note(
            "the locale or the terminal's kind says ASCII: the console draws with that",
            "set LC_ALL=C.UTF-8 where the terminal can do more",
        )
    else:
        yield UTF8.ok("more than ASCII can be drawn")


def colours(case: Case) -> Iterator[Check]:
    """How many colours the terminal is expected to have: the library that paints them decides."""
    from rich.console import Console

    env = dict(case.host.env)
    if env.pop("NO_COLOR", ""):
        yield COLOURS.ok("NO_COLOR is set: the theme is mono")
        return
    if not any(case.host.terminals):
        yield COLOURS.skipped("no terminal")
        return
    system = Console(force_terminal=True, _environ=env).color_system
    if system == "truecolor":
        yield COLOURS.ok("24-bit")
    elif system == "256":
        yield COLOURS.note("256 colours", "COLORTERM=truecolor, where the terminal has them; SSH and tmux drop it")
    else:
        found = "16 colours" if system is not None else "none"
        yield COLOURS.warning(found, "set TERM=xterm-256color where the terminal has them, or take --theme mono")


def size(case: Case) -> Iterator[Check]:
    """Columns and rows."""
    found = case.host.size
    if found is None:
        yield SIZE.skipped("no terminal")
    elif found[0] < SMALLEST[0] or found[1] < SMALLEST[1]:
        yield SIZE.note(f"{found[0]}x{found[1]}", f"make it {SMALLEST[0]}x{SMALLEST[1]} or larger")
    else:
        yield SIZE.ok(f"{found[0]}x{found[1]}")
