"""The options of a training run: from the command line and a TOML file to `RunOptions`.

Everything is checked against the committed schema, so a mistake costs one line and no heavy import. The engine receives
the result as a file; only it builds the cookbook's own config from it (`cookbook_config.py`).
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from console.errors import UsageError
from console.state.thresholds import AlarmThresholds
from console.training.harbor_options import HarborOptions
from console.training.schema import FLAGS, Option, load_schema
from console.training.schema_values import ValueProblem, check_url, command_words, from_text, from_toml, resolve_path

Scalar = float | int | str | bool | None


class ValueFault(NamedTuple):
    """An option that does not fit: its key, and the line about it."""

    key: str
    text: str


_PATH, _URL, _COMMAND = {"kind": "path"}, {"kind": "url"}, {"kind": "command"}
_KEY = re.compile(r"[\w.@-]+")


class ConsoleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The run and its console, under `console.`."""

    name: Annotated[str | None, Meta(description="Name shown for the run; made from the model when omitted.")] = None
    hold_timeout: Annotated[
        float,
        Meta(description="With on_failure=hold: seconds a failed trial waits for the operator before the run stops."),
    ] = 600.0
    probe_interval: Annotated[float, Meta(description="Seconds between two health checks of the Tinker gateway.")] = 5.0
    gateway: Annotated[
        Literal["none", "embedded"],
        Meta(description="`embedded` starts the CPU gateway as a child and trains against it."),
    ] = "none"
    gateway_profile: Annotated[
        Literal["auto", "miles", "hosted", "skyrl", "embedded"],
        Meta(description="What kind of Tinker gateway config.base_url is; `auto` finds out by asking it."),
    ] = "auto"
    gateway_rank: Annotated[
        int | None,
        Meta(description="Largest LoRA rank that the gateway takes, where it does not say; checked before the run."),
    ] = None
    context_window: Annotated[
        int | None,
        Meta(description="Tokens of a prompt and its sample together, where the gateway names none or too many."),
    ] = None
    slot_wait: Annotated[
        float,
        Meta(
            description="Seconds the run waits at its start for a model slot of the gateway, which the engine "
            "before it, however it ended, holds until its lease ends; 0 for not at all."
        ),
    ] = 600.0
    embedded_model: Annotated[
        str | None,
        Meta(description="Model directory of the embedded gateway; the bundled tiny model when omitted.", extra=_PATH),
    ] = None
    embedded_checkpoints: Annotated[
        str | None,
        Meta(
            description="Where the embedded gateway keeps checkpoints; below config.log_path when omitted.", extra=_PATH
        ),
    ] = None
    token_budget: Annotated[
        float | None,
        Meta(description="Captured tokens, prompt and sampled, after which the run stops with its step."),
    ] = None
    time_budget: Annotated[
        float | None,
        Meta(description="Seconds after which the run stops with its step, counted anew on a resume."),
    ] = None
    notify_command: Annotated[
        str | None,
        Meta(
            description="Command told of alarms and of the run's end: words as in a shell, run without one, with one "
            "JSON object on stdin and 10 seconds of time.",
            extra=_COMMAND,
        ),
    ] = None
    notify_webhook: Annotated[
        str | None, Meta(description="http(s) address that gets the same JSON object as a POST.", extra=_URL)
    ] = None
    notify_level: Annotated[
        Literal["warning", "critical"],
        Meta(description="Alarms of this level and above are told; the run's end and pauses always are."),
    ] = "critical"
    notify_every: Annotated[
        float, Meta(description="Seconds in which one alarm is told once, however often it opens.")
    ] = 1800.0
    ping_url: Annotated[
        str | None,
        Meta(
            description="Dead-man switch: http(s) address asked (GET) while the run lives, and once with /fail after "
            "its path when the run failed.",
            extra=_URL,
        ),
    ] = None
    ping_interval: Annotated[float, Meta(description="Seconds between two such pings, 1 or more.")] = 60.0
    alarms: AlarmThresholds = msgspec.field(default_factory=AlarmThresholds)


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one run, checked for names and types; `preflight` checks what they say.

    Attributes:
        config: what was given of the cookbook's config, by dotted key without `config.`; paths are absolute.
        harbor, console: our sections, complete.
        given: keys that the user set; source: the TOML file they came from, if any.
    """

    config: dict[str, Any]
    harbor: HarborOptions
    console: ConsoleOptions
    given: tuple[str, ...] = ()
    source: str | None = None

    def value(self, key: str) -> Any:
        """An option's value by its full key, its default when it was not given. Raises `KeyError` for no option."""
        option = load_schema().get(key)
        if option is None:
            raise KeyError(key)
        section, _, name = key.partition(".")
        if section == "config":
            return self.config.get(name, option.default)
        return attrgetter(key)(self)

    @property
    def log_path(self) -> Path:
        """The run directory."""
        return Path(self.value("config.log_path"))

    @property
    def tasks_dir(self) -> Path:
        """Directory of the task directories."""
        return Path(self.value("config.dataset_builder.tasks_dir"))

    @property
    def embedded(self) -> bool:
        """Whether the run starts the embedded gateway."""
        return self.console.gateway == "embedded"

    def failure_policy(self, *, interactive: bool) -> str:
        """stop, hold or retry: as given, else hold with a console and stop without one."""
        return self.harbor.on_failure or ("hold" if interactive else "stop")

    def overrides(self) -> dict[str, Scalar]:
        """What differs from the defaults, by full key, without secrets; containers as JSON text."""
        shown: dict[str, Scalar] = {}
        for key in dict.fromkeys(self.given):
            option = load_schema().get(key)
            value = self.value(key)
            if option is None or option.required or value != option.default:
                shown[key] = _public(key, value)
        return shown

    def to_json(self) -> bytes:
        """For `from_json` in another process. It may hold secrets: write it with `write`."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes) -> RunOptions:
        """The options that `to_json` encoded. Raises `UsageError` when they cannot be read."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as problem:
            raise UsageError(f"the run's options cannot be read: {problem}") from None

    def write(self, path: Path) -> None:
        """Write them to a file that only its owner may read."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            file.write(self.to_json())


def parse(argv: Sequence[str], *, cwd: Path | None = None, base: RunOptions | None = None) -> RunOptions:
    """The options of `[FILE.toml] key=value ...`; flags must have been taken out before.

    Args:
        cwd: where relative paths of the command line start; the working directory when omitted.
        base: options that these change; none when omitted.

    Raises:
        UsageError: an unknown option, a value of a wrong type, a missing required option, a file that cannot be read.
    """
    faults: list[ValueFault] = []
    values, source = _values(argv, cwd or Path.cwd(), faults)
    if faults:
        raise UsageError(faults[0].text)
    if base is not None:
        values = {key: base.value(key) for key in base.given if load_schema().get(key)} | values
    return _assembled(values, source)


def parse_all(argv: Sequence[str]) -> tuple[RunOptions | None, list[ValueFault]]:
    """As `parse`, but goes on after an option that does not fit, for a check that tells everything.

    Returns:
        The options, those that do not fit left out; None when there is no run without them. And what does not fit.
    """
    faults: list[ValueFault] = []
    values, source = _values(argv, Path.cwd(), faults)
    try:
        return _assembled(values, source), faults
    except UsageError:
        if not faults:
            raise
        return None, faults


def _values(argv: Sequence[str], cwd: Path, faults: list[ValueFault]) -> tuple[dict[str, Any], Path | None]:
    """Values by key, and the TOML file if there is one; an option that does not fit goes to `faults`."""
    values: dict[str, Any] = {}
    source: Path | None = None
    pairs: list[tuple[str, str]] = []
    for word in argv:
        key, equals, text = word.partition("=")
        if word.startswith("-"):
            raise UsageError(_dashes(word))
        if equals and _KEY.fullmatch(key):
            pairs.append((key, text))
        elif word.endswith(".toml"):
            if source is not None:
                raise UsageError(f"{word}: only one TOML file is read, {source} was given before")
            source = cwd / Path(word).expanduser()
        else:
            raise UsageError(f"{word!r} is neither key=value nor a TOML file; see quarterdeck train --help")
    if source is not None:
        values.update(_read_toml(source, faults))
    for key, text in pairs:
        try:
            values[key] = _converted(_known(key, ""), text, cwd, from_text, "")
        except UsageError as problem:
            faults.append(ValueFault(key, str(problem)))
    return values, source


def _assembled(values: dict[str, Any], source: Path | None) -> RunOptions:
    missing = [option.key for option in load_schema().options if option.required and option.key not in values]
    if missing:
        raise UsageError(f"missing: {', '.join(missing)}; give each as key=value or in the TOML file")
    sections: dict[str, dict[str, Any]] = {"config": {}, "harbor": {}, "console": {}}
    for key, value in values.items():
        section, _, name = key.partition(".")
        sections[section][name] = value
    console: dict[str, Any] = {}
    alarms: dict[str, float] = {}
    for name, value in sections["console"].items():
        below = name.removeprefix("alarms.")
        (console if below == name else alarms)[below] = value
    for name, least in (("notify_every", 0.0), ("ping_interval", 1.0)):
        if console.get(name, least) < least:
            raise UsageError(f"console.{name} must be {least:g} or more, it is {console[name]:g}")
    return RunOptions(
        config=sections["config"],
        harbor=HarborOptions(**sections["harbor"]),
        console=ConsoleOptions(**console, alarms=_thresholds(alarms)),
        given=tuple(values),
        source=str(source) if source else None,
    )


def _thresholds(values: dict[str, float]) -> AlarmThresholds:
    try:
        return AlarmThresholds(**values)
    except ValueError as problem:
        raise UsageError(f"console.alarms.{problem}") from None


def _read_toml(path: Path, faults: list[ValueFault]) -> dict[str, Any]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise UsageError(f"{path}: {problem.strerror or problem}; name an existing TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise UsageError(f"{path}: not valid TOML: {problem}") from None
    values: dict[str, Any] = {}
    for key, value in _leaves(tables, ""):
        where = f"{path}: "
        try:
            values[key] = _converted(_known(key, where), value, path.resolve().parent, from_toml, where)
        except UsageError as problem:
            faults.append(ValueFault(key, str(problem)))
    return values


def _leaves(table: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Dotted keys and values; a table is a value where the schema has an option of its name."""
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and load_schema().get(key) is None:
            yield from _leaves(value, key + ".")
        else:
            yield key, value


