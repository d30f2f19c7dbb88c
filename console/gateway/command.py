"""The launch command of a gateway, from the few things that differ between set-ups."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import NoReturn

from console.errors import UsageError
from console.gateway.profiles import MILES_RESERVED_TOKENS, MODULES

SCRIPT = "examples/multi_lora/serve_qwen3_30b_a3b_tinker.py"
PORT = 10613

_DESCRIPTION = """\
Print the command that starts a Miles Tinker gateway, and the options of `quarterdeck train` that fit it.

Run the command in a Miles checkout on the GPU node; nothing is started here. The defaults are the reference set-up:
Qwen3.6-35B-A3B on 8 H200 (4 train, 4 sample), LoRA rank 16, one adapter, a window of 65536 tokens.

What the parts mean, and what goes wrong without them:
  --tinker-base-model   the name that clients pass as config.model_name; another one is refused
  --lora-rank           the largest rank; a client that asks for more is refused (the cookbook's default is 32)
  --target-modules      what adapters train; the cookbook asks for attn, mlp and unembed, so all three are needed
  --n-adapters          models in training at a time; the slot of a run that ended is held for up to 330 s
  --max-tokens-per-gpu, --max-position-embeddings, --sglang-context-length
                        the window of trainer and sampler; with context parallelism of 1, 7 tokens less can be sampled,
                        and tensor parallelism does not raise it
  --recompute-*, --qkv-format thd
                        keep a batch of such long trajectories within the memory of the training GPUs
"""


class _Parser(argparse.ArgumentParser):
    """Complains in one line, as every command does."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}: see `{self.prog} --help`")


def build_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = _Parser(
        prog="quarterdeck gateway command miles",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--checkpoint", required=True, metavar="DIR", help="the Hugging Face checkpoint, on the GPU node")
    add("--name", help="the name that clients ask for (default, for Qwen only: Qwen/ and the checkpoint's last part)")
    add("--model-type", help="the launcher's model type (default, for Qwen only: as in qwen3.6-35B-A3B_lora)")
    add("--window", type=_count, default=65536, help="context length, tokens (default: %(default)s)")
    add("--rank", type=_count, default=16, help="largest LoRA rank (default: %(default)s)")
    add("--alpha", type=_count, help="LoRA alpha (default: twice the rank)")
    add("--adapters", type=_count, default=1, help="models in training at a time (default: %(default)s)")
    add(
        "--modules",
        type=_modules,
        default=",".join(MODULES),
        help="what adapters train, of attn,mlp,unembed (default: %(default)s)",
    )
    add("--host", default="GATEWAY-HOST", help="the node's name, for the client's options")
    return parser


def miles_command(arguments: argparse.Namespace) -> str:
    """The command, as lines for a shell, with the client's options in comments.

    Raises:
        UsageError: the checkpoint's directory does not tell the model's name or type, or the window holds nothing.
    """
    least = MILES_RESERVED_TOKENS + 2  # a token of a prompt and one that is sampled
    if arguments.window < least:
        raise UsageError(
            f"--window {arguments.window}: too small, for {MILES_RESERVED_TOKENS} tokens of it are the gateway's own; "
            f"give {least} or more"
        )
    last = _last_part(arguments.checkpoint)
    if not last.startswith("Qwen") and None in (arguments.name, arguments.model_type):
        raise UsageError(
            f"--checkpoint {arguments.checkpoint}: not a Qwen model by its name; give --name and --model-type"
        )
    name = arguments.name or f"Qwen/{last}"
    model_type = arguments.model_type or f"q{last[1:]}_lora"
    extra = [
        f"--tinker-base-model {shlex.quote(name)}",
        f"--max-tokens-per-gpu {arguments.window} --max-position-embeddings {arguments.window} "
        f"--sglang-context-length {arguments.window}",
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 --qkv-format thd",
    ]
    alpha = 2 * arguments.rank if arguments.alpha is None else arguments.alpha
    lines = [
        f"python {SCRIPT} serve",
        f"  --hf-checkpoint {shlex.quote(arguments.checkpoint)} --model-type {shlex.quote(model_type)}",
        f"  --lora-rank {arguments.rank} --lora-alpha {alpha} --n-adapters {arguments.adapters} "
        f"--target-modules {arguments.modules}",
        f"  --extra-args {shlex.quote(' '.join(extra))}",
    ]
    client = [
        f"config.base_url=http://{arguments.host}:{PORT} config.model_name={shlex.quote(name)}",
        f"config.lora_rank={arguments.rank} config.ttl_seconds=None",
        f"console.gateway_rank={arguments.rank} console.context_window={arguments.window - MILES_RESERVED_TOKENS}",
    ]
    comments = ["# In a Miles checkout on the GPU node. Then, where the run is started:"]
    comments += [f"#   {line}" for line in client]
    if set(arguments.modules.split(",")) != set(MODULES):
        comments.append("# The cookbook trains attn, mlp and unembed: it will be refused by a gateway that does not.")
    return "\n".join([*comments, " \\\n".join(lines)]) + "\n"


def command_text(argv: Sequence[str]) -> str:
    """What `gateway command` prints for these words.

    Raises:
        UsageError: no gateway of that kind is known here, or an option does not fit.
    """
    if argv and argv[0] in ("-h", "--help"):
        return build_parser().format_help()
    if not argv or argv[0] != "miles":
        given = f"no command is known for {argv[0]!r}" if argv else "a kind of gateway is missing"
        raise UsageError(f"{given}: quarterdeck gateway command miles --checkpoint DIR")
    return miles_command(build_parser().parse_args(argv[1:]))


def _last_part(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def _modules(text: str) -> str:
    named = [part.strip() for part in text.split(",") if part.strip()]
    unknown = sorted(set(named) - set(MODULES))
    if unknown or not named:
        raise argparse.ArgumentTypeError(f"{text!r} is not some of {','.join(MODULES)}")
    return ",".join(module for module in MODULES if module in named)
