"""Training through the real SDK, against a plain PyTorch reference on the Hugging Face implementation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tinker
import torch
from safetensors.torch import load_file
from tinker import types
from torch import Tensor

if TYPE_CHECKING:
    from tests.gateway.conftest import Served


_ADAM = {"learning_rate": 2e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-5, "weight_decay": 0.5, "grad_clip_norm": 1.5}
_RANK = 4
_PREFIX = "base_model.model."


def _ratio(logp: Tensor, x: dict[str, Tensor]) -> Tensor:
    return (logp - x["logprobs"]).exp()


def _clip_min(ratio: Tensor, x: dict[str, Tensor], low: float, high: float) -> Tensor:
    return -torch.min(ratio * x["advantages"], ratio.clip(low, high) * x["advantages"])


def _gspo(logp: Tensor, x: dict[str, Tensor]) -> Tensor:
    counted = x["sequence_ratio_mask"] != 0
    sequence = (logp.detach() - x["logprobs"])[counted].mean()
    return _clip_min((sequence + logp - logp.detach()).exp(), x, 0.9, 1.1)


_LOSSES: dict[str, tuple[dict[str, float] | None, Callable[[Tensor, dict[str, Tensor]], Tensor]]] = {
    "cross_entropy": (None, lambda logp, x: -logp * x["weights"]),
    "importance_sampling": (None, lambda logp, x: -_ratio(logp, x) * x["advantages"]),
    "ppo": (None, lambda logp, x: _clip_min(_ratio(logp, x), x, 0.8, 1.2)),
    "cispo": (
        {"clip_low_threshold": 0.7, "clip_high_threshold": 1.3},
        lambda logp, x: -_ratio(logp, x).clip(0.7, 1.3).detach() * logp * x["advantages"],
    ),
    "dro": ({"beta": 0.3}, lambda logp, x: -(logp * x["advantages"] - 0.15 * (logp - x["logprobs"]) ** 2)),
    "gspo": ({"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}, _gspo),
}


class Reference:
    """The same training in plain PyTorch: functional weights, autograd, torch.optim."""

    def __init__(self, hf_model: Any, adapter: Path) -> None:
        self._model = hf_model
        self._weights = dict(hf_model.named_parameters(remove_duplicate=False))
        stored = load_file(adapter / "adapter_model.safetensors")
        self.lora = {name: tensor.clone().requires_grad_(True) for name, tensor in stored.items()}
        self._optimizer = torch.optim.AdamW(
            self.lora.values(),
            lr=_ADAM["learning_rate"],
            betas=(_ADAM["beta1"], _ADAM["beta2"]),
            eps=_ADAM["eps"],
            weight_decay=_ADAM["weight_decay"],
        )

    def logprobs(self, ids: list[int], targets: Tensor) -> Tensor:
        merged = {}
        for name in {name.rsplit(".lora_", 1)[0] for name in self.lora}:
            a, b = self.lora[name + ".lora_A.weight"], self.lora[name + ".lora_B.weight"]
            weight = name.removeprefix(_PREFIX) + ".weight"
            merged[weight] = self._weights[weight].detach() + 32.0 / _RANK * b @ a
        logits = torch.func.functional_call(self._model, merged, (torch.tensor([ids]),), tie_weights=False).logits[0]
        return logits.log_softmax(-1).gather(1, targets[:, None])[:, 0]

    def step(self) -> float:
        norm = float(torch.nn.utils.clip_grad_norm_(self.lora.values(), _ADAM["grad_clip_norm"]))
        self._optimizer.step()
        self._optimizer.zero_grad()
        return norm


class _Plain:
    """Log-probs of the untrained model, for making data."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def logprobs(self, ids: list[int], targets: Tensor) -> Tensor:
        logits = self._model(torch.tensor([ids])).logits[0]
        return logits.log_softmax(-1).gather(1, targets[:, None])[:, 0]


def _data(reference: Reference | _Plain, seed: int) -> list[types.Datum]:
    """Sequences of uneven lengths whose sampler's log-probs lie about the policy's, so that clips take effect."""
    rng = np.random.default_rng(seed)
    data = []
    for length in (5, 31, 32, 90, 17):
        ids = [int(token) for token in rng.integers(0, 300, length)]
        targets = torch.from_numpy(rng.integers(0, 300, length))
        with torch.no_grad():
            logp = reference.logprobs(ids, targets).numpy()
        trained = (np.arange(length) >= 3).astype(np.float32)
        inputs = {
            "target_tokens": targets.numpy(),
            "weights": trained * 0.5,
            "logprobs": (logp + rng.normal(0, 0.3, length)).astype(np.float32),
            "advantages": (rng.normal(0, 1, length) * trained).astype(np.float32),
            "sequence_ratio_mask": trained,
        }
        tensors = {name: types.TensorData.from_numpy(array) for name, array in inputs.items()}
        data.append(types.Datum(model_input=types.ModelInput.from_ints(ids), loss_fn_inputs=tensors))
    return data


def _stored(gateway: Served, path: str) -> Path:
    model_id, kind, name = path.removeprefix("tinker://").split("/")
    (found,) = gateway.checkpoints.glob(f"*/{model_id.replace(':', '+')}/{kind}/{name}")
    return found


