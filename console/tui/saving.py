"""What is shown, written to a file: its suffix says as what."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from console.errors import UsageError
from console.journal.events import StepFinished
from console.state.model import encode_state

if TYPE_CHECKING:
    from console.tui.desk import Desk


def save(desk: Desk, path: Path) -> int:
    """Write the file, whole or not at all; its size in bytes. Raises `UsageError` for another suffix, `OSError`."""
    make = FORMATS.get(path.suffix.lower())
    if make is None:
        raise UsageError(f"export: end the name in one of {', '.join(FORMATS)}, which says as what to write it")
    data = make(desk)
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
    """The open state, as a snapshot of the journal has it."""
    return msgspec.json.format(encode_state(desk.scene().state), indent=2) + b"\n"


def _csv(desk: Desk) -> bytes:
    """One row a finished step; a value that is not known is empty."""
    names = [f.name for f in msgspec.structs.fields(StepFinished) if f.name != "seq"]
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(names)
    for row in desk.scene().view.history.rows:
        values = [getattr(row, name) for name in names]
        rows.writerow([msgspec.json.encode(v).decode() if isinstance(v, (dict, list)) else v for v in values])
    return out.getvalue().encode()


FORMATS: dict[str, Callable[[Desk], bytes]] = {".txt": _text, ".svg": _svg, ".json": _json, ".csv": _csv}
