"""A model in training: its adapter, its optimiser, and the accumulated gradients. Used from the compute thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from console.gateway.embedded.lora import LoraLayout, LoraTensors, new_lora
from console.gateway.embedded.losses import LOSSES, Metrics
from console.gateway.embedded.model import Model
from console.gateway.embedded.optimizer import AdamParams, AdamW
from console.gateway.embedded.problems import OperationProblem

_LOGITS_BUDGET = 64 * 2**20  # bytes of logits in one micro-batch
_TOKENS_BUDGET = 2048  # tokens in one micro-batch


@dataclass(frozen=True)
class Datum:
    """One training sequence: `ids` and `targets` (T,) int64, `inputs` name -> (T,) float32."""

    ids: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int64]
    inputs: dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True)
class TrainResult:
    """What `forward_backward` returns: the targets' log-probs of each datum, and the metrics."""

    logprobs: list[npt.NDArray[np.float32]]
    metrics: dict[str, float]


class TrainableModel:
    """A LoRA adapter with its optimiser state."""

    def __init__(self, model: Model, layout: LoraLayout, lora: LoraTensors | None = None, seed: int | None = None):
        self._model = model
        self.layout = layout
        self.lora = new_lora(model.config, layout, seed) if lora is None else lora
        for tensor in self.lora.values():
            tensor.requires_grad_(True)
        self.optimizer = AdamW(self.lora)
        self.version = 0  # counts changes of the weights, so that equal snapshots are shared
        self._grads: dict[str, Tensor] = {}

    def forward_backward(
        self, data: Sequence[Datum], loss_name: str, options: dict[str, float], forward_only: bool
    ) -> Iterator[TrainResult | None]:
        """Compute log-probs and loss, and add the gradients unless `forward_only`.

        A generator that pauses with None after each micro-batch, and yields the result last, so that sampling goes on
        meanwhile. The gradients are added at the very end: an operation that fails changes nothing.

        Raises:
            OperationProblem: the loss or a gradient is not finite.
        """
        metrics = Metrics(loss_name, options)
        logprobs: list[npt.NDArray[np.float32]] = [np.empty(0, np.float32)] * len(data)
        grads: dict[str, Tensor] = {}
        for batch in self._batches(data):
            with torch.set_grad_enabled(not forward_only):
                self._micro_batch(data, batch, loss_name, options, metrics, logprobs, None if forward_only else grads)
            yield None
        for name, grad in grads.items():
            if not torch.isfinite(grad).all():
                raise OperationProblem(f"the gradient of {name} is not finite; nothing was accumulated")
        for name, grad in grads.items():
            self._grads[name] = self._grads[name] + grad if name in self._grads else grad
        yield TrainResult(logprobs, metrics.result())

    def _batches(self, data: Sequence[Datum]) -> Iterator[list[int]]:
        """Indices of data of similar length, so that little is padding."""
        budget = max(1, min(_TOKENS_BUDGET, _LOGITS_BUDGET // (4 * self._model.config.vocab)))
        batch: list[int] = []
        for index in sorted(range(len(data)), key=lambda i: len(data[i].ids)):
            if batch and (len(batch) + 1) * len(data[index].ids) > budget:
                yield batch
                batch = []
            batch.append(index)
        if batch:
            yield batch

    def _micro_batch(
        self,
        data: Sequence[Datum],
        batch: list[int],
        loss_name: str,
        options: dict[str, float],
        metrics: Metrics,
        logprobs: list[npt.NDArray[np.float32]],
        grads: dict[str, Tensor] | None,
    ) -> None:
        lengths = [len(data[i].ids) for i in batch]
        ids = _padded([data[i].ids for i in batch])
        targets = _padded([data[i].targets for i in batch])
        loss = LOSSES[loss_name]
        inputs = {name: _padded([data[i].inputs[name] for i in batch]) for name in loss.inputs}
        mask = torch.arange(ids.shape[1]) < torch.tensor(lengths)[:, None]
        weights = self._model.trainable(self.lora, self.layout.scale)
        logits = weights.unembed(self._model.hidden(weights, ids))
        logp = -F.cross_entropy(logits, targets.flatten(), reduction="none").view_as(targets)
        total = loss.terms(logp, inputs, options).masked_fill(~mask, 0.0).sum()
        if not torch.isfinite(total):
            raise OperationProblem(f"the {loss_name} loss is not finite; nothing was accumulated")
        if grads is not None:
            for name, grad in zip(self.lora, torch.autograd.grad(total, list(self.lora.values())), strict=True):
                grads[name] = grads[name].add_(grad) if name in grads else grad
        logp = logp.detach()
        metrics.add(logp, inputs, total.detach(), mask)
        for row, index in enumerate(batch):
            logprobs[index] = logp[row, : lengths[row]].numpy().copy()

    def optim_step(self, params: AdamParams) -> dict[str, float]:
        """Take one AdamW step with the accumulated gradients, and clear them.

        Raises:
            OperationProblem: no gradient was accumulated.
        """
        if not self._grads:
            raise OperationProblem("optim_step has no gradient: no forward_backward succeeded since the last step")
        norm = self.optimizer.step(self._grads, params)
        self._grads = {}
        self.version += 1
        return {
            "grad_norm": norm,
            "learning_rate": params.learning_rate,
            "optimizer_steps": float(self.optimizer.steps),
        }

    def load(self, lora: LoraTensors, optimizer: dict[str, Tensor] | None) -> None:
        """Replace the weights, and the optimiser's state or its reset; accumulated gradients are dropped.

        Raises:
            OperationProblem: the tensors do not fit this model.
        """
        if {name: t.shape for name, t in lora.items()} != {name: t.shape for name, t in self.lora.items()}:
            raise OperationProblem("the checkpoint's LoRA tensors differ from the model's in name or shape")
        with torch.no_grad():
            for name, tensor in lora.items():
                self.lora[name].copy_(tensor)
        self.optimizer = AdamW(self.lora)
        if optimizer is not None:
            self.optimizer.restore(optimizer)
        self._grads = {}
        self.version += 1

    def snapshot(self) -> LoraTensors:
        """A copy of the weights that later training does not touch."""
        return {name: tensor.detach().clone() for name, tensor in self.lora.items()}


def _padded(arrays: Sequence[npt.NDArray[np.generic]]) -> Tensor:
    out = np.zeros((len(arrays), max(len(array) for array in arrays)), arrays[0].dtype)
    for row, array in enumerate(arrays):
        out[row, : len(array)] = array
    return torch.from_numpy(out)
