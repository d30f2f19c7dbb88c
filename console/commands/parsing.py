"""What the parsers of the smaller commands share."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from console.errors import UsageError


class Parser(argparse.ArgumentParser):
    """A parser of `quarterdeck NAME` that keeps its examples as written and complains in one line."""

    def __init__(self, name: str, description: str, epilog: str) -> None:
        super().__init__(
            prog=f"quarterdeck {name}",
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raises `UsageError` instead of printing the usage and ending the process."""
        raise UsageError(f"{message}: see `{self.prog} --help`")


def say(text: str) -> None:
    """A line on stdout."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
