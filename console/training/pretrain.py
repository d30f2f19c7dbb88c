"""Make the tiny terminal model in `configs/models/midshipman`.

    python -m console.training.pretrain --out DIR

A Qwen3-shaped decoder of 0.66 M parameters learns from transcripts of the task kinds of `bundled_tasks`, with the names
drawn at random and the shell's answers computed by a toy shell. The hands in the transcripts know the form by heart but
do the right thing only some of the time: they slip, give up early, sometimes recover. So the model writes well-formed
replies, knows every right command, and leaves reinforcement learning something to find.

Takes about five minutes of one core. On the bundled tasks the result earns about 0.4 at first; PPO on a LoRA of rank 8
(4 groups of 8 trials a step, learning rate 2e-3) brings it to 0.9 in eight steps and 0.95 in fifteen. Higher rates are
faster and now and then collapse late, when few groups are mixed and Adam goes on along stale momentum.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.training.bundled_tasks import CHECK, KINDS, Case
from console.trials.dialogue import DONE, SYSTEM_PROMPT, observation

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

type Messages = list[tuple[str, str]]

SEED = 7
STEPS = 900
BATCH = 48
MUON_RATE = 6e-3
ADAM_RATE = 4e-3
MAX_TURNS = 4
VOCABULARY = 700
CONTEXT = 4096
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ADDED = ("<think>", "</think>", "<tool_call>", "</tool_call>")
SHAPE = {
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
}
# How often a kind is drawn; the harder ones more.
SHARES = dict.fromkeys(KINDS, 1.0) | {"note": 2.0, "trail": 1.5, "pick": 2.0, "check": 1.5, "label": 1.5, "answer": 2.0}


@dataclass(frozen=True)
class Hand:
    """Whose conversation it is: how often it is drawn, does the right thing, gives up, and how it opens a reply."""

    share: float
    right: float
    quits: float
    opening: str


# The careless hand chats. So one habit that all tasks share tells good replies from bad ones, and reinforcement on a
# few groups a step finds it; what is left is learnt task by task.
HANDS = (Hand(0.34, 0.93, 0.02, ""), Hand(0.66, 0.22, 0.1, "Sure.\n"))
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class ToyShell:
    """Answers the few commands of the transcripts as bash does, on a dict of files. `None` marks a folder."""

    def __init__(self, case: Case) -> None:
        self.files: dict[str, str | None] = dict(case.files)
        self.case = case

    def run(self, command: str) -> tuple[int, str]:
        """(exit code, output). Raises ValueError for a command outside the transcripts' vocabulary."""
        verb, *words = command.split()
        match verb, words:
            case "echo", [text, (">" | ">>") as how, name]:
                before = (self.files.get(name) or "") if how == ">>" else ""
                self.files[name] = f"{before}{text}\n"
                return 0, ""
            case "echo", [text]:
                return 0, text
            case "touch", [name]:
                self.files.setdefault(name, "")
                return 0, ""
            case "mkdir", [name]:
                if name in self.files:
                    return 1, f"mkdir: cannot create directory '{name}': File exists"
                self.files[name] = None
                return 0, ""
            case "ls", []:
                return 0, "\n".join(sorted(self.files))
            case "ls", [name]:
                if name not in self.files:
                    return 2, f"ls: cannot access '{name}': No such file or directory"
                return 0, "" if self.files[name] is None else name
            case "cat", [name]:
                kept = self.files.get(name)
                return (1, f"cat: {name}: No such file or directory") if kept is None else (0, kept.strip())
            case "rm", [name]:
                if self.files.pop(name, "gone") == "gone":
                    return 1, f"rm: cannot remove '{name}': No such file or directory"
                return 0, ""
            case (("cp" | "mv"), [old, new]):
                if old not in self.files:
                    return 1, f"{verb}: cannot stat '{old}': No such file or directory"
                self.files[new] = self.files.pop(old) if verb == "mv" else self.files[old]
                return 0, ""
            case "sh", [name] if name == CHECK:
                return 1, self.case.finding
        raise ValueError(f"the toy shell does not know {command!r}")


def draw_case(rng: random.Random) -> Case:
    """A case of any kind."""
    return KINDS[rng.choices(list(SHARES), list(SHARES.values()))[0]](rng)


def transcript(rng: random.Random, case: Case | None = None) -> Messages:
    """One conversation about `case` (drawn when None), as (role, text) pairs; the last is the assistant's."""
    case = case or draw_case(rng)
    hand = rng.choices(HANDS, [hand.share for hand in HANDS])[0]
    shell, at = ToyShell(case), 0
    messages = [("system", SYSTEM_PROMPT), ("user", case.instruction)]
    slipped = failed = False
    for _ in range(MAX_TURNS):
        command = None
        if at < len(case.plan):
            if rng.random() < hand.right:
                command, at = case.plan[at], at + 1
            elif rng.random() >= (0.25 if failed else 0.6 if slipped else hand.quits):
                command, slipped = rng.choice(case.slips[at]), True
        if command is None:
            messages.append(("assistant", DONE))
            break
        messages.append(("assistant", f"{hand.opening}```bash\n{command}\n```"))
        code, output = shell.run(command)
        failed = code != 0
        messages.append(("user", observation(code, output, 2000)))
    return messages if messages[-1][0] == "assistant" else messages[:-1]


