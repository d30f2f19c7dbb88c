"""Checkpoints: through the SDK with resume, and on disk."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
import tinker
import torch
from safetensors.torch import load_file
from tinker import types

from console.gateway.embedded.checkpoints import CheckpointMeta, Checkpoints
from console.gateway.embedded.problems import OperationProblem, RequestProblem

if TYPE_CHECKING:
    from tests.gateway.conftest import Served

_ADAM = types.AdamParams(learning_rate=5e-3)


def _datum(seed: int) -> types.Datum:
    tokens = [int(token) for token in np.random.default_rng(seed).integers(0, 300, 30)]
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_numpy(np.array(tokens[1:])),
            "weights": types.TensorData.from_numpy(np.ones(29, np.float32)),
        },
    )


def _train(client: Any, seeds: range) -> list[float]:
    losses = []
    for seed in seeds:
        future = client.forward_backward([_datum(seed), _datum(seed + 100)], "cross_entropy")
        client.optim_step(_ADAM).result()
        losses.append(future.result().metrics["loss:sum"])
    return losses


def _tensors(gateway: Served, path: str) -> dict[str, torch.Tensor]:
    model_id, kind, name = path.removeprefix("tinker://").split("/")
    (found,) = gateway.checkpoints.glob(f"*/{model_id.replace(':', '+')}/{kind}/{name}")
    return load_file(found / "adapter_model.safetensors") | load_file(found / "optimizer.safetensors")


def test_resume_with_optimizer_continues_exactly(service: Any, tiny_gateway: Served) -> None:
    client = service.create_lora_training_client("tiny", rank=4, seed=1, train_unembed=False).result()
    _train(client, range(3))
    state = client.save_state("half").result().path
    straight = _train(client, range(3, 6))
    end = _tensors(tiny_gateway, client.save_state("end").result().path)

    other = tinker.ServiceClient(base_url=tiny_gateway.url, api_key="tml-one")
    resumed = other.create_training_client_from_state_with_optimizer(state).result()
    assert resumed.model_id.startswith("session-") and resumed.get_info().lora_rank == 4
    assert _train(resumed, range(3, 6)) == straight
    again = _tensors(tiny_gateway, resumed.save_state("end").result().path)
    assert again.keys() == end.keys() and int(end["steps"]) == 6
    for name, tensor in end.items():
        assert torch.equal(again[name], tensor), name

    fresh = other.create_training_client_from_state(state).result()
    assert _train(fresh, range(3, 6))[1:] != straight[1:]  # the optimiser began anew
    # The older way: into a model that exists.
    legacy = other.create_lora_training_client("tiny", rank=4, seed=9, train_unembed=False).result()
    legacy.load_state_with_optimizer(state).result()
    assert _train(legacy, range(3, 6)) == straight
    misfit = other.create_lora_training_client("tiny", rank=2).result()
    with pytest.raises(tinker.RequestFailedError, match="differ from the model's"):
        misfit.load_state(state).result()
    other.close("success").result()


def test_sampler_checkpoint_lists_and_names(service: Any, tiny_gateway: Served) -> None:
    client = service.create_lora_training_client("tiny", rank=2, seed=1, user_metadata={"run": "x"}).result()
    _train(client, range(2))
    named = client.save_weights_for_sampler("step-2", ttl_seconds=3600).result().path
    state = client.save_state("step-2").result().path
    with pytest.raises(tinker.RequestFailedError, match="exists; save under another name or pass overwrite=True"):
        client.save_state("step-2").result()
    assert client.save_state("step-2", overwrite=True).result().path == state

    prompt = types.ModelInput.from_ints([int(token) for token in np.random.default_rng(3).integers(0, 256, 20)])
    params = types.SamplingParams(max_tokens=20, stop=[], seed=4)
    from_disk = service.create_sampling_client(model_path=named).result()
    in_memory = client.save_weights_and_get_sampling_client().result()
    pair = [each.sample(prompt, 1, params).result().sequences[0] for each in (from_disk, in_memory)]
    assert pair[0].tokens == pair[1].tokens
    np.testing.assert_allclose(pair[0].logprobs, pair[1].logprobs, atol=1e-5)
    with pytest.raises(tinker.RequestFailedError, match="no optimizer state"):
        service.create_training_client_from_state_with_optimizer(named).result()
    with pytest.raises(tinker.NotFoundError, match="there is no checkpoint"):
        service.create_sampling_client(model_path=named + "0").result()

    rest = service.create_rest_client()
    run = rest.get_training_run_by_tinker_path(state).result()
    assert run.training_run_id == client.model_id and run.user_metadata == {"run": "x"} and run.lora_rank == 2
    assert run.last_checkpoint.tinker_path == state and run.last_sampler_checkpoint.tinker_path == named
    listed = rest.list_checkpoints(client.model_id).result().checkpoints
    assert {(each.checkpoint_id, each.expires_at is None) for each in listed} == {
        ("weights/step-2", True),
        ("sampler_weights/step-2", False),
    }
    assert rest.get_weights_info_by_tinker_path(state).result().lora_rank == 2
    rest.set_checkpoint_ttl_from_tinker_path(named, None).result()
    rest.delete_checkpoint(client.model_id, "weights/step-2").result()
    (left,) = rest.list_checkpoints(client.model_id).result().checkpoints
    assert left.checkpoint_id == "sampler_weights/step-2" and left.expires_at is None
    assert client.model_id in {
        each.training_run_id for each in rest.list_training_runs(limit=1000).result().training_runs
    }


def _meta(**changes: Any) -> CheckpointMeta:
    base = CheckpointMeta(
        model_id="session-a:train:0",
        kind="weights",
        name="one",
        base_model="tiny",
        rank=1,
        attn=True,
        mlp=False,
        unembed=True,
        optimizer_steps=3,
        created=1.0,
    )
    return msgspec.structs.replace(base, **changes)


_LORA = {"model.layers.0.self_attn.q_proj.lora_A": torch.ones(1, 4)}


def test_expired_is_gone_and_its_name_is_free(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    store.save("t", _meta(expires=2.0), _LORA, None, overwrite=False)
    store.save("t", _meta(name="two"), _LORA, None, overwrite=False)
    with pytest.raises(RequestProblem, match="has expired"):
        store.find("t", "tinker://session-a:train:0/weights/one")
    assert [found.meta.name for found in store.all("t")] == ["two"]
    store.save("t", _meta(), _LORA, {"steps": torch.tensor([3])}, overwrite=False)
    found = store.find("t", "tinker://session-a:train:0/weights/one")
    assert torch.equal(found.lora()[next(iter(_LORA))], torch.ones(1, 4)) and int(found.optimizer()["steps"]) == 3
    peft = json.loads((found.directory / "adapter_config.json").read_text())
    assert peft["r"] == 1 and peft["target_modules"] == ["q_proj", "k_proj", "v_proj", "o_proj", "lm_head"]
    store.set_ttl(store.find("t", "tinker://session-a:train:0/weights/two"), -1)
    store.sweep()
    assert sorted(path.name for path in (tmp_path / "t/session-a+train+0/weights").iterdir()) == ["one"]


@pytest.mark.parametrize("moment", ["before the old one moves", "after the old one moved", "after the new one moved"])
def test_a_kill_while_overwriting_loses_nothing(tmp_path: Path, moment: str) -> None:
    """The three states that a kill can leave between two renames."""
    store = Checkpoints(tmp_path)
    store.save("t", _meta(optimizer_steps=1), _LORA, None, overwrite=False)
    kind = tmp_path / "t/session-a+train+0/weights"
    shutil.copytree(kind / "one", kind / ".new-1234")
    if moment != "before the old one moves":
        (kind / "one").rename(kind / ".old-one")
    if moment == "after the new one moved":
        (kind / ".new-1234").rename(kind / "one")
    found = Checkpoints(tmp_path).find("t", "tinker://session-a:train:0/weights/one")
    assert found.meta.optimizer_steps == 1
    assert [path.name for path in kind.iterdir()] == ["one"]


def test_a_full_or_readonly_disk_is_a_failed_operation(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    (tmp_path / "t").write_text("a file where the tenant's directory should be")
    with pytest.raises(OperationProblem, match="cannot be written") as caught:
        store.save("t", _meta(), _LORA, None, overwrite=False)
    assert caught.value.category == "server"


def test_a_damaged_checkpoint_is_told(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    store.save("t", _meta(), _LORA, None, overwrite=False)
    (tmp_path / "t/session-a+train+0/weights/one/checkpoint.json").write_text("{")
    with pytest.raises(RequestProblem, match="damaged"):
        store.find("t", "tinker://session-a:train:0/weights/one")
    assert store.all("t") == []
