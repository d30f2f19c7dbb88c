"""AdamW with the semantics of `torch.optim.AdamW`, whose import alone costs seconds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class AdamParams:
    """The hyperparameters of one step; `grad_clip_norm` 0 means no clipping."""

    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    grad_clip_norm: float


class AdamW:
    """First and second moments of a dict of parameters, and the step count."""

    def __init__(self, params: dict[str, Tensor]) -> None:
        self.steps = 0
        self._params = params
        self._first = {name: torch.zeros_like(tensor) for name, tensor in params.items()}
        self._second = {name: torch.zeros_like(tensor) for name, tensor in params.items()}

    @torch.no_grad()
    def step(self, grads: dict[str, Tensor], params: AdamParams) -> float:
        """Update the parameters in place, clipping the gradients' global norm first; returns the norm before that."""
        norm = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads.values()])))
        shrink = params.grad_clip_norm / norm if 0.0 < params.grad_clip_norm < norm else 1.0
        self.steps += 1
        first_bias = 1.0 - params.beta1**self.steps
        second_bias = 1.0 - params.beta2**self.steps
        for name, grad in grads.items():
            grad = grad * shrink if shrink != 1.0 else grad
            first, second, tensor = self._first[name], self._second[name], self._params[name]
            first.lerp_(grad, 1.0 - params.beta1)
            second.mul_(params.beta2).addcmul_(grad, grad, value=1.0 - params.beta2)
            scale = (second / second_bias).sqrt_().add_(params.eps)
            tensor.mul_(1.0 - params.learning_rate * params.weight_decay)
            tensor.addcdiv_(first / first_bias, scale, value=-params.learning_rate)
        return norm

    def state(self) -> dict[str, Tensor]:
        """The moments and the step count, as tensors for a checkpoint."""
        out = {f"first.{name}": tensor for name, tensor in self._first.items()}
        out |= {f"second.{name}": tensor for name, tensor in self._second.items()}
        return out | {"steps": torch.tensor([self.steps])}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take over what `state` returned."""
        for name in self._params:
            self._first[name].copy_(state[f"first.{name}"])
            self._second[name].copy_(state[f"second.{name}"])
        self.steps = int(state["steps"])
