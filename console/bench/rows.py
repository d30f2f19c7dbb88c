"""Trials as compact rows: what merging and figures need of a verdict, so that 100,000 of them fit into memory."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Mapping

import msgspec

from console.bench.model import Judged
from console.outcomes.classes import OutcomeClass

VALUE_LIMIT = 120
"""Characters of a setting's value that are kept and shown."""
_TIMED_OUT = "AgentTimeoutError"


class Identity(msgspec.Struct, frozen=True, order=True):
    """What is measured on what. Trials of different identities are never put into one figure."""

    agent: str
    model: str
    dataset: str


class Setting(msgspec.Struct, frozen=True):
    """Name to value, as bounded texts, of what a trial ran with beside its identity; "" where no file tells."""

    values: tuple[tuple[str, str], ...]


class Row(msgspec.Struct, gc=False):
    """One trial directory.

    Attributes:
        job, path: directories; name: Harbor's trial name; group: what it belongs to.
        task: short name; checksum: of the task, "" when unknown.
        outcome, cause, reward: the verdict's. error: type of the trial's own exception, "" without one; errors: types
            of all exceptions, those of steps too. recorded: Harbor wrote a result that can be read.
        began, ended: seconds since 1970 (UTC), None when unknown; ended_surely: the result tells its end.
        agent_timeout: seconds that applied, None when unknown; setting: what else it ran with.
        input_tokens, cached_tokens, output_tokens, cost_usd: None when not recorded.
        agent_seconds, verify_seconds, total_seconds: None when not recorded.
        attempt, try_: numbers from 1 that merging gives, 0 before, and for a copy of another row; chosen: whether it
            is the try that stands for its attempt.
    """

    job: str
    path: str
    name: str
    group: Identity
    task: str
    checksum: str
    outcome: OutcomeClass
    cause: str
    reward: float | None
    error: str
    errors: tuple[str, ...]
    recorded: bool
    began: float | None
    ended: float | None
    ended_surely: bool
    agent_timeout: float | None
    setting: Setting
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    agent_seconds: float | None
    verify_seconds: float | None
    total_seconds: float | None
    attempt: int = 0
    try_: int = 0
    chosen: bool = False

    @property
    def kind(self) -> str:
        """Class and cause as one word: `infrastructure/sandbox`, `completed`."""
        return f"{self.outcome.value}/{self.cause}" if self.cause else self.outcome.value

    @property
    def timed_out(self) -> bool:
        """Whether Harbor ended the agent at its deadline, whatever became of the verification."""
        return self.outcome is OutcomeClass.AGENT_TIMEOUT or _TIMED_OUT in self.errors


def read_rows(judged: Iterable[Judged]) -> list[Row]:
    """A row for each verdict, in their order; about half a kilobyte each, equal texts stored once."""
    make = _Maker()
    return [make.row(verdict) for verdict in judged]


class _Maker:
    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._groups: dict[Identity, Identity] = {}
        self._settings: dict[Setting, Setting] = {}
        self._errors: dict[tuple[str, ...], tuple[str, ...]] = {}

    def row(self, verdict: Judged) -> Row:
        trial = verdict.trial
        phases = trial.phases
        agent, verify = phases.get("agent"), phases.get("verify")
        errors = tuple(dict.fromkeys(error.type for error in trial.errors))
        own = next((error.type for error in trial.errors if not error.step), "")
        group = Identity(self._text(trial.agent), self._text(trial.model), self._text(trial.dataset))
        setting = Setting(tuple(self._values(verdict)))
        known = trial.began is not None and trial.ended is not None
        return Row(
            job=self._text(str(trial.job)),
            path=str(trial.path),
            name=trial.name,
            group=self._groups.setdefault(group, group),
            task=self._text(trial.short_task),
            checksum=self._text(trial.checksum or ""),
            outcome=verdict.outcome,
            cause=self._text(verdict.cause),
            reward=verdict.reward,
            error=self._text(own),
            errors=self._errors.setdefault(errors, errors),
            recorded=not trial.problem,
            began=trial.began,
            ended=trial.ended,
            ended_surely=trial.ended is not None and trial.ended_from == "result",
            agent_timeout=trial.agent_timeout,
            setting=self._settings.setdefault(setting, setting),
            input_tokens=trial.input_tokens,
            cached_tokens=trial.cached_tokens,
            output_tokens=trial.output_tokens,
            cost_usd=trial.cost_usd,
            agent_seconds=agent.seconds if agent else None,
            verify_seconds=verify.seconds if verify else None,
            total_seconds=trial.ended - trial.began if known else None,  # type: ignore[operator]
        )

    def _text(self, text: str) -> str:
        return self._texts.setdefault(text, text)

    def _values(self, verdict: Judged) -> Iterable[tuple[str, str]]:
        trial = verdict.trial
        yield "agent version", self._text(trial.agent_version)
        yield "Harbor version", self._text(trial.harbor)
        yield "timeout multiplier", self._text(f"{trial.timeout_multiplier:g}")
        yield "environment", self._text(trial.environment)
        yield from self._named("sandbox", trial.sandbox)
        yield from self._named("agent option", trial.agent_kwargs)

    def _named(self, what: str, values: Mapping[str, object]) -> Iterable[tuple[str, str]]:
        for name in sorted(values):
            yield self._text(f"{what} {name}"), self._text(_shown(values[name]))


def _shown(value: object) -> str:
    """A value of a configuration as one bounded text; what is nested beyond reason has none of its own."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except (RecursionError, ValueError):  # deeply nested; an integer of more digits than are converted
        text = f"a {type(value).__name__} that cannot be shown"
    if len(text) <= VALUE_LIMIT:
        return text
    return f"{text[: VALUE_LIMIT - 12]}… ({zlib.crc32(text.encode(errors='replace')):08x})"  # long ones may differ late


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a reader of the figures must know.

    Attributes:
        code: what kind, e.g. `merge.rerolled`; text: one sentence with its figures and, where there is one, the
            remedy; trials: some of the directories that it rests on, not yet made safe for a terminal.
    """

    code: str
    text: str
    trials: tuple[str, ...] = ()


EXAMPLES = 5
"""Directories that a notice names at most."""


def notice(code: str, text: str, rows: Iterable[Row] = ()) -> Notice:
    """A notice that names the first few of `rows`."""
    return Notice(code=code, text=text, trials=tuple(row.path for row in itertools.islice(rows, EXAMPLES)))


def counted(number: int, what: str) -> str:
    """`1 trial`, `12,345 trials`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
