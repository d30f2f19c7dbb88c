"""What the cookbook needs before its loop can start: imports, tokenizer, renderer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from console.errors import UsageError
from console.resources import BUNDLED_OWNER, models_dir


def import_heavy() -> None:
    """Seconds of imports, for a worker thread, so that the engine's socket answers meanwhile."""
    import tinker_cookbook.rl.train  # noqa: F401
    import torch

    import console.capture.rendering
    import console.capture.server
    import console.training.observe
    import console.training.strategy  # noqa: F401

    torch.set_num_threads(1)


def register_bundled_tokenizers() -> None:
    """Make the cookbook know the tokenizers of the bundled models, by the names that gateways of ours give them."""
    for directory in sorted(models_dir().iterdir()):
        if (directory / "tokenizer.json").is_file():
            register_local_tokenizer(f"{BUNDLED_OWNER}/{directory.name}", directory)


def register_local_tokenizer(model_name: str, model_dir: Path) -> None:
    """Make the cookbook take the tokenizer of `model_name` from a directory."""
    from tinker_cookbook.tokenizer_utils import register_tokenizer

    from console.training.tokenizer import tokenizer_factory

    # The cookbook asks of a tokenizer what `LightTokenizer` has, and names the type of transformers.
    register_tokenizer(model_name, tokenizer_factory(model_dir))  # type: ignore[arg-type]


def name_of_renderer(model_name: str, given: str | None) -> str:
    """The renderer that is given, or the one that the cookbook recommends for the model.

    Raises:
        UsageError: it recommends none.
    """
    from tinker_cookbook import model_info

    if given is not None:
        return given
    try:
        return str(model_info.get_recommended_renderer_name(model_name))
    except Exception:
        raise UsageError(f"config.renderer_name: the cookbook recommends none for {model_name}; name one") from None


def make_renderer(model_name: str, renderer_name: str | None) -> Any:
    """The named renderer, or the one that the cookbook recommends for the model.

    Raises:
        UsageError: it recommends none, or knows none of that name.
    """
    from tinker_cookbook.renderers import get_renderer
    from tinker_cookbook.tokenizer_utils import get_tokenizer

    renderer_name = name_of_renderer(model_name, renderer_name)
    try:
        tokenizer = get_tokenizer(model_name)
    except Exception as error:
        reason = " ".join(str(error).split())[:160]
        raise UsageError(f"config.model_name={model_name}: its tokenizer cannot be loaded: {reason}") from None
    try:
        return get_renderer(renderer_name, tokenizer, model_name=model_name)
    except (ValueError, KeyError, AssertionError) as error:
        raise UsageError(f"config.renderer_name={renderer_name}: {error}") from None


COOKBOOK_RECORDS = ("checkpoints.jsonl", "metrics.jsonl", "timing_spans.jsonl")


def repair_records(run_dir: Path) -> None:
    """Make the cookbook's own files readable to it after a kill.

    It appends lines to them without more ado, refuses to resume from one that is torn, and would write the next line
    behind the torn one. What is taken out is kept beside the file, in `<name>.damaged`.
    """
    for name in COOKBOOK_RECORDS:
        path = run_dir / name
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue
        good: list[bytes] = []
        bad: list[bytes] = []
        for line in data.splitlines(keepends=True):
            (good if line.endswith(b"\n") and _is_json(line) else bad).append(line)
        if bad:
            with (run_dir / f"{name}.damaged").open("ab") as damaged:
                damaged.write(b"\n".join(line.rstrip(b"\n") for line in bad) + b"\n")
            whole = run_dir / f"{name}.tmp"
            whole.write_bytes(b"".join(good))
            whole.replace(path)


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except msgspec.DecodeError:
        return False
    return True
