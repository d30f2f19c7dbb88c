"""What is shown, written to a file: its suffix says as what."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from console import __version__
from console.errors import UsageError
from console.headless import trial_table
from console.journal.events import SCHEMA_VERSION
from console.records import tables
from console.state.words import BENCHMARK

if TYPE_CHECKING:
    from console.tui.desk import Desk


def check_suffix(path: Path) -> None:
    """Raises `UsageError` when the name does not say as what to write it."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"export: end the name in one of {', '.join(FORMATS)}, which says as what to write it")


def save(desk: Desk, path: Path) -> int:
    """Write the file, whole or not at all; its size in bytes. Raises `UsageError` for another suffix, `OSError`."""
    check_suffix(path)
    data = {**FORMATS, **desk.formats}[path.suffix.lower()](desk)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return len(data)


def _text(desk: Desk) -> bytes:
    return f"{desk.shell.screen_text()}\n".encode()


def _svg(desk: Desk) -> bytes:
    return desk.shell.screen_svg().encode()


def _json(desk: Desk) -> bytes:
    """State and finished steps as they are shown, under the names that `quarterdeck export` gives them."""
    view = desk.scene().view
    body = {
        "quarterdeck": __version__,
        "schema": SCHEMA_VERSION,
        "seq": view.state.seq,
        "time": tables.moment(view.state.ts),
        "state": view.state,
        "history": view.history.rows,
    }
    return msgspec.json.format(msgspec.json.encode(body), indent=2) + b"\n"


def _csv(desk: Desk) -> bytes:
    """One row a finished step, of a benchmark one a trial, as `quarterdeck export --format csv` writes them."""
    view = desk.scene().view
    if view.state.kind == BENCHMARK:
        return "".join(tables.csv_lines(trial_table.COLUMNS, trial_table.trial_rows(view.state))).encode()
    columns, rows = tables.rows_table(view.history.rows)
    return "".join(tables.csv_lines(columns, rows)).encode()


FORMATS: dict[str, Callable[[Desk], bytes]] = {".txt": _text, ".svg": _svg, ".json": _json, ".csv": _csv}
