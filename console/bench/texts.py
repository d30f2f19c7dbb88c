"""The texts of one trial, read when a rule asks for them: bounded, once, and with the numbers of their lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from console.bench.model import Evidence
from console.outcomes.text import bounded
from console.records.harbor.evidence import Tail, agent_texts, tail
from console.records.harbor.model import TrialRecord

RESULT = "result.json"
EXCEPTION = "exception.txt"
LOG = "trial.log"

_TAIL = 64 << 10
_RESULT_TAIL = 1 << 20
_MOST_FILES = 40


class Line(NamedTuple):
    """A line of a file of the trial. `number`: from 1, None where the beginning of the file was not read."""

    file: str
    number: int | None
    text: str

    def evidence(self) -> Evidence:
        """It, as what decided."""
        return Evidence(file=self.file, line=self.number, text=bounded(self.text))


class TrialTexts:
    """Reads a trial's files at most once each, and only their ends."""

    def __init__(self, trial: TrialRecord) -> None:
        self._trial = trial
        self._read: dict[str, Tail] = {}
        self._names: tuple[str, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The text files that the trial has."""
        if self._names is None:
            self._names = tuple(agent_texts(self._trial.path))[:_MOST_FILES]
        return self._names

    def tail(self, name: str) -> Tail:
        """The end of a file; an empty text for one that is not there."""
        if name not in self._read:
            limit = _RESULT_TAIL if name == RESULT else _TAIL
            self._read[name] = tail(self._trial.path, name, limit)
        return self._read[name]

    def agent(self) -> Iterator[str]:
        """Names of the agent's own logs."""
        return (name for name in self.names if name.startswith("agent/") or "/agent/" in name)

    def verifier(self) -> Iterator[str]:
        """Names of what the verifier wrote: of a multi-step trial that of its last step, as in training."""
        own = [name for name in self.names if name.startswith("verifier/")]
        if own:
            return iter(own)
        steps = [name for name in self.names if name.startswith("steps/") and "/verifier/" in name]
        last = {name.split("/", 2)[1] for name in steps[-1:]}
        return (name for name in steps if name.split("/", 2)[1] in last)

    def verifier_output(self, limit: int = 8_000) -> str:
        """The end of what the tests wrote, as training has it."""
        parts = [self.tail(name).text[-limit:] for name in self.verifier()]
        return "\n".join(part for part in parts if part)[-limit:]

    def find(self, name: str, wanted: str) -> Line | None:
        """The last line of a file that contains `wanted`, which is one line with single spaces."""
        read = self.tail(name)
        if not wanted or not read.text:
            return None
        lines = read.text.split("\n")
        for at in range(len(lines) - 1, -1, -1):
            if wanted in " ".join(lines[at].split()):
                return self.line(name, at, lines[at])
        return None

    def line(self, name: str, at: int, text: str) -> Line:
        """Line number `at`, from 0 within the end that was read."""
        first = self.tail(name).first_line
        return Line(name, None if first is None else first + at, text)

    def key(self, name: str, *keys: str) -> Line | None:
        """The line of a JSON file on which the last of `keys` first stands, each looked for behind the one before."""
        read = self.tail(name)
        at = 0
        for key in keys:
            at = read.text.find(key, at)
            if at < 0:
                return None
        number = read.text.count("\n", 0, at)
        return self.line(name, number, read.text[read.text.rfind("\n", 0, at) + 1 :].split("\n", 1)[0])
