"""PPO on bridged segments is PPO on per-turn data: same log-probs, same loss, same gradient of the sampled tokens."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinker
import torch
from captured_talks import BASH, READ, Trial, system, tool, user
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl.data_processing import trajectory_to_data
from tinker_cookbook.rl.types import Trajectory, Transition

from console.capture.segments import captured_trial
from console.gateway.embedded.lora import LoraLayout
from console.gateway.embedded.model import Model
from console.gateway.embedded.trainer import Datum, TrainableModel
from console.outcomes.classes import CallEvidence
from console.training.trajectories import trajectory

MODEL_NAME = "quarterdeck/midshipman"
DIRECTORY = Path(__file__).resolve().parents[2] / "configs" / "models" / "midshipman"
ADVANTAGES = (0.75, -0.5)
CLIP = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    """Two trials with a fork, a sub-agent in between, and tokens that no tokenizer would choose."""
    return [_talk(np.random.default_rng(seed)) for seed in (1, 2)]


def _talk(random: np.random.Generator) -> Trial:
    trial = Trial()
    history, other = [system("Work."), user("Fix the bug.")], [system("Search."), user("Find it.")]

    def turn(messages: list, tools: list) -> None:
        tokens = [*random.integers(10, 700, random.integers(3, 20)).tolist(), 2]
        answer = trial.ask(messages, tools, say=f"reply {trial.number}", tokens=tokens)
        messages += [answer.message, tool("x" * int(random.integers(1, 9)))]

    turn(history, [BASH])
    turn(other, [READ])
    turn(history, [BASH])
    branch = [*history[:-1], tool("else")]
    turn(history, [BASH])
    turn(branch, [BASH])
    turn(other, [READ])
    return trial


def bridged(trials: Sequence[Trial]) -> list[tinker.Datum]:
    """A datum for each segment."""
    return [
        datum
        for trial, advantage in zip(trials, ADVANTAGES, strict=True)
        for datum in trajectory_to_data(trajectory(captured_trial(trial.graph, evidence=CallEvidence())), advantage)
    ]


def per_turn(trials: Sequence[Trial]) -> list[tinker.Datum]:
    """A datum for each sample, with the prompt that was sent."""
    data = []
    for trial, advantage in zip(trials, ADVANTAGES, strict=True):
        for node in trial.graph.nodes:
            action = TokensWithLogprobs(node.tokens_T.tolist(), node.logprobs_T.tolist())
            prompt = tinker.ModelInput.from_ints(trial.sent[node.name])
            step = Transition(prompt, action, 0.0, True)
            data += trajectory_to_data(Trajectory([step], tinker.ModelInput.empty()), advantage)
    return data


def arrays(data: Sequence[tinker.Datum]) -> list[Datum]:
    return [
        Datum(
            np.asarray(datum.model_input.to_ints(), np.int64),
            datum.loss_fn_inputs["target_tokens"].to_numpy().astype(np.int64),
            {n: datum.loss_fn_inputs[n].to_numpy().astype(np.float32) for n in ("logprobs", "advantages")},
        )
        for datum in data
    ]


def sampled(data: Sequence[tinker.Datum], values: Sequence[np.ndarray]) -> dict[float, float]:
    """Of each sampled token, told by the sampler's log-prob, which no two share: its value."""
    out: dict[float, float] = {}
    for datum, row in zip(data, values, strict=True):
        mask = datum.loss_fn_inputs["mask"].to_numpy() != 0
        keys = datum.loss_fn_inputs["logprobs"].to_numpy()[mask].tolist()
        assert not out.keys() & set(keys)
        out |= dict(zip(keys, row[mask].tolist(), strict=True))
    return out


def trainable() -> TrainableModel:
    """The bundled model with an adapter that is not zero, so that the ratios are not 1."""
    model = TrainableModel(Model.load(DIRECTORY), LoraLayout(rank=4), seed=3)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, tensor in model.lora.items():
            if name.endswith("lora_B"):
                tensor.copy_(0.02 * torch.randn(tensor.shape, generator=generator))
    return model


