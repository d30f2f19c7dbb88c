"""What the watch inside a Harbor job and the engine tell each other: one JSON object a line on one socket."""

from __future__ import annotations

import msgspec

LINE_LIMIT = 256 << 20
"""Bytes of the longest line: the plan of a job names each of its trials."""


class _Message(msgspec.Struct, tag_field="op", kw_only=True):
    pass


class PlannedTrial(msgspec.Struct, array_like=True, frozen=True):
    """A trial of the job, in Harbor's order: attempts, then tasks, then agents.

    Attributes:
        name: Harbor's, unique in the job; task: the whole name; agent, model: as configured, "" for none.
        stands: it has a result of an earlier run of the job, and does not run.
    """

    name: str
    task: str
    agent: str
    model: str
    stands: bool


# --- from the job ----------------------------------------


class JobPlanned(_Message, tag="planned"):
    """Harbor resolved the job. Nothing begins before the first `Gate` has come.

    Attributes:
        dataset: as the job names it, several with a comma; concurrency: Harbor's own limit; tries: of a trial at most.
    """

    job_dir: str
    job_name: str
    harbor: str
    dataset: str
    attempts: int
    concurrency: int
    tries: int
    trials: list[PlannedTrial]


class TrialBegan(_Message, tag="began"):
    """A try passed the gate; `try_` counts from 0."""

    name: str
    try_: int


class TrialPhased(_Message, tag="phase"):
    """A try entered environment, agent or verify: Harbor tells of no others."""

    name: str
    try_: int
    phase: str


class TrialEnded(_Message, tag="ended"):
    """A try has its result, and waits a little for `Judged`. `again`: Harbor deletes it and tries once more."""

    name: str
    try_: int
    again: bool


class JobEnded(_Message, tag="done"):
    """Harbor wrote the end of the job."""


class JobFailed(_Message, tag="failed"):
    """Harbor gives up. `mistake`: what it was given is wrong, as far as the type of the exception tells."""

    kind: str
    text: str
    mistake: bool


FromJob = JobPlanned | TrialBegan | TrialPhased | TrialEnded | JobEnded | JobFailed

# --- to the job ----------------------------------------


class Gate(_Message, tag="gate"):
    """How many trials may be at work. `further`: a further try of a trial that began passes all the same."""

    limit: int
    further: bool = False


class Judged(_Message, tag="judged"):
    """The engine has what it needs of a try."""

    name: str


ToJob = Gate | Judged