def _known(key: str, where: str) -> Option:
    """The option of that name, or the one that may not be set and covers it. Raises `UsageError` for any other."""
    schema = load_schema()
    option = schema.get(key) or schema.refusing(key)
    if option is not None:
        return option
    if key.endswith("@"):
        raise UsageError(f"{where}{key}: references are not supported; write the value itself")
    meant = schema.suggestion(key)
    hint = f"did you mean {meant}?" if meant else "see quarterdeck train --help"
    raise UsageError(f"{where}unknown option {key}; {hint}")


def _converted(option: Option, raw: Any, base: Path, convert: Any, where: str) -> Any:
    try:
        value = convert(option, raw)
        if isinstance(value, str):
            value = _placed(option, value, base)
    except ValueProblem as problem:
        raise UsageError(f"{where}{option.key} {problem}") from None
    return value


def _placed(option: Option, value: str, base: Path) -> str:
    """Paths made absolute, addresses and commands checked. Raises `ValueProblem`."""
    match option.kind:
        case "path" if not value:
            raise ValueProblem("is empty; give a path")
        case "path":
            return resolve_path(value, base)
        case "url":
            check_url(value)
        case "command":
            words = command_words(value)
            if "/" in words[0]:
                return shlex.join([resolve_path(words[0], base), *words[1:]])
    return value


