"""A tiny random Qwen3 model, and embedded gateways that serve it, each a real child process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

VOCAB = 300
CONTEXT = 512
_CONFIG = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "eos_token_id": 257,
    "hidden_act": "silu",
    "dtype": "float32",
}


@dataclass
class Served:
    """A gateway under test."""

    url: str
    pid: int
    model: str
    checkpoints: Path
    process: subprocess.Popen[str]

    def http(self, key: str) -> httpx.Client:
        """A plain client with an API key."""
        return httpx.Client(base_url=self.url + "/api/v1", headers={"X-API-Key": key}, timeout=60)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face directory with a random model of some temperament, and a byte-level tokenizer."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from console.gateway.embedded.config import _parse

    directory = tmp_path_factory.mktemp("tiny-model")
    (directory / "config.json").write_text(json.dumps(_CONFIG))
    generator = torch.Generator().manual_seed(7)
    tensors = {}
    for name, shape in _parse(_CONFIG, directory).weight_shapes().items():
        noise = torch.randn(shape, generator=generator)
        tensors[name] = (1 + 0.1 * noise if len(shape) == 1 else 0.25 * noise).half()
    save_file(tensors, directory / "model.safetensors")
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_end|>"])
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


def serve(model: Path, checkpoints: Path, *options: str) -> Iterator[Served]:
    """Run a gateway until the generator is closed."""
    command = [sys.executable, "-m", "console.gateway.embedded", "--model", str(model), "--name", "tiny"]
    command += ["--checkpoints", str(checkpoints), "--exit-with-stdin", *options]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        said: dict[str, Any] = json.loads(process.stdout.readline())
        assert said["type"] == "listening" and said["context_window"] == CONTEXT
        yield Served(said["url"], said["pid"], said["model"], checkpoints, process)
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        finally:
            process.kill()


@pytest.fixture(scope="session")
def tiny_gateway(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway with room."""
    yield from serve(tiny_model, tmp_path_factory.mktemp("checkpoints"), "--max-models", "100")


@pytest.fixture(scope="session")
def narrow_gateway(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway that runs out of everything soon: one model, two rows, short lease."""
    options = ["--max-models", "1", "--max-rows", "2", "--max-queued", "2", "--lease", "1.5", "--gap-timeout", "0.5"]
    yield from serve(tiny_model, tmp_path_factory.mktemp("narrow-checkpoints"), *options)


@pytest.fixture(scope="session")
def miles_gateway(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway like Miles, with room for the models of many tests."""
    yield from serve(tiny_model, tmp_path_factory.mktemp("miles"), "--like", "miles", "--max-models", "50")


@pytest.fixture(scope="session")
def skyrl_gateway(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway like SkyRL's."""
    yield from serve(tiny_model, tmp_path_factory.mktemp("skyrl"), "--like", "skyrl", "--max-models", "50")


@pytest.fixture(scope="session")
def hosted_gateway(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway like the hosted service."""
    yield from serve(tiny_model, tmp_path_factory.mktemp("hosted"), "--like", "hosted")


@pytest.fixture(scope="session")
def hf_model(tiny_model: Path) -> Any:
    """The Hugging Face implementation of the same weights, in float32."""
    import torch
    from transformers import Qwen3ForCausalLM

    return Qwen3ForCausalLM.from_pretrained(tiny_model, dtype=torch.float32, attn_implementation="eager").eval()


@pytest.fixture(scope="session")
def service(tiny_gateway: Served) -> Iterator[Any]:
    """The real SDK's client of `tiny_gateway`."""
    import tinker

    client = tinker.ServiceClient(base_url=tiny_gateway.url, api_key="tml-one")
    yield client
    client.holder.close()
