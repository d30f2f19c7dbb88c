"""`run.json`: what a run is, written when it starts and brought up to date when it is resumed."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from console.errors import RecordingError
from console.journal.events import Scalars

MANIFEST = "run.json"
MANIFEST_SCHEMA = 1


class Ancestor(msgspec.Struct, kw_only=True, frozen=True):
    """A checkpoint of another run that a run began with.

    Attributes:
        run_id, run_dir: the other run; checkpoint: its name there; path: where the gateway has it.
        step: steps that are in it; optimizer: whether its optimizer was taken along, and with it the number of steps.
        policy_version: optimiser steps behind its weights; weights: their name, as in `StepStarted`, empty for none.
    """

    run_id: str
    run_dir: str
    checkpoint: str
    path: str
    step: int
    optimizer: bool = True
    policy_version: int | None = None
    weights: str = ""


class Manifest(msgspec.Struct, kw_only=True):
    """The manifest of a run directory. Unknown fields are ignored.

    Attributes:
        created: Unix seconds of the first start.
        command: the command line, redacted.
        versions: package name to version.
        config: dotted key to value of what differs from the defaults, redacted.
        fingerprints: of what must not change under a resume (model, tasks, trial file, options), name to value or
            digest; see `console.training.fingerprints`. Empty for a run of before they were kept.
        lineage: the checkpoints that the run descends from, oldest first; the last one is what it began with.
    """

    schema: int = MANIFEST_SCHEMA
    run_id: str
    name: str = ""
    created: float = 0.0
    command: list[str] = []
    versions: dict[str, str] = {}
    config: Scalars = {}
    fingerprints: dict[str, str] = {}
    lineage: list[Ancestor] = []


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


def renew_manifest(run_dir: Path | str, manifest: Manifest) -> Manifest:
    """Write the manifest of an engine's start over that of the starts before it, and return what was written.

    What only the first start knew stays: when the run was created and what it descends from. Fingerprints and command
    stay where the new ones are empty, so that they may follow later with a call of their own. A manifest that cannot
    be read is replaced. Raises OSError.
    """
    try:
        before = read_manifest(run_dir)
    except RecordingError:
        before = Manifest(run_id="")
    if before.run_id == manifest.run_id:
        manifest = msgspec.structs.replace(
            manifest,
            created=before.created or manifest.created,
            command=manifest.command or before.command,
            fingerprints=manifest.fingerprints or before.fingerprints,
            lineage=before.lineage or manifest.lineage,
        )
    write_manifest(run_dir, manifest)
    return manifest


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
