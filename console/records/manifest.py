"""`run.json`: what a run is, written once when it starts and again when it is resumed."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from console.errors import RecordingError
from console.journal.events import Scalars

MANIFEST = "run.json"
MANIFEST_SCHEMA = 1


class Manifest(msgspec.Struct, kw_only=True):
    """The manifest of a run directory. Unknown fields are ignored.

    Attributes:
        created: Unix seconds of the first start.
        command: the command line, redacted.
        versions: package name to version.
        config: dotted key to value of what differs from the defaults, redacted.
        fingerprints: of what must not change under a resume (model, tasks, configuration), name to digest.
        lineage: what the run continues, oldest first: run directories or checkpoint paths.
    """

    schema: int = MANIFEST_SCHEMA
    run_id: str
    name: str = ""
    created: float = 0.0
    command: list[str] = []
    versions: dict[str, str] = {}
    config: Scalars = {}
    fingerprints: dict[str, str] = {}
    lineage: list[str] = []


def write_manifest(run_dir: Path | str, manifest: Manifest) -> None:
    """Write `run.json` whole or not at all (0600). Raises OSError."""
    target = Path(run_dir) / MANIFEST
    tmp = target.with_name(MANIFEST + ".tmp")
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    with os.fdopen(os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data + b"\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(tmp, target)


def read_manifest(run_dir: Path | str) -> Manifest:
    """The manifest of a run directory.

    Raises:
        RecordingError: it is missing, damaged, or of a later schema.
    """
    path = Path(run_dir) / MANIFEST
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except OSError as error:
        raise RecordingError(f"{path}: cannot be read ({error.strerror}); name a run directory") from error
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"{path}: damaged ({error}); the journal beside it can still be replayed") from error
    if manifest.schema > MANIFEST_SCHEMA:
        raise RecordingError(f"{path}: written by a later version (schema {manifest.schema}); update quarterdeck")
    return manifest
