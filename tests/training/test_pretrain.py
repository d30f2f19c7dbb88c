"""The bundled model and the transcripts that it learned from."""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from console.resources import models_dir
from console.training.bundled_tasks import bundled_cases
from console.training.pretrain import draw_case, encode, transcript
from console.trials.dialogue import DONE, SYSTEM_PROMPT, command_in, observation

os.environ["HF_HUB_OFFLINE"] = "1"
MODEL = models_dir() / "midshipman"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(MODEL)


def test_the_transcripts_show_what_bash_answers(tmp_path: Path) -> None:
    """The toy shell's answers against bash's, over whole conversations."""
    rng, commands = random.Random(3), 0
    for number in range(60):
        case = draw_case(rng)
        messages = transcript(rng, case)
        assert messages[1] == ("user", case.instruction)
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, text in case.files.items():
            (folder / name).write_text(text)
        for (_, reply), following in zip(messages[2::2], [*messages[3::2], None]):
            if (command := command_in(reply)) is None or following is None:
                continue
            environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
            ran = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)
            assert following == ("user", observation(ran.returncode, ran.stdout + ran.stderr, 2000)), command
            commands += 1
    assert commands > 60


def test_the_transcripts_end_with_done_or_with_the_last_turn() -> None:
    rng = random.Random(4)
    ends = [transcript(rng) for _ in range(300)]
    assert all(m[-1] == ("assistant", DONE) or len(m) == 2 + 2 * 4 - 1 for m in ends)
    assert {m[0] for m in ends} == {("system", SYSTEM_PROMPT)}


def test_the_cookbooks_renderer_writes_the_tokens_of_pretraining(tokenizer: Any) -> None:
    from tinker_cookbook.renderers import get_renderer
    from tokenizers import Tokenizer

    messages = transcript(random.Random(5))
    renderer = get_renderer("qwen3_instruct", tokenizer, model_name=str(MODEL))
    history = [{"role": role, "content": text} for role, text in messages[:-1]]
    prompt = renderer.build_generation_prompt(history).to_ints()
    ids, _ = encode(Tokenizer.from_file(str(MODEL / "tokenizer.json")), messages)
    assert ids[: len(prompt)] == prompt
    assert renderer.get_stop_sequences() == [tokenizer.eos_token_id]
    assert tokenizer.apply_chat_template(history, add_generation_prompt=True)["input_ids"] == prompt


def test_the_model_is_small_and_its_replies_well_formed(tokenizer: Any) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    assert (MODEL / "model.safetensors").stat().st_size < 1.4e6
    assert len(tokenizer) <= 700
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    assert model.config.max_position_embeddings == 4096
    asked = [
        tokenizer.apply_chat_template(
            [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": case.instruction}],
            add_generation_prompt=True,
            tokenize=False,
        )
        for case in bundled_cases().values()
        for _ in range(8)
    ]
    tokenizer.padding_side = "left"
    inputs = tokenizer(asked, return_tensors="pt", padding=True)
    torch.manual_seed(0)
    with torch.no_grad():
        out = model.generate(**inputs, do_sample=True, top_k=0, max_new_tokens=48, pad_token_id=tokenizer.pad_token_id)
    replies = tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    well_formed = [r for r in replies if r == DONE or re.fullmatch(r"(Sure\.\n)?```bash\n[^\n`]+\n```", r)]
    assert len(well_formed) >= 0.97 * len(replies)
    # It knows the right first command of every task, and gives it some of the time only.
    firsts = [command_in(reply) for reply in replies]
    right = [firsts[8 * i + j] == case.plan[0] for i, case in enumerate(bundled_cases().values()) for j in range(8)]
    assert 0.2 < sum(right) / len(right) < 0.6
    assert sum(any(right[8 * i : 8 * i + 8]) for i in range(len(bundled_cases()))) >= 13
