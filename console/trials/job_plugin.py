"""The watch inside a Harbor job: `harbor run --plugin console.trials.job_plugin:Watch --plugin-kwarg fd=N`.

It tells the engine on a socket what the job plans and what becomes of its trials, and lets trials begin as the engine
says. What fails here is logged, and never becomes the failure of a trial. Without an engine on the other side, which is
Harbor's end (`job_plugin_main`), nothing waits.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from harbor.job import Job
from harbor.models.job.plugin import BaseJobPlugin
from harbor.models.job.result import JobResult
from harbor.models.trial.config import TaskConfig, TrialConfig
from harbor.trial.hooks import TrialEvent, TrialHookEvent

from console.outcomes.types import CANCELLED
from console.trials.custody import Custodian
from console.trials.job_plugin_gate import JobGate
from console.trials.job_plugin_protocol import (
    LINE_LIMIT,
    FromJob,
    Gate,
    JobEnded,
    JobPlanned,
    PlannedTrial,
    ToJob,
    TrialBegan,
    TrialEnded,
    TrialPhased,
)
from console.trials.ledger import LedgerWriter

JUDGE_SECONDS = 5.0
"""How long a try waits to be looked at before Harbor goes on, which may delete it."""
GATE_SECONDS = 30.0
"""How long the job waits for the engine's first word."""

_PHASES = {
    TrialEvent.ENVIRONMENT_START: "environment",
    TrialEvent.AGENT_START: "agent",
    TrialEvent.VERIFICATION_START: "verify",
}

log = logging.getLogger(__name__)


