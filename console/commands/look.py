"""Options of every command that opens the console."""

from __future__ import annotations

import argparse
from pathlib import Path

from console.tui.main import Look

LOOK_HELP = """\
console
  --theme NAME     dark, light, deuteranopia, tritanopia, high-contrast, mono, or one of your own
  --keys FILE      other keys; `quarterdeck keys` shows them and checks a file
  --notify         the terminal's notification (OSC 9) with the bell, when something critical comes up
  --mouse          take mouse clicks (M takes and leaves them, too)
  --ascii          no characters beyond ASCII
"""


def add_look(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--theme", metavar="NAME", help="name of a theme; your own are files in the config directory")
    parser.add_argument(
        "--keys", type=Path, metavar="FILE", help="other keys; `quarterdeck keys --check FILE` tries it"
    )
    parser.add_argument("--notify", action="store_true", help="a terminal notification with the bell, if critical")
    parser.add_argument("--mouse", action="store_true", help="take mouse clicks (M takes and leaves them, too)")
    parser.add_argument("--ascii", action="store_true", help="no characters beyond ASCII")


def look_of(args: argparse.Namespace) -> Look:
    """What they came to."""
    return Look(
        theme=args.theme,
        ascii=args.ascii,
        mouse=args.mouse,
        read_only=getattr(args, "read_only", False),
        keys=args.keys,
        notify=args.notify,
    )
