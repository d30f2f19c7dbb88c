"""The decoder against the Hugging Face implementation of the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from console.errors import UsageError
from console.gateway.embedded.config import load_config
from console.gateway.embedded.kv import KVBatch
from console.gateway.embedded.lora import LoraLayout, new_lora
from console.gateway.embedded.model import Model


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Model:
    return Model.load(tiny_model)


def _ids(rows: int, length: int) -> torch.Tensor:
    return torch.randint(0, 300, (rows, length), generator=torch.Generator().manual_seed(rows * length))


@torch.no_grad()
def test_logits_equal_those_of_transformers(model: Model, hf_model: Any) -> None:
    ids = _ids(3, 200)
    expected = hf_model(ids).logits
    got = model.base.unembed(model.hidden(model.base, ids)).view_as(expected)
    assert expected.std() > 1  # a model without a temperament would prove little
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)


@torch.no_grad()
def test_merged_adapter_equals_transformers_with_changed_weights(model: Model, hf_model: Any) -> None:
    layout = LoraLayout(rank=4)
    lora = new_lora(model.config, layout, seed=3)
    changed = {}
    for name, _ in layout.targets(model.config):
        lora[name + ".lora_B"] = (
            torch.randn(lora[name + ".lora_B"].shape, generator=torch.Generator().manual_seed(5)) * 0.02
        )
        weight = dict(hf_model.named_parameters(remove_duplicate=False))[name + ".weight"]
        changed[name + ".weight"] = weight + layout.scale * lora[name + ".lora_B"] @ lora[name + ".lora_A"]
    ids = _ids(2, 60)
    expected = torch.func.functional_call(hf_model, changed, (ids,), tie_weights=False).logits
    weights = model.frozen(lora, layout.scale)
    got = weights.unembed(model.hidden(weights, ids)).view_as(expected)
    assert (expected - hf_model(ids).logits).abs().max() > 0.1
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)


@torch.no_grad()
def test_cached_pieces_equal_the_whole(model: Model) -> None:
    """Rows of different lengths, appended in uneven pieces, give the hidden states of one pass."""
    ids = _ids(3, 90)
    whole = model.hidden(model.base, ids).view(3, 90, -1)
    kv = KVBatch(model.config)
    starts = torch.tensor([0, 0, 0])
    for sizes in ([40, 10, 25], [1, 1, 1], [30, 60, 20], [1, 1, 1]):
        width = max(sizes)
        kv.reserve(3, int(starts.max()) + width)
        piece = torch.zeros(3, width, dtype=torch.long)
        for row, size in enumerate(sizes):
            piece[row, :size] = ids[row, starts[row] : starts[row] + size]
        hidden = model.extend(model.base, piece, starts, kv, 0)
        for row, size in enumerate(sizes):
            expected = whole[row, starts[row] : starts[row] + size]
            torch.testing.assert_close(hidden[row, :size], expected, atol=1e-4, rtol=0)
        starts = starts + torch.tensor(sizes)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"model_type": "llama"}, "model_type is 'llama'"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"num_hidden_layers": 3}, "the weights lack 'model.layers.2"),
        ({"intermediate_size": 96}, "config.json asks for floats of shape"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope scaling"),
    ],
)
def test_unfit_model_is_refused(tiny_model: Path, tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    import json

    config = json.loads((tiny_model / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(tiny_model / "model.safetensors")
    with pytest.raises(UsageError, match=complaint):
        load_config(tmp_path)


def test_cut_off_weights_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to(tiny_model / "config.json")
    whole = (tiny_model / "model.safetensors").read_bytes()
    for size in (4, 100, len(whole) - 1):
        (tmp_path / "model.safetensors").write_bytes(whole[:size])
        with pytest.raises(UsageError, match="not a readable safetensors file"):
            load_config(tmp_path)
