"""The shared printer of benchmark figures.

A benchmark collects `Figure`s and ends with `emit(figures, args.json)`:

    from report import Figure, add_json_option, emit
    emit([Figure("boot", 3.9, "s", target=5.0, better="lower")], as_json=args.json)

With `--json` one object `{"figures": [...]}` is printed, a table without it. Nothing here asserts a time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True)
class Beside:
    """What the same work costs another way, measured in the same run and in the figure's unit."""

    what: str
    value: float | None


@dataclass(frozen=True)
class Figure:
    """One measured number.

    Attributes:
        value: None when it could not be measured.
        target: None for a figure that is only informative.
    """

    name: str
    value: float | None
    unit: str
    target: float | None = None
    better: Literal["lower", "higher"] = "lower"
    beside: Beside | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without a target or a value."""
        if self.value is None or self.target is None:
            return None
        return self.value <= self.target if self.better == "lower" else self.value >= self.target


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add the `--json` option that every benchmark has."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def emit(figures: Iterable[Figure], as_json: bool = False) -> None:
    """Print the figures on stdout: one JSON object, or a table."""
    figures = list(figures)
    if as_json:
        print(json.dumps({"figures": [asdict(figure) for figure in figures]}))
        return
    rows = [("figure", "value", "target", "met", "beside")]
    for figure in figures:
        sign = "<=" if figure.better == "lower" else ">="
        target = "" if figure.target is None else f"{sign} {_number(figure.target)} {figure.unit}"
        beside = "" if figure.beside is None else f"{figure.beside.what}: {_number(figure.beside.value)} {figure.unit}"
        met = {True: "yes", False: "NO", None: ""}[figure.met]
        rows.append((figure.name, f"{_number(figure.value)} {figure.unit}", target, met, beside))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _number(value: float | None) -> str:
    if value is None:
        return "unknown"
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"
