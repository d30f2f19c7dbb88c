"""Where the embedded gateway keeps checkpoints, `ROOT/TENANT/MODEL/{weights,sampler_weights}/NAME`, without asking it.

The gateway's own reader is `console.gateway.embedded.checkpoints`, which needs torch.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from console.training.options import RunOptions

_PATH = re.compile(r"tinker://([A-Za-z0-9:_-]{1,200})/(weights|sampler_weights)/([A-Za-z0-9][A-Za-z0-9._-]{0,127})")


def store_of(options: RunOptions) -> Path:
    """The directory in which the run's embedded gateway keeps its checkpoints."""
    return Path(options.console.embedded_checkpoints or options.log_path / "gateway")


def find_checkpoint(root: Path, path: str) -> Path | None:
    """The directory of a `tinker://` path, None when there is none."""
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    model, kind, name = match.groups()
    found = root.glob(f"*/{model.replace(':', '+')}/{kind}/{name}/checkpoint.json")
    return next((file.parent for file in found), None)


def expiry(directory: Path) -> float | None:
    """When a checkpoint expires, Unix seconds; None for never, and where its record cannot be read."""
    try:
        expires = json.loads((directory / "checkpoint.json").read_bytes()).get("expires")
    except (OSError, ValueError, AttributeError):
        return None
    return float(expires) if isinstance(expires, int | float) else None


def copy_checkpoint(root: Path, path: str, target: Path) -> bool:
    """Copy the checkpoint of a path into another store; whether it was there. Raises OSError."""
    found = find_checkpoint(root, path)
    if found is None:
        return False
    shutil.copytree(found, target / found.relative_to(root))
    return True
