"""The committed list of every option of a training run, and the help made from it.

`schema.json` is made by `python -m console.training.schema_build` from the installed cookbook and our own options, so
that help, spelling and types are checked without importing either. A test keeps it equal to what is installed.
"""

from __future__ import annotations

import difflib
import functools
import textwrap
from pathlib import Path
from typing import Any

import msgspec

SCHEMA_FILE = Path(__file__).with_name("schema.json")


_SECRET_KEYS = frozenset({"console.notify_command", "console.notify_webhook", "console.ping_url"})


class Option(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One option.

    Attributes:
        key: dotted, from its section on, e.g. `config.lora_rank`; help: one line.
        kind: bool, int, float, str, path, url, command, choice, dict, list or any; nullable: None is allowed too.
        default: value when it is not given, None also when it is required; required: it must be given.
        choices: allowed values of a choice; refused: why it may not be set, empty for ordinary options.
    """

    key: str
    kind: str
    help: str
    nullable: bool = False
    default: Any = None
    required: bool = False
    choices: tuple[str, ...] = ()
    refused: str = ""

    @property
    def secret(self) -> bool:
        """Whether its value as a whole is kept from records, messages and logs: such addresses hold tokens."""
        return self.key in _SECRET_KEYS

    @property
    def type_name(self) -> str:
        """As the help shows it."""
        name = "|".join(self.choices) if self.kind == "choice" else self.kind
        return f"{name}|None" if self.nullable else name

    @property
    def default_text(self) -> str:
        """As the help shows it and the command line takes it."""
        if self.refused:
            return "not settable"
        if self.required:
            return "required"
        if isinstance(self.default, bool):
            return str(self.default).lower()
        if isinstance(self.default, list):
            return ",".join(map(str, self.default)) or "empty"
        return str(self.default)


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """All options, in the order of the help. `cookbook`: the version they were read from."""

    cookbook: str
    options: tuple[Option, ...]

    def get(self, key: str) -> Option | None:
        """The option of that name."""
        return next((option for option in self.options if option.key == key), None)

    def refusing(self, key: str) -> Option | None:
        """The option that may not be set and that `key` is, or lies below."""
        for option in self.options:
            if option.refused and (key == option.key or key.startswith(option.key + ".")):
                return option
        return None

    def suggestion(self, key: str) -> str | None:
        """The option that was probably meant: the same last part elsewhere, or a similar spelling."""
        keys = [option.key for option in self.options if not option.refused]
        last = key.rsplit(".", 1)[-1]
        same = [known for known in keys if known.rsplit(".", 1)[-1] == last]
        if len(same) == 1:
            return same[0]
        close = difflib.get_close_matches(key, keys, n=1, cutoff=0.75)
        if close:
            return close[0]
        lasts = {known.rsplit(".", 1)[-1]: known for known in keys}
        near = difflib.get_close_matches(last, lasts, n=1, cutoff=0.75)
        return lasts[near[0]] if near else None


@functools.cache
def load_schema() -> Schema:
    """The committed schema."""
    return msgspec.json.decode(SCHEMA_FILE.read_bytes(), type=Schema)


USAGE = """\
usage: quarterdeck train [FILE.toml] [key=value ...] [flags]
       quarterdeck train --resume RUN [key=value ...] [flags]

Trains a LoRA policy on Harbor tasks with the official Tinker cookbook loop. Options are given as key=value, without
dashes; a TOML file has the tables [config], [config.dataset_builder], [harbor], [console] and [console.alarms] with the
same names. The command line wins over the file, a later value over an earlier one. Relative paths in a file start at
that file.

A config.log_path that holds a run is resumed: from its last checkpoint, with the steps since then applied again from
what was captured. What decides how it learns must be as it was; --check tells what differs. `quarterdeck fork` starts a
new run from a checkpoint, with other options.
"""

FLAGS = (
    ("--headless", "no console: JSON lines on stdout, the log on stderr; the run ends with the command"),
    ("--plain", "the same with one readable line per change instead of JSON"),
    ("--detach", "start the run in the background and return"),
    ("--resume RUN", "go on with a run and its own options; key=value changes those that may change"),
    ("--check", "make every check, print all findings, start nothing"),
    ("--json", "with --check: the findings as one JSON object"),
    ("--help", "this text"),
)

SECTIONS = (
    ("config", "the cookbook's tinker_cookbook.rl.train.Config"),
    ("config.dataset_builder", "the tasks"),
    ("harbor", "the trials"),
    ("console", "the run and its console"),
    ("console.alarms", "when an alarm opens"),
)


def section_of(key: str) -> str:
    """The heading under which the help lists an option."""
    below = [section for section, _ in SECTIONS if "." in section and key.startswith(f"{section}.")]
    return below[0] if below else key.split(".", 1)[0]


def help_text(width: int = 100) -> str:
    """Usage, flags and every option with its type, default and meaning; the paragraphs are `width` columns wide."""
    lines = [USAGE, "flags:"]
    lines += [f"  {flag:<14}{text}" for flag, text in FLAGS]
    for section, title in SECTIONS:
        lines += ["", f"{section}: {title}"]
        for option in load_schema().options:
            if section_of(option.key) == section:
                lines.append(f"  {option.key}  ({option.type_name}, {_default(option)})")
                lines += textwrap.wrap(option.help, width, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines) + "\n"


def _default(option: Option) -> str:
    text = option.default_text
    return text if option.required or option.refused else f"default {text}"
