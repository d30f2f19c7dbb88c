"""The ways into the console. Textual is imported once it is known that there are a run to show and a terminal."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from console.errors import QuarterdeckError, UsageError

if TYPE_CHECKING:
    from console.tui.desk import Desk
    from console.tui.keymap import Keymap
    from console.tui.source import Source
    from console.tui.themes import Themes

_ENVIRONMENT = {"TEXTUAL_ANIMATIONS": "none", "TEXTUAL_FPS": "40", "TEXTUAL_SMOOTH_SCROLL": "0", "ESCDELAY": "40"}
"""What Textual reads when it is imported. ESCDELAY: milliseconds until a lone escape is the key of that name."""
_LIMITED_TERMINALS = frozenset({"linux", "vt100", "vt220", "ansi"})
_PYTHONS_CTYPES = ("C.UTF-8", "C.utf8", "UTF-8")
NO_TERMINALS = frozenset({"", "dumb", "unknown"})
CRASHED = 7
SWITCH_SECONDS = 0.001
"""How long a thread that reads a journal or a log may keep the interpreter while a key waits for its paint."""


@dataclass(frozen=True)
class Look:
    """How the console looks and listens, as the command line asks for it.

    Attributes:
        theme: by name, None for the default; ascii: nothing beyond ASCII; otherwise locale and terminal decide.
        mouse: take clicks; read_only: attend without the watch, and refuse the keys that act on the run.
        keys: a file with other keys; notify: the terminal's notifications beside its bell.
    """

    theme: str | None = None
    ascii: bool = False
    mouse: bool = False
    read_only: bool = False
    keys: Path | None = None
    notify: bool = False


PLAIN_LOOK = Look()


def check_look(look: Look) -> None:
    """Before anything is started. Raises `UsageError` for no such theme, or a file of keys that does not fit."""
    _theme(_themes(), look)
    _keymap(look)


def attach(
    target: Path | str,
    *,
    run_dir: Path | str | None = None,
    look: Look = PLAIN_LOOK,
    leave_after: float | None = None,
    run_exit_code: bool = False,
    goodbye: bool = True,
    told_after: bool = False,
    ready: Callable[[], object] | None = None,
    notice: str = "",
) -> int:
    """Open the console on a run: its engine's socket, or its run directory.

    `ready` is for an engine that is being started: it blocks, on a thread, until there is something to connect to, and
    raises what prevented that; then the console closes and the error is raised here.

    A run directory whose engine is gone opens as a recording, at its end. `run_dir` beside a socket says that the
    engine runs on this machine, so that its death can be told from a lost line; without it the socket may be a
    forwarded one. Exit codes as `run_console`.

    Raises:
        UsageError: no terminal, no such theme, no such socket. RecordingError: not a run directory.
    """
    path = Path(target)
    if path.is_dir():
        from console.tui.opening import source_of_directory

        source, notice = source_of_directory(path, act=not look.read_only)
    else:
        from console.tui.live import LiveSource

        if ready is None and not path.exists():
            raise UsageError(f"{path}: no such socket or run directory; `quarterdeck runs` lists the live ones")
        source = LiveSource(str(path), local=run_dir is not None, ready=ready, act=not look.read_only)
    require_terminal()
    return run_console(
        source, look, leave_after=leave_after, run_exit_code=run_exit_code, notice=notice, goodbye=goodbye,
        told_after=told_after,
    )  # fmt: skip


def choose(look: Look = PLAIN_LOOK) -> int:
    """Open the console on the list of runs. Raises `UsageError`: no terminal, or no such theme."""
    from console.tui.empty import EmptySource

    return run_console(EmptySource(), look)


def replay(run_dir: Path | str, speed: float | None = None, *, look: Look = PLAIN_LOOK) -> int:
    """Play a recording from its start. `speed`: 0.25 to 64, 0 for as fast as it goes, None for a watchable one.

    Raises:
        UsageError: no terminal, or no such theme. RecordingError: not a run directory, or an empty journal.
    """
    from console.tui.opening import notice_of, open_record

    record = open_record(run_dir)
    require_terminal(instead="")
    from console.tui.replay import ReplaySource

    source = ReplaySource(record, speed)
    return run_console(source, look, notice=notice_of(source))


def run_console(
    source: Source,
    look: Look = PLAIN_LOOK,
    *,
    leave_after: float | None = None,
    run_exit_code: bool = False,
    notice: str = "",
    goodbye: bool = True,
    told_after: bool = False,
    desk: Callable[..., Desk] | None = None,
) -> int:
    """Run the console on a source until it is left.

    Args:
        leave_after: seconds after the run's end at which the console closes by itself, None for never.
        run_exit_code: return the run's own exit code when it ended.
        notice: shown in place of the keys at first.
        goodbye: say on stdout, after leaving, how the run stands and how to come back; told_after: as of `farewell`.
        desk: makes the desk, for one that shows something else than a run.

    Returns:
        0 when the operator left, 143 after SIGTERM, 7 after a crash of the console, or of the engine where the
        run's own exit code is asked for.

    Raises:
        UsageError: no terminal to paint on, no such theme, or a file of keys that does not fit.
    """
    require_terminal(instead="")
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    themes = _themes()
    theme = _theme(themes, look)
    keymap, trouble = _keymap(look)

    # Mono and a chosen theme are the answer to NO_COLOR. Textual's own is a filter over the theme's colours, and it
    # makes the terminal's default colours black on black.
    os.environ.pop("NO_COLOR", None)
    # Shells export the size that the terminal had when they were started; it would hide every change from us.
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)
    gc.disable()  # while modules are loaded there is nothing to collect, only much to look through
    from console.tui import terminal_input
    from console.tui.app import CLICKS_OFF, ConsoleApp

    gc.freeze()
    gc.enable()
    sys.setswitchinterval(SWITCH_SECONDS)
    app = ConsoleApp(
        source, themes, theme, look.ascii or ascii_only(), look.read_only, leave_after,
        notice="; ".join(x for x in (notice, trouble) if x), keymap=keymap, notify=look.notify, mouse=look.mouse,
        **({} if desk is None else {"desk": desk}),
    )  # fmt: skip
    terminal_input.install()
    app.run(mouse=False)
    if app.takes_mouse:  # Textual, which was told of no mouse, has left it as it is
        sys.stderr.write(CLICKS_OFF)
        sys.stderr.flush()
    failure = getattr(source, "failure", None)
    if isinstance(failure, QuarterdeckError):
        raise failure
    if app.crash:
        sys.stderr.write(f"quarterdeck: {app.crash}\n")
        return CRASHED
    code = app.return_code or 0
    if code == 0:
        from console.tui.farewell import exit_code, farewell

        left = app.last_run()
        text = farewell(left, told_after=told_after) if goodbye else ""
        if text:
            sys.stdout.write(f"{text}\n")
        if run_exit_code and left.view.state.run_id == source.view.state.run_id:
            return exit_code(left)
    return code


def _themes() -> Themes:
    from console.resources import themes_dir
    from console.tui.keymap import user_config_dir
    from console.tui.themes import Themes

    return Themes(themes_dir(), user_config_dir() / "themes")


def _theme(themes: Themes, look: Look) -> str:
    from console.tui.themes import DEFAULT_THEME

    mono = os.environ.get("NO_COLOR") and "mono" in themes.loaded
    chosen = look.theme or ("mono" if mono else DEFAULT_THEME)
    if chosen not in themes.loaded:
        failed = [line for line in themes.failed if f"{chosen}." in line]
        raise UsageError(failed[0] if failed else f"no theme {chosen!r}: there are {', '.join(sorted(themes.loaded))}")
    return chosen


def _keymap(look: Look) -> tuple[Keymap, str]:
    """The keys, and what is wrong with the user's own file of them, which is left aside then."""
    from console.tui.keymap import keymap_of, load_keymap, user_keys_file

    if look.keys is not None:
        return load_keymap(look.keys), ""
    path = user_keys_file()
    if not path.is_file():
        return keymap_of(), ""
    try:
        return load_keymap(path), ""
    except UsageError as error:
        return keymap_of(), f"{error}; the default keys are used"


