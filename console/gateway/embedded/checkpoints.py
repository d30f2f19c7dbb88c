"""Checkpoints on disk: `<root>/<tenant>/<model>/<kind>/<name>/`, written whole or not at all.

The adapter is stored in PEFT's layout (`adapter_model.safetensors`, `adapter_config.json`), so other tools can load it.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from console.gateway.embedded.lora import ALPHA, LoraLayout, LoraTensors
from console.gateway.embedded.problems import OperationProblem, RequestProblem

_PEFT = "base_model.model."
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_PATH = re.compile(r"tinker://([A-Za-z0-9:_-]{1,200})/(weights|sampler_weights)/([^/]+)")
TRAINING, SAMPLER = "weights", "sampler_weights"


class CheckpointMeta(msgspec.Struct, frozen=True, kw_only=True):
    """`checkpoint.json`; times are Unix seconds.

    Attributes:
        expires: None for never.
        user_metadata: what the save request carried; `run_metadata` is the model's.
    """

    model_id: str
    kind: str
    name: str
    base_model: str
    rank: int
    attn: bool
    mlp: bool
    unembed: bool
    optimizer_steps: int
    created: float
    expires: float | None = None
    user_metadata: dict[str, str] | None = None
    run_metadata: dict[str, Any] | None = None

    @property
    def path(self) -> str:
        """The address that the API uses."""
        return f"tinker://{self.model_id}/{self.kind}/{self.name}"

    @property
    def layout(self) -> LoraLayout:
        """Which matrices carry a LoRA pair."""
        return LoraLayout(self.rank, self.attn, self.mlp, self.unembed)

    @property
    def expired(self) -> bool:
        """Whether its time to live is over."""
        return self.expires is not None and self.expires <= time.time()


@dataclass(frozen=True)
class Found:
    """A checkpoint on disk."""

    directory: Path
    meta: CheckpointMeta

    def lora(self) -> LoraTensors:
        """The adapter's tensors."""
        tensors = load_file(self.directory / "adapter_model.safetensors")
        return {name.removeprefix(_PEFT).removesuffix(".weight"): tensor for name, tensor in tensors.items()}

    def optimizer(self) -> dict[str, Tensor]:
        """The optimiser's state.

        Raises:
            OperationProblem: the checkpoint has none.
        """
        path = self.directory / "optimizer.safetensors"
        if not path.exists():
            raise OperationProblem(f"{self.meta.path} has no optimizer state; it was saved for a sampler")
        return load_file(path)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.stat().st_size for file in self.directory.iterdir())