class Watch(BaseJobPlugin):  # type: ignore[misc]
    """See the module.

    Args:
        fd: the socket to the engine; ledger: file in which every sandbox is announced, none without one.
    """

    def __init__(self, fd: int, ledger: str | None = None) -> None:
        super().__init__()
        self._fd, self._ledger = fd, ledger
        self._writer: asyncio.StreamWriter | None = None
        self._encoder = msgspec.json.Encoder()
        self._gate = JobGate()
        self._tries: dict[str, int] = {}
        self._awaited: dict[str, asyncio.Event] = {}
        self._heard = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._job: Job | None = None

    async def on_job_start(self, job: Job) -> None:
        """Tell the plan, and wait for the word to begin."""
        self._job = job
        self._take_custody()
        reader, self._writer = await asyncio.open_connection(sock=socket.socket(fileno=self._fd), limit=LINE_LIMIT)
        for event in TrialEvent:
            job.add_hook(event, self._guarded(event))
        self._listening = asyncio.create_task(self._listen(reader))
        try:
            self._send(await asyncio.to_thread(plan_of, job))
        except AttributeError as error:
            raise RuntimeError(f"this version of Harbor keeps a job's trials elsewhere ({error}): use 0.26") from error
        await asyncio.wait_for(self._heard.wait(), GATE_SECONDS)

    def _take_custody(self) -> None:
        """Whatever the job creates from now on is in the ledger first: its trials are made in tasks of this one."""
        if self._ledger is not None:
            custodian = Custodian(LedgerWriter(Path(self._ledger)))
            custodian.install()
            custodian.trial("job", lasting=True)

    async def on_job_end(self, job_result: JobResult) -> None:
        """Tell that it is over."""
        self._send(JobEnded())

    def _send(self, message: FromJob) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(self._encoder.encode(message) + b"\n")

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Take orders until the engine is gone; then whatever waits goes on."""
        decoder = msgspec.json.Decoder(ToJob)
        try:
            while line := await reader.readline():
                message = decoder.decode(line)
                if isinstance(message, Gate):
                    self._gate.move(message.limit, message.further)
                    self._heard.set()
                elif (awaited := self._awaited.get(message.name)) is not None:
                    awaited.set()
        except (OSError, ValueError) as error:
            log.error("the engine's socket: %s", error)
        finally:
            for waiting in self._awaited.values():
                waiting.set()

    # --- hooks ----------------------------------------

    def _guarded(self, event: TrialEvent) -> Callable[[TrialHookEvent], Awaitable[None]]:
        async def hook(told: TrialHookEvent) -> None:
            try:
                await self._on(event, told)
            except Exception:  # what a hook raises would become the trial's own exception
                log.exception("%s of %s", event.value, told.config.trial_name)

        return hook

    async def _on(self, event: TrialEvent, told: TrialHookEvent) -> None:
        name = told.config.trial_name
        if event is TrialEvent.START:
            await self._began(name)
        elif event is TrialEvent.END:
            await self._ended(name, told)
        elif event in _PHASES:
            self._send(TrialPhased(name=name, try_=self._tries.get(name, 0), phase=_PHASES[event]))

    async def _began(self, name: str) -> None:
        number = self._tries.get(name, -1) + 1
        await self._gate.enter(name, further=number > 0)
        self._tries[name] = number
        self._send(TrialBegan(name=name, try_=number))

    async def _ended(self, name: str, told: TrialHookEvent) -> None:
        if not self._gate.inside(name):
            return
        judged = self._awaited[name] = asyncio.Event()
        try:
            number = self._tries.get(name, 0)
            kinds = [error.exception_type for error in told.result.recorded_exceptions()]
            self._send(TrialEnded(name=name, try_=number, again=self._again(number, kinds)))
            if CANCELLED not in kinds and self._listening is not None and not self._listening.done():
                await asyncio.wait_for(judged.wait(), JUDGE_SECONDS)
        except TimeoutError:
            log.warning("%s was not looked at within %g s", name, JUDGE_SECONDS)
        finally:
            del self._awaited[name]
            self._gate.leave(name)

    def _again(self, number: int, kinds: list[str]) -> bool:
        """Whether Harbor tries it once more: as its queue decides."""
        assert self._job is not None
        retry = self._job.config.retry
        if not kinds or CANCELLED in kinds or number >= retry.max_retries:
            return False
        return all(retry.is_retryable(kind) for kind in kinds)


# --- the plan ----------------------------------------


def plan_of(job: Job) -> JobPlanned:
    """What the job will run. Reads the tasks' own names from their files."""
    # No public way leads to the trials of a job before they run.
    standing = {result.trial_name for result in job._existing_trial_results}
    names: dict[str, str] = {}
    trials = [_planned(config, standing, names) for config in job._trial_configs]
    config = job.config
    return JobPlanned(
        job_dir=str(Path(job.job_dir).absolute()),
        job_name=config.job_name,
        harbor=importlib.metadata.version("harbor"),
        dataset=", ".join(dict.fromkeys(_dataset(dataset) for dataset in config.datasets)),
        attempts=config.n_attempts,
        concurrency=config.n_concurrent_trials,
        tries=config.retry.max_retries + 1,
        trials=trials,
    )


def _planned(config: TrialConfig, standing: set[str], names: dict[str, str]) -> PlannedTrial:
    agent = config.agent
    return PlannedTrial(
        name=config.trial_name,
        task=_task_name(config.task, names),
        agent=agent.name or (agent.import_path or "").rsplit(":", 1)[-1],
        model=agent.model_name or "",
        stands=config.trial_name in standing,
    )


def _task_name(task: TaskConfig, names: dict[str, str]) -> str:
    """As its results will have it: out of its own file, else its directory's name."""
    from harbor.models.task.task import Task

    key = task.model_dump_json()
    if key not in names:
        try:
            path = task.get_local_path()
            names[key] = Task(path).name
        except Exception as error:
            log.warning("the name of a task: %s", error)
            names[key] = str(task.name or (task.path.name if task.path else ""))
    return names[key]


def _dataset(dataset: Any) -> str:
    name = dataset.name or (str(dataset.path) if dataset.path else "") or str(getattr(dataset, "repo", "") or "")
    version = dataset.version or getattr(dataset, "ref", None)
    return f"{name}@{version}" if version else name