@pytest.fixture(scope="module")
def with_ratios(trials: list[Trial]) -> list[Trial]:
    """The trials with log-probs of a sampler that is a little off the policy: ratios on both sides of the clip."""
    model, random = trainable(), np.random.default_rng(5)
    data = per_turn(trials)
    *_, result = model.forward_backward(
        arrays(data), "ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}, True
    )
    rows = iter(zip(data, result.logprobs, strict=True))
    for trial in trials:
        for node in trial.graph.nodes:
            datum, logprobs = next(rows)
            true = logprobs[datum.loss_fn_inputs["mask"].to_numpy() != 0]
            node.logprobs_T = array("f", np.minimum(true + random.normal(0, 0.3, len(true)), -1e-6).tolist())
    return trials


def test_losses_and_gradients_are_those_of_per_turn_data(with_ratios):
    results, gradients, kept = [], [], []
    for data in (bridged(with_ratios), per_turn(with_ratios)):
        model = trainable()
        *_, result = model.forward_backward(arrays(data), "ppo", CLIP, False)
        results.append(result)
        gradients.append(model._grads)
        kept.append(sampled(data, result.logprobs))
    assert [len(d) for d in (bridged(with_ratios), per_turn(with_ratios))] == [6, 12]
    assert kept[0].keys() == kept[1].keys()
    assert [kept[0][k] for k in kept[0]] == pytest.approx([kept[1][k] for k in kept[0]], abs=1e-5)
    one, two = (result.metrics for result in results)
    assert one["loss:sum"] == pytest.approx(two["loss:sum"], rel=1e-5)
    assert one["tokens:sum"] == two["tokens:sum"] == len(kept[0])
    assert one["clipped_tokens:sum"] == two["clipped_tokens:sum"] > 0
    for name, gradient in gradients[0].items():
        scale = float(gradients[1][name].abs().max())
        assert scale > 0 and float((gradient - gradients[1][name]).abs().max()) < 1e-4 * scale, name


def test_each_tokens_gradient_is_that_of_per_turn_data(with_ratios):
    """One token at a time, the advantage of all others zero."""
    pair = [bridged(with_ratios), per_turn(with_ratios)]
    keys = sorted(sampled(pair[0], [d.loss_fn_inputs["logprobs"].to_numpy() for d in pair[0]]))
    model = trainable()
    for key in keys[:: len(keys) // 6]:
        gradients = []
        for data in pair:
            for datum in arrays(data):
                at = datum.inputs["logprobs"] == np.float32(key)
                if at.any():
                    datum.inputs["advantages"] *= at
                    model._grads = {}
                    *_, _result = model.forward_backward([datum], "importance_sampling", {}, False)
                    gradients.append(dict(model._grads))
        one, two = gradients
        for name in one:
            scale = float(two[name].abs().max())
            assert scale > 0 and float((one[name] - two[name]).abs().max()) < 1e-4 * scale, name


async def test_the_real_sdk_trains_both_to_the_same_policy(embedded_gateway, with_ratios):
    service = tinker.ServiceClient(base_url=embedded_gateway, api_key="tml-tests")
    kept: list[tuple[dict[float, float], dict[float, float], float]] = []
    for data in (bridged(with_ratios), per_turn(with_ratios)):
        client = await service.create_lora_training_client_async(MODEL_NAME, rank=4, seed=11)
        asked = [_without_mask(datum) for datum in data]
        first = await (await client.forward_backward_async(asked, "ppo")).result_async()
        await (await client.optim_step_async(tinker.AdamParams(learning_rate=1e-3))).result_async()
        after = await (await client.forward_async(asked, "ppo")).result_async()
        rows = [_logprobs(data, out) for out in (first, after)]
        kept.append((rows[0], rows[1], first.metrics["loss:sum"]))
    (one, one_after, loss), (two, two_after, other_loss) = kept
    assert loss == pytest.approx(other_loss, rel=1e-4)
    assert [one[k] for k in one] == pytest.approx([two[k] for k in one], abs=1e-4)
    assert [one_after[k] for k in one] == pytest.approx([two_after[k] for k in one], abs=2e-3)
    assert max(abs(one_after[k] - one[k]) for k in one) > 0.02, "the step changed something"


def _without_mask(datum: tinker.Datum) -> tinker.Datum:
    inputs = {name: value for name, value in datum.loss_fn_inputs.items() if name != "mask"}
    return tinker.Datum(model_input=datum.model_input, loss_fn_inputs=inputs)


def _logprobs(data: Sequence[tinker.Datum], out: Any) -> dict[float, float]:
    return sampled(data, [row["logprobs"].to_numpy() for row in out.loss_fn_outputs])