def test_every_loss_and_adamw_equal_the_reference(service: Any, tiny_gateway: Served, hf_model: Any) -> None:
    client = service.create_lora_training_client("tiny", rank=_RANK, seed=11).result()
    reference = Reference(hf_model, _stored(tiny_gateway, client.save_state("start").result().path))
    for index, (name, (options, terms)) in enumerate(_LOSSES.items()):
        data = _data(reference, index)
        got = client.forward_backward(data, name, loss_fn_config=options).result()
        total, clipped, tokens = 0.0, 0, 0
        for datum, output in zip(data, got.loss_fn_outputs, strict=True):
            x = {key: tensor.to_torch() for key, tensor in datum.loss_fn_inputs.items()}
            logp = reference.logprobs(datum.model_input.to_ints(), x["target_tokens"])
            np.testing.assert_allclose(output["logprobs"].to_numpy(), logp.detach().numpy(), atol=1e-4)
            loss = terms(logp, x).sum()
            loss.backward()
            total += float(loss.detach())
            tokens += int((x["advantages"] != 0).sum())
            if name == "ppo":
                ratio, advantages = _ratio(logp, x), x["advantages"]
                clipped += int(((ratio > 1.2) & (advantages > 0) | (ratio < 0.8) & (advantages < 0)).sum())
        assert got.metrics["loss:sum"] == pytest.approx(total, rel=1e-4)
        assert got.metrics["tokens:sum"] == tokens
        if name == "ppo":
            assert 0 < clipped < tokens
            assert got.metrics["clip_fraction:mean"] == pytest.approx(clipped / tokens)
        norm = reference.step()
        stepped = client.optim_step(types.AdamParams(**_ADAM)).result()
        assert stepped.metrics["grad_norm"] == pytest.approx(norm, rel=1e-3)
        end = load_file(
            _stored(tiny_gateway, client.save_state(f"after-{name}").result().path) / "adapter_model.safetensors"
        )
        for key, tensor in reference.lora.items():
            torch.testing.assert_close(end[key], tensor.detach(), atol=5e-5, rtol=2e-4, msg=f"{name}: {key}")


def test_gradients_add_up_and_forward_adds_none(service: Any, tiny_gateway: Served, hf_model: Any) -> None:
    """Two halves give the step of the whole; a forward in between, and one that fails, change nothing."""
    ends = []
    for halves in (False, True):
        client = service.create_lora_training_client("tiny", rank=2, seed=5, train_mlp=False).result()
        start = _stored(tiny_gateway, client.save_state("start").result().path)
        assert not any("mlp" in name for name in load_file(start / "adapter_model.safetensors"))
        data = _data(_Plain(hf_model), 3)
        if halves:
            client.forward_backward(data[:2], "ppo").result()
            client.forward(data, "cross_entropy").result()
            client.forward_backward(data[2:], "ppo").result()
        else:
            client.forward_backward(data, "ppo").result()
        client.optim_step(types.AdamParams(**_ADAM)).result()
        with pytest.raises(tinker.RequestFailedError, match="no gradient"):
            client.optim_step(types.AdamParams(**_ADAM)).result()
        ends.append(
            load_file(_stored(tiny_gateway, client.save_state("end").result().path) / "adapter_model.safetensors")
        )
    for name, tensor in ends[0].items():
        torch.testing.assert_close(ends[1][name], tensor, atol=1e-6, rtol=1e-4)


def test_a_custom_loss_of_the_client_trains(service: Any, hf_model: Any) -> None:
    client = service.create_lora_training_client("tiny", rank=2, seed=5).result()
    data = [
        types.Datum(
            model_input=datum.model_input,
            loss_fn_inputs={key: datum.loss_fn_inputs[key] for key in ("target_tokens", "weights")},
        )
        for datum in _data(_Plain(hf_model), 3)
    ]

    def negative_mean(_: list[types.Datum], logprobs: list[Tensor]) -> tuple[Tensor, dict[str, float]]:
        loss = -torch.cat(logprobs).mean()
        return loss, {"mine": float(loss.detach())}

    first = client.forward_backward_custom(data, negative_mean).result()
    for _ in range(3):
        client.optim_step(types.AdamParams(learning_rate=1e-2)).result()
        last = client.forward_backward_custom(data, negative_mean).result()
    assert last.metrics["mine"] < first.metrics["mine"]


def test_non_finite_loss_is_refused_and_leaves_no_gradient(service: Any, hf_model: Any) -> None:
    client = service.create_lora_training_client("tiny", rank=2, seed=5).result()
    datum = _data(_Plain(hf_model), 3)[0]
    wild = dict(datum.loss_fn_inputs)
    wild["logprobs"] = types.TensorData.from_numpy(np.full(5, -200.0, np.float32))  # the ratio overflows
    with pytest.raises(tinker.RequestFailedError, match="not finite"):
        client.forward_backward(
            [types.Datum(model_input=datum.model_input, loss_fn_inputs=wild)], "importance_sampling"
        ).result()
    with pytest.raises(tinker.RequestFailedError, match="no gradient"):
        client.optim_step(types.AdamParams(**_ADAM)).result()