def _dashes(word: str) -> str:
    bare = word.lstrip("-")
    key = bare.partition("=")[0]
    schema = load_schema()
    if schema.get(key):
        return f"{word}: options are written without dashes: {bare if '=' in bare else bare + '=VALUE'}"
    meant = schema.suggestion(key.replace("-", "_"))
    hint = f"did you mean {meant}=VALUE?" if meant else "options are written key=value; see quarterdeck train --help"
    flag = difflib.get_close_matches(word, [name.split()[0] for name, _ in FLAGS], n=1, cutoff=0.7)
    return f"unknown flag {word}; {f'did you mean {flag[0]}?' if flag else hint}"


REDACTED = "[redacted]"
_SECRET = re.compile(r"key|secret|token|passw|credential|auth", re.IGNORECASE)
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")
_PLAIN_NAMES = {"harbor.reward_key", "harbor.tls_key"}


def _public(key: str, value: Any) -> Scalar:
    """The value as it may be recorded and shown. Only text can be a secret: `max_tokens` is a number."""
    option = load_schema().get(key)
    if value is not None and option is not None and option.secret:
        return REDACTED
    hidden = _hidden(key, value) if key not in _PLAIN_NAMES else value
    if isinstance(hidden, dict | list):
        return msgspec.json.encode(hidden).decode()
    return hidden  # type: ignore[no-any-return]


def _hidden(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _hidden(name, item) for name, item in value.items()}
    if isinstance(value, list):
        return [_hidden(key, item) for item in value]
    if isinstance(value, str):
        return REDACTED if value and _SECRET.search(key) else _USERINFO.sub(f"{REDACTED}@", value)
    return value
