"""The embedded gateway: sampling for many agents, one PPO update, boot and memory.

    python benchmarks/gateway.py [--json] [--model DIR] [--agents 32] [--rounds 3]

Agents are conversations of six turns: a prompt of 60 tokens, 32 sampled tokens a turn, 20 new ones before the next,
random arrival and thinking time. They speak to the gateway through the Tinker SDK, from this process and on the same
machine. Rates are medians of the rounds. Beside them: `transformers` on the same weights with one thread, in process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from report import Beside, Figure, add_json_option, emit

os.environ.update(TINKER_TELEMETRY="0", HF_HUB_OFFLINE="1", TINKER_API_KEY="tml-benchmark")

_TURNS, _PROMPT, _SAMPLED, _NEW = 6, 60, 32, 20
_TRAJECTORIES, _LENGTH = 32, 128


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_json_option(parser)
    parser.add_argument("--model", type=Path, help="model directory (default: the bundled one)")
    parser.add_argument("--agents", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    model = arguments.model or _bundled_model()
    print(f"load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores", file=sys.stderr)
    with tempfile.TemporaryDirectory() as scratch:
        figures = await _measure(model, Path(scratch), arguments.agents, arguments.rounds)
    emit(figures, arguments.json)


def _bundled_model() -> Path:
    from console.resources import models_dir

    return next(path.parent for path in sorted(models_dir().glob("*/config.json")))


async def _measure(model: Path, scratch: Path, agents: int, rounds: int) -> list[Figure]:
    from console.gateway.embedded.launch import start_embedded

    boots = []
    for attempt in range(rounds):
        started = time.perf_counter()
        gateway = await start_embedded(model, checkpoints=scratch / "checkpoints", log_path=scratch / "log")
        boots.append(time.perf_counter() - started)
        if attempt < rounds - 1:
            await gateway.stop()
    try:
        import tinker

        service = tinker.ServiceClient(base_url=gateway.url)
        sampler = await service.create_sampling_client(base_model=gateway.model)
        vocab = _vocab(model)
        many = [await _agents_rate(sampler, vocab, agents) for _ in range(rounds)]
        one = [await _agents_rate(sampler, vocab, 1) for _ in range(rounds)]
        trips = [await _round_trip(sampler, vocab) for _ in range(50)]
        updates = await _updates(service, sampler, gateway.model, vocab, rounds + 1)
        load = await _load(gateway.url)
    finally:
        await gateway.stop()
    hf_rate, hf_update = _transformers(model, agents, vocab)
    reused = load["totals"]["reused"] / max(1, load["totals"]["reused"] + load["totals"]["prefilled"])
    return [
        Figure(
            f"sampling, {agents} agents",
            statistics.median(many),
            "tokens/s",
            target=2500.0,
            better="higher",
            beside=Beside("transformers generate(), one static batch a turn, no HTTP", hf_rate),
        ),
        Figure("sampling, 1 agent", statistics.median(one), "tokens/s", better="higher"),
        Figure("one token, round trip", statistics.median(trips) * 1000, "ms"),
        Figure(
            f"PPO update, {_TRAJECTORIES} x {_LENGTH} tokens",
            statistics.median(updates[1:]),
            "s",
            target=1.0,
            beside=Beside("transformers forward and backward of all weights, no optimiser", hf_update),
        ),
        Figure("boot", statistics.median(boots), "s", target=5.0),
        Figure("memory, most resident", load["max_rss_bytes"] / 1e9, "GB", target=1.2),
        Figure("prompt tokens taken from earlier turns", reused, "of all", better="higher"),
    ]


def _vocab(model: Path) -> int:
    from console.gateway.embedded.config import load_config

    return load_config(model).vocab


async def _agents_rate(sampler: Any, vocab: int, agents: int) -> float:
    """Sampled tokens a second, from the first agent's arrival to the last one's end."""
    from tinker import types

    async def agent() -> int:
        await asyncio.sleep(random.random() * 0.2)
        tokens = [random.randrange(3, vocab) for _ in range(_PROMPT)]
        sampled = 0
        for _ in range(_TURNS):
            params = types.SamplingParams(max_tokens=_SAMPLED, stop=[])
            result = await sampler.sample(types.ModelInput.from_ints(tokens), 1, params)
            sampled += len(result.sequences[0].tokens)
            tokens += [*result.sequences[0].tokens, *(random.randrange(3, vocab) for _ in range(_NEW))]
            await asyncio.sleep(random.random() * 0.05)
        return sampled

    started = time.perf_counter()
    total = sum(await asyncio.gather(*(agent() for _ in range(agents))))
    return total / (time.perf_counter() - started)


async def _round_trip(sampler: Any, vocab: int) -> float:
    from tinker import types

    prompt = types.ModelInput.from_ints([random.randrange(3, vocab) for _ in range(_PROMPT)])
    started = time.perf_counter()
    await sampler.sample(prompt, 1, types.SamplingParams(max_tokens=1, stop=[]))
    return time.perf_counter() - started


async def _updates(service: Any, sampler: Any, model: str, vocab: int, rounds: int) -> list[float]:
    """Seconds of forward_backward and optim_step together, with the log-probs that sampling gave."""
    import numpy as np
    from tinker import types

    client = await service.create_lora_training_client(model, rank=8, seed=1)
    prompt_length = _LENGTH // 2
    data = []
    for _ in range(_TRAJECTORIES):
        prompt = [random.randrange(3, vocab) for _ in range(prompt_length)]
        params = types.SamplingParams(max_tokens=_LENGTH - prompt_length + 1, stop=[])
        (sequence,) = (await sampler.sample(types.ModelInput.from_ints(prompt), 1, params)).sequences
        tokens = prompt + sequence.tokens
        given = [0.0] * (prompt_length - 1)
        arrays = {
            "target_tokens": np.array(tokens[1:]),
            "logprobs": np.array([*given, *sequence.logprobs], np.float32),
            "advantages": np.array([*given, *([random.choice((-1.0, 1.0))] * len(sequence.tokens))], np.float32),
        }
        tensors = {name: types.TensorData.from_numpy(array) for name, array in arrays.items()}
        data.append(types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=tensors))
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        training = client.forward_backward(data, "ppo")
        step = client.optim_step(types.AdamParams(learning_rate=1e-4))
        await training
        await step
        seconds.append(time.perf_counter() - started)
    return seconds


async def _load(url: str) -> dict[str, Any]:
    import httpx

    async with httpx.AsyncClient() as client:
        response = await client.get(f"{url}/api/v1/engine_load", headers={"X-API-Key": os.environ["TINKER_API_KEY"]})
    return response.json()


def _transformers(directory: Path, agents: int, vocab: int) -> tuple[float, float]:
    """Tokens a second of generate(), every turn one static batch; seconds of a forward and backward pass."""
    import torch
    from transformers import Qwen3ForCausalLM

    torch.set_num_threads(1)
    model = Qwen3ForCausalLM.from_pretrained(directory, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    ids = torch.randint(3, vocab, (agents, _PROMPT))
    started = time.perf_counter()
    for _ in range(_TURNS):
        ids = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=_SAMPLED, do_sample=True, pad_token_id=0
        )
        ids = torch.cat([ids, torch.randint(3, vocab, (agents, _NEW))], 1)
    rate = agents * _TURNS * _SAMPLED / (time.perf_counter() - started)
    ids = torch.randint(3, vocab, (_TRAJECTORIES, _LENGTH))
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        model(ids).logits.log_softmax(-1).gather(2, ids[..., None]).sum().backward()
        seconds.append(time.perf_counter() - started)
    return rate, statistics.median(seconds)


if __name__ == "__main__":
    asyncio.run(main())
