"""What a resume must find unchanged: options, tasks, trial file and model, as names with values or digests.

The engine keeps them in the manifest when it starts; `resume_check` compares them before the next one does. Nothing
heavy is imported; with many or large tasks it takes seconds, so the engine calls it in a thread.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from console.errors import UsageError
from console.records.redact import redact
from console.resources import BUNDLED_MODEL, models_dir
from console.training.options import RunOptions
from console.training.schema import load_schema
from console.training.tasks import find_tasks
from console.training.trial_config import load_trial_config

KEPT = (
    "config.model_name",
    "config.lora_rank",
    "config.renderer_name",
    "config.load_checkpoint_path",
    "config.learning_rate",
    "config.max_tokens",
    "config.temperature",
    "config.loss_fn",
    "config.loss_fn_config",
    "config.num_substeps",
    "config.kl_penalty_coef",
    "config.kl_discount_factor",
    "config.kl_reference_config.base_model",
    "config.kl_reference_config.load_checkpoint_path",
    "config.remove_constant_reward_groups",
    "config.dataset_builder.group_size",
    "config.dataset_builder.groups_per_batch",
    "config.dataset_builder.shuffle_seed",
    "harbor.reward_key",
    "harbor.reward_limit",
    "harbor.verifier_faults",
    "harbor.sampling",
    "harbor.history_thinking",
    "harbor.train",
    "console.gateway",
)
"""Options that decide what is learnt, or where the checkpoints are: a resumed run has them as it began."""
GROWING = ("config.dataset_builder.epochs",)
"""Options that a resume may raise: the earlier batches stay what they were."""
TASK, TRIAL, MODEL = "task:", "trial:", "model:"
"""Beginnings of the names of other fingerprints: a task's name, a key of the trial file, a file of the model follow."""

_JUNK = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".ipynb_checkpoints", ".DS_Store"})
_JUNK_AT_TOP = frozenset({".git", ".hg", ".svn", ".idea", ".vscode"})
_JUNK_ENDS = (".pyc", ".pyo", ".swp", "~")
_UNUSED_OF_TRIAL = frozenset({"trials_dir", "trial_name"})
_LONGEST = 160
"""Characters of a value that is kept as it is; of a longer one the digest is."""
_DEEPEST = 64


def of(options: RunOptions) -> dict[str, str]:
    """The fingerprints of a run with these options; equal when a resume may go on.

    Options under their keys as JSON, tasks as `task:NAME`, the trial file's values as `trial:KEY`, the files of the
    embedded gateway's model as `model:FILE`. Secrets are left out: a key that was renewed changes nothing.

    Raises:
        UsageError: tasks, trial file or model cannot be read.
    """
    found = {key: of_option(options, key) for key in (*KEPT, *GROWING)}
    found |= {_text(TRIAL + key): value for key, value in _of_trial(options.harbor.trial_config)}
    found |= {_text(TASK + task.name): digest_of_directory(task) for task in find_tasks(options.tasks_dir)}
    return found | of_model(options)


def of_option(options: RunOptions, key: str) -> str:
    """An option's effective value as JSON. Raises `KeyError` for no option."""
    value = options.value(key)
    if key == "config.renderer_name" and value is None:
        value = _recommended_renderer(options.value("config.model_name"))
    if key == "config.loss_fn_config" and not value:
        value = None
    option = load_schema().get(key)
    if option is not None and option.kind == "float" and value is not None:
        value = float(value)
    return _short(redact(value))


def of_default(key: str) -> str:
    """The same of the option's default, for fingerprints that were kept before there was such an option."""
    option = load_schema().get(key)
    default = None if option is None else option.default
    if option is not None and option.kind == "float" and default is not None:
        default = float(default)
    return _short(default)


def of_model(options: RunOptions) -> dict[str, str]:
    """The files of the embedded gateway's model; nothing for a gateway that somebody else runs.

    Raises:
        UsageError: the model cannot be read.
    """
    if not options.embedded:
        return {}
    directory = Path(options.console.embedded_model or models_dir() / BUNDLED_MODEL)
    try:
        files = sorted(p for p in directory.iterdir() if p.suffix in (".json", ".safetensors") and p.is_file())
    except OSError as error:
        raise UsageError(
            f"console.embedded_model={directory}: cannot be read ({error.strerror}); name a model directory"
        ) from None
    return {MODEL + path.name: _digest_of_file(path) for path in files}


def digest_of_directory(directory: Path) -> str:
    """Digest of the files below a directory: their names, whether they are executable, and what is in them.

    Links are followed, as they are when a task is uploaded. Times, owners and empty directories do not count, nor does
    what tools leave behind: caches, editors' copies, the version control's own directory at the top.

    Raises:
        UsageError: a file cannot be read, or the directories are nested without end.
    """
    digest = hashlib.sha256()
    for name, path in _files(directory, "", frozenset()):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:  # a link to nothing
            kind, content = "link", os.readlink(path) if path.is_symlink() else ""
        else:
            kind = "exec" if mode & stat.S_IXUSR else "file"
            content = _digest_of_file(path) if stat.S_ISREG(mode) else "special"
        for part in (name, kind, content):
            raw = os.fsencode(part)
            digest.update(b"%d:%b" % (len(raw), raw))
    return digest.hexdigest()[:32]


def _files(directory: Path, prefix: str, above: frozenset[tuple[int, int]]) -> Iterator[tuple[str, Path]]:
    """Names relative to the top, sorted within each directory. A link back to a directory above is not followed."""
    try:
        info = directory.stat()
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError as error:
        raise UsageError(f"{directory}: cannot be read ({error.strerror}); make it readable, or remove it") from None
    here = (info.st_dev, info.st_ino)
    if here in above or len(above) > _DEEPEST:
        return
    for entry in entries:
        name = entry.name
        if name in _JUNK or name.endswith(_JUNK_ENDS) or (not prefix and name in _JUNK_AT_TOP):
            continue
        if entry.is_dir():
            yield from _files(Path(entry.path), f"{prefix}{name}/", above | {here})
        else:
            yield prefix + name, Path(entry.path)


def _digest_of_file(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:32]
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); make it readable, or remove it") from None


def _of_trial(path: str) -> Iterator[tuple[str, str]]:
    config = load_trial_config(path)
    for key, value in redact({k: v for k, v in config.items() if k not in _UNUSED_OF_TRIAL}).items():
        yield from _leaves(key, value)


def _leaves(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaves(f"{key}.{name}", item)
    else:
        yield key, _short(value)


def _text(name: str) -> str:
    """A name as it can be encoded; those of files may be any bytes."""
    return name.encode("utf-8", "backslashreplace").decode()


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    if len(text) <= _LONGEST:
        return text
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()[:32]


def _recommended_renderer(model_name: str) -> str | None:
    """The one that the cookbook takes when none is named; None when it knows none, or is not installed."""
    if importlib.util.find_spec("tinker_cookbook") is None:
        return None
    from tinker_cookbook import model_info

    try:
        return str(model_info.get_recommended_renderer_name(model_name))
    except Exception:  # its errors have no narrower base; preflight tells of it
        return None