class Checkpoints:
    """The checkpoint directory. Thread-safe as long as one thread writes a given name."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)
        self._repair()

    def _model_directory(self, tenant: str, model_id: str) -> Path:
        return self._root / tenant / model_id.replace(":", "+")

    def check_name(self, name: str) -> None:
        """Refuse a name that is no plain file name.

        Raises:
            RequestProblem: 400.
        """
        if not _NAME.fullmatch(name):
            raise RequestProblem(400, f"path {name!r} is not a checkpoint name: use letters, digits, '.', '_', '-'")

    def save(
        self,
        tenant: str,
        meta: CheckpointMeta,
        lora: LoraTensors,
        optimizer: dict[str, Tensor] | None,
        overwrite: bool,
    ) -> None:
        """Write a checkpoint.

        Raises:
            OperationProblem: the name is taken, or the disk refuses.
        """
        parent = self._model_directory(tenant, meta.model_id) / meta.kind
        final, fresh = parent / meta.name, parent / f".new-{uuid.uuid4().hex}"
        if final.exists() and not overwrite and not _read_meta(final).expired:
            raise OperationProblem(f"{meta.path} exists; save under another name or pass overwrite=True")
        try:
            fresh.mkdir(parents=True)
            tensors = {f"{_PEFT}{name}.weight": tensor.detach().contiguous() for name, tensor in lora.items()}
            save_file(tensors, fresh / "adapter_model.safetensors", metadata={"format": "pt"})
            (fresh / "adapter_config.json").write_bytes(msgspec.json.encode(_peft_config(meta)))
            if optimizer is not None:
                save_file(optimizer, fresh / "optimizer.safetensors")
            (fresh / "checkpoint.json").write_bytes(msgspec.json.encode(meta))
            for file in fresh.iterdir():
                _sync(file)
            old = parent / f".old-{meta.name}"
            shutil.rmtree(old, ignore_errors=True)
            if final.exists():
                final.rename(old)
            fresh.rename(final)
            _sync(parent)
            shutil.rmtree(old, ignore_errors=True)
        except (OSError, SafetensorError) as problem:  # the latter is how the library tells of a full disk
            shutil.rmtree(fresh, ignore_errors=True)
            why = getattr(problem, "strerror", None) or str(problem)
            raise OperationProblem(f"{meta.path} cannot be written to {parent}: {why}", "server") from problem

    def find(self, tenant: str, path: str) -> Found:
        """The checkpoint at a `tinker://` path.

        Raises:
            RequestProblem: 400 not such a path, 403 another tenant's, 404 missing or expired.
        """
        match = _PATH.fullmatch(path)
        if match is None or not _NAME.fullmatch(match[3]):
            raise RequestProblem(400, f"{path!r} is not a path like tinker://MODEL_ID/weights/NAME")
        model_id, kind, name = match.groups()
        directory = self._model_directory(tenant, model_id) / kind / name
        if not (directory / "checkpoint.json").exists():
            owners = [
                other.name for other in self._root.iterdir() if self._model_directory(other.name, model_id).exists()
            ]
            if owners and tenant not in owners:
                raise RequestProblem(403, f"{path} belongs to another API key")
            raise RequestProblem(404, f"there is no checkpoint {path}")
        found = Found(directory, _read_meta(directory))
        if found.meta.expired:
            raise RequestProblem(404, f"{path} has expired")
        return found

    def all(self, tenant: str, model_id: str | None = None) -> list[Found]:
        """A tenant's checkpoints, oldest first."""
        found = [each for each in self._scan(tenant) if not each.meta.expired]
        return sorted((f for f in found if model_id in (None, f.meta.model_id)), key=lambda f: f.meta.created)

    def delete(self, found: Found) -> None:
        """Remove a checkpoint."""
        doomed = found.directory.with_name(f".gone-{uuid.uuid4().hex}")
        found.directory.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    def set_ttl(self, found: Found, seconds: float | None) -> None:
        """Change when a checkpoint expires; None means never."""
        expires = None if seconds is None else time.time() + seconds
        meta = msgspec.structs.replace(found.meta, expires=expires)
        fresh = found.directory / "checkpoint.json.new"
        fresh.write_bytes(msgspec.json.encode(meta))
        fresh.rename(found.directory / "checkpoint.json")

    def sweep(self) -> None:
        """Remove what has expired."""
        for tenant in self._root.iterdir():
            for found in self._scan(tenant.name):
                if found.meta.expired:
                    self.delete(found)

    def _scan(self, tenant: str) -> Iterator[Found]:
        for file in (self._root / tenant).glob("*/*/*/checkpoint.json"):
            if _NAME.fullmatch(file.parent.name):
                try:
                    yield Found(file.parent, _read_meta(file.parent))
                except RequestProblem:
                    continue

    def _repair(self) -> None:
        """Finish or undo what a killed gateway left half done."""
        for old in self._root.glob("*/*/*/.old-*"):
            name = old.with_name(old.name.removeprefix(".old-"))
            if name.exists():
                shutil.rmtree(old, ignore_errors=True)
            else:
                old.rename(name)
        for stale in [*self._root.glob("*/*/*/.new-*"), *self._root.glob("*/*/*/.gone-*")]:
            shutil.rmtree(stale, ignore_errors=True)


def _read_meta(directory: Path) -> CheckpointMeta:
    try:
        return msgspec.json.decode((directory / "checkpoint.json").read_bytes(), type=CheckpointMeta)
    except (OSError, msgspec.MsgspecError) as problem:
        raise RequestProblem(404, f"checkpoint {directory.name!r} is damaged: {problem}") from problem


def _peft_config(meta: CheckpointMeta) -> dict[str, Any]:
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": meta.base_model,
        "r": meta.rank,
        "lora_alpha": ALPHA,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": meta.layout.modules(),
    }


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