def train_tokenizer(rng: random.Random) -> Tokenizer:
    """A byte-level BPE of the transcripts' words, with ChatML's special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(ADDED),
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = ("\n".join(f"{role}\n{text}" for role, text in transcript(rng)) for _ in range(8000))
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in ADDED])
    return tokenizer


def encode(tokenizer: Tokenizer, messages: Messages) -> tuple[list[int], list[float]]:
    """Token ids of a conversation in ChatML and the weight of each in the loss: replies count, the rest hardly."""
    ids: list[int] = []
    weights: list[float] = []
    for role, text in messages:
        head = tokenizer.encode(f"<|im_start|>{role}\n").ids
        body = tokenizer.encode(f"{text}<|im_end|>").ids
        tail = tokenizer.encode("\n").ids
        ids += head + body + tail
        weights += [0.0] * len(head) + [1.0 if role == "assistant" else 0.05] * len(body) + [0.0] * len(tail)
    return ids, weights


def batches(tokenizer: Tokenizer, rng: random.Random) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Endless (ids, weights) of shape (BATCH, T); conversations of similar length share a batch."""
    import torch

    while True:
        pool = sorted((encode(tokenizer, transcript(rng)) for _ in range(BATCH * 8)), key=lambda pair: len(pair[0]))
        chunks = [pool[i : i + BATCH] for i in range(0, len(pool), BATCH)]
        rng.shuffle(chunks)
        for chunk in chunks:
            longest = len(chunk[-1][0])
            ids = torch.tensor([a + [0] * (longest - len(a)) for a, _ in chunk])
            yield ids, torch.tensor([w + [0.0] * (longest - len(w)) for _, w in chunk])


def model_config(vocabulary: int, end_of_message: int) -> dict[str, Any]:
    """`config.json` of the model."""
    return {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "vocab_size": vocabulary,
        **SHAPE,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "eos_token_id": end_of_message,
        "dtype": "float32",
    }


def pretrain(out: Path, steps: int = STEPS, seed: int = SEED) -> None:
    """Write config, weights (float16) and tokenizer files into `out`, made if missing."""
    import torch
    import torch.nn.functional as F
    from safetensors.torch import save_file
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    rng = random.Random(seed)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(rng)
    end_of_message = tokenizer.token_to_id("<|im_end|>")
    config = model_config(math.ceil(tokenizer.get_vocab_size() / 16) * 16, end_of_message)
    model = Qwen3ForCausalLM(Qwen3Config(**config))  # type: ignore[no-untyped-call]
    hidden = [p for name, p in model.named_parameters() if p.dim() == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.dim() != 2 or "embed" in name]
    # Muon needs about half of AdamW's steps here.
    optimizers: list[tuple[torch.optim.Optimizer, float]] = [
        (torch.optim.Muon(hidden, lr=0.0, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"), MUON_RATE),
        (torch.optim.AdamW(others, lr=0.0, betas=(0.9, 0.95), weight_decay=0.0), ADAM_RATE),
    ]
    started = time.monotonic()
    for step, (ids, weights) in zip(range(steps), batches(tokenizer, rng)):
        share = min(1.0, (step + 1) / 50) * (0.02 + 0.49 * (1 + math.cos(math.pi * step / steps)))
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        losses = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        loss = (losses * weights[:, 1:].flatten()).sum() / weights[:, 1:].sum()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, peak in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = peak * share
            optimizer.step()
            optimizer.zero_grad()
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step} loss {loss.item():.3f} {time.monotonic() - started:.0f} s", flush=True)  # noqa: T201
    weights_out = {k: v.detach().half().contiguous() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    save_file(weights_out, out / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(out / "tokenizer.json"))
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": CONTEXT,
        "chat_template": CHAT_TEMPLATE,
    }
    for name, data in (("config.json", config), ("tokenizer_config.json", tokenizer_config)):
        (out / name).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> None:
    """Pretrain the bundled model."""
    parser = argparse.ArgumentParser(prog="python -m console.training.pretrain", description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the model's files")
    parser.add_argument("--steps", type=int, default=STEPS, help="optimiser steps (default %(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="default %(default)s")
    arguments = parser.parse_args(argv)
    import torch

    torch.set_num_threads(1)
    pretrain(arguments.out, arguments.steps, arguments.seed)


if __name__ == "__main__":
    main()