def require_terminal(instead: str = "use --headless or --plain") -> None:
    """Raises `UsageError` unless input, output and errors are a terminal that can be painted on.

    `instead`: what the command offers without a terminal, empty for nothing.
    """
    advice = f": {instead}" if instead else ""
    for name, stream in (("input", sys.stdin), ("output", sys.stdout), ("error output", sys.stderr)):
        if stream is None or not stream.isatty():
            raise UsageError(f"the console needs a terminal, and {name} is none{advice}")
    term = os.environ.get("TERM", "")
    if term in NO_TERMINALS:
        remedy = f"set TERM, or {instead}" if instead else "set TERM"
        raise UsageError(f"the console cannot paint on TERM={term or '(unset)'}: {remedy}")


def ascii_only(env: Mapping[str, str] | None = None) -> bool:
    """Whether the terminal is not expected to show more than ASCII: its type, or a locale that is not UTF-8.

    `env`: environment variables, None for those of this process.
    """
    env = os.environ if env is None else env
    if env.get("TERM", "") in _LIMITED_TERMINALS:
        return True
    locale = next((v for k in ("LC_ALL", "LC_CTYPE", "LANG") if (v := _variable(env, k))), "")
    return bool(locale) and "utf" not in locale.lower()


def _variable(env: Mapping[str, str], name: str) -> str:
    """A variable of the locale as the user has it: Python itself sets LC_CTYPE where it finds no UTF-8."""
    value = env.get(name, "")
    if name != "LC_CTYPE" or value not in _PYTHONS_CTYPES:
        return value
    try:
        begun_with = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return value
    return next((os.fsdecode(one.partition(b"=")[2]) for one in begun_with if one.startswith(b"LC_CTYPE=")), "")
