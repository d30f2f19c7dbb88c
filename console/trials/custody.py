"""Every environment that Harbor makes for a trial is in the ledger before it exists, and until it is surely gone.

One seam: Harbor's factory, which makes the agent's environment and those of separate verifiers. What an environment's
own `stop` says is not taken for a removal where it can be asked for: Harbor's E2B and Docker environments log a
failed removal and go on, and a create that was cut off leaves a sandbox whose id nobody was told.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from harbor.environments.base import BaseEnvironment
from harbor.environments.factory import EnvironmentFactory

from console.records.sandbox_ledger import CUT_OFF, Announced, Created, Entry, Failed, Gone, Kept, Left, Record, Removed
from console.trials.finders import GONE, THERE, UNKNOWN, Finder, finder_of
from console.trials.ledger import LedgerError, LedgerWriter, process_name, this_boot, this_host
from console.trials.sandbox import EnvironmentStartError

log = logging.getLogger(__name__)

_CONFIRM_LIMIT = 14.0
"""Seconds for a removal to be confirmed; less than the pool waits for a cancelled trial."""
_DOUBT_SECONDS = 8.0
"""How long a sandbox is looked for after its create was cut off: the service may still be making it."""
_LOOK_AGAIN = 1.0
_REASON_LIMIT = 300

# E2B refused the create itself: no sandbox was made. Anything else may follow a create that was carried out.
_REFUSALS = frozenset(
    {"AuthenticationException", "RateLimitException", "InvalidArgumentException", "TemplateException", "BuildException"}
)

_current: ContextVar[Custody | None] = ContextVar("custody", default=None)


class Custodian:
    """The ledger of this runner process, and what its entries have in common."""

    def __init__(self, writer: LedgerWriter) -> None:
        self.writer = writer
        self.engine, self.runner = process_name(os.getppid()), process_name(os.getpid())
        self.boot, self.host = this_boot(), this_host()

    def install(self) -> Callable[[], None]:
        """Watch what Harbor's factory makes from now on; returns what undoes it."""
        original = EnvironmentFactory.create_environment_from_config

        def create(*args: Any, **kwargs: Any) -> BaseEnvironment:
            environment = original(*args, **kwargs)
            custody = _current.get()
            if custody is not None:
                custody.take(environment)
            return environment

        EnvironmentFactory.create_environment_from_config = create

        def undo() -> None:
            EnvironmentFactory.create_environment_from_config = original

        return undo

    def trial(self, key: str, *, lasting: bool = False) -> Custody:
        """Custody of what is made from here on in this task and those that it starts.

        `lasting`: it has no end of its own, as that of a whole job: then nothing that ended is kept, nor settled again.
        """
        custody = Custody(self, key, lasting=lasting)
        _current.set(custody)
        return custody


class Custody:
    """The environments of one trial. `left`: names of those whose removal is not confirmed."""

    def __init__(self, custodian: Custodian, key: str, *, lasting: bool = False) -> None:
        self.custodian, self.key, self._lasting = custodian, key, lasting
        self.left: list[str] = []
        self._guards: list[_Guard] = []

    def take(self, environment: BaseEnvironment) -> None:
        """Watch an environment that was not started yet."""
        guard = _Guard(environment, self)  # its environment holds it, too
        if not self._lasting:
            self._guards.append(guard)

    async def settle(self) -> None:
        """After the trial: whatever was started has its last record. Goes on when it is cancelled."""
        task = asyncio.ensure_future(self._settle())
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        task.result()

    async def _settle(self) -> None:
        for guard in self._guards:
            await guard.settle()


class _Guard:
    """One environment: its records, and its end."""

    def __init__(self, environment: BaseEnvironment, custody: Custody) -> None:
        self._environment, self._custody = environment, custody
        self._entry: Entry | None = None
        self._finder: Finder | None = None
        self._sent = False
        self._keep = False
        self._refused = ""
        self._stopped = False
        self._stopping, self._ended = asyncio.Lock(), asyncio.Lock()
        self._start, self._stop = environment.start, environment.stop
        environment.start = self.start
        environment.stop = self.stop
        self._create = getattr(environment, "_create_sandbox", None) if kind_of(environment) == "e2b" else None
        if self._create is not None:
            environment._create_sandbox = self.create

    async def start(self, *args: Any, **kwargs: Any) -> None:
        """Raises EnvironmentStartError when the ledger cannot be written: nothing was created."""
        await self._announce()
        self._sent = self._create is None
        try:
            await self._start(*args, **kwargs)
        except Exception as error:
            if type(error).__name__ in _REFUSALS:
                self._refused = _line(error)
            raise
        await self._created()

    async def create(self) -> None:
        """E2B's own create, after the template is there; may be tried again."""
        assert self._create is not None
        self._sent = True
        await self._create()
        await self._created()

    async def stop(self, delete: bool) -> None:
        """A removal that failed is the ledger's and the report's; it does not void the trial."""
        trouble: Exception | None = None
        self._keep = _kept(self._environment, delete)
        async with self._stopping:
            try:
                await self._stop(delete)
            except Exception as error:
                trouble = error
                if self._entry is None:  # never started: not ours to judge
                    raise
            self._stopped = True
            await self._finish(trouble)

    async def settle(self) -> None:
        """After the trial: its stop may still run, or may never have been asked for."""
        async with self._stopping:
            await self._finish(None)

    async def _announce(self) -> None:
        custodian = self._custody.custodian
        made = describe(self._environment, self._custody.key, custodian)
        entry = Entry(made=made, seen=made.ts)
        self._finder = finder_of(made.kind)
        if made.kind == "docker" and self._finder is not None:
            seen = (await self._finder.look([entry]))[made.name]
            if seen.state == UNKNOWN:  # no daemon here to ask afterwards: Harbor's word must do
                self._finder = None
        try:
            await custodian.writer.write(made)
        except LedgerError as error:
            raise EnvironmentStartError(f"{error}; nothing was created") from error
        self._entry = entry

    async def _created(self) -> None:
        entry = self._entry
        ids, root = _identity(self._environment)
        if entry is None or (entry.created is not None and set(ids) <= set(entry.ids)):
            return
        await self._record(Created(ts=time.time(), name=entry.name, ids=ids, root=root))

    async def _record(self, record: Record) -> None:
        """Write it. A ledger that fails now still has the announcement, so that nothing is lost by going on."""
        assert self._entry is not None
        self._entry.apply(record)
        try:
            await self._custody.custodian.writer.write(record)
        except LedgerError as error:
            log.error("%s: %s", record.name, error)

    async def _finish(self, trouble: Exception | None) -> None:
        """The last record, once. `trouble`: what the environment's stop raised."""
        async with self._ended:
            entry = self._entry
            if entry is None or entry.state not in ("creating", "live"):
                return
            record = await self._end(entry, trouble)
            if isinstance(record, Left):
                log.warning("sandbox %s not removed: %s", record.name, record.why)
                self._custody.left.append(record.name)
            await self._record(record)

    async def _end(self, entry: Entry, trouble: Exception | None) -> Record:
        name = entry.name
        if self._keep:
            return Kept(ts=time.time(), name=name)
        if not self._sent or (entry.created is None and self._refused):
            return Failed(ts=time.time(), name=name, why=self._refused or "it ended before the create was asked for")
        if self._finder is None:
            if trouble is not None or not self._stopped:
                why = "nobody stopped it" if trouble is None else _line(trouble)
                return Left(ts=time.time(), name=name, why=why)
            return Removed(ts=time.time(), name=name, how="by Harbor's word: it cannot be asked for")
        if entry.made.kind == "bwrap" and self._stopped and trouble is None:
            return Removed(ts=time.time(), name=name)
        try:
            async with asyncio.timeout(_CONFIRM_LIMIT):
                return await self._confirm(self._finder, entry, trouble)
        except TimeoutError:
            why = f"not confirmed within {_CONFIRM_LIMIT:g} s" + (f"; {_line(trouble)}" if trouble else "")
            return Left(ts=time.time(), name=name, why=why)

    async def _confirm(self, finder: Finder, entry: Entry, trouble: Exception | None) -> Record:
        """Ask the provider until it is surely gone; what is still there is removed."""
        name = entry.name
        doubtful = entry.made.kind == "e2b" and entry.created is None
        until = time.monotonic() + (_DOUBT_SECONDS if doubtful else 0.0)
        while True:
            seen = (await finder.look([entry]))[name]
            if seen.state == THERE:
                after = await finder.remove(entry, seen)
                if after.state == GONE:
                    return Removed(ts=time.time(), name=name, how=f"found by its name: {', '.join(seen.ids)}"[:200])
                return Left(ts=time.time(), name=name, ids=list(after.ids or seen.ids), why=_why(after.why, trouble))
            if seen.state == UNKNOWN:
                return Left(ts=time.time(), name=name, why=_why(seen.why, trouble))
            if time.monotonic() >= until:
                break
            await asyncio.sleep(_LOOK_AGAIN)
        if doubtful:
            return Gone(ts=time.time(), name=name, how=CUT_OFF)
        return Removed(ts=time.time(), name=name)


def describe(environment: BaseEnvironment, key: str, custodian: Custodian) -> Announced:
    """The announcement of an environment that is about to start."""
    kind = kind_of(environment)
    where = account = ref = ""
    if kind == "e2b":
        from console.trials.finders_e2b import e2b_account, e2b_address

        where, account = e2b_address(), e2b_account()
    elif kind == "docker":
        from harbor.environments.docker.docker import _sanitize_docker_compose_project_name

        from console.trials.finders_docker import docker_address

        where, ref = docker_address(), _sanitize_docker_compose_project_name(environment.session_id)
    elif kind == "bwrap":
        from console.trials.roots import default_root_dir

        ref = str((environment.options.root_dir or default_root_dir()).absolute())
    return Announced(
        ts=time.time(),
        name=environment.session_id,
        kind=kind,
        key=key,
        trial=environment.trial_paths.trial_dir.name,
        where=where,
        account=account,
        ref=ref,
        cpus=_number(environment, "_effective_cpus"),
        memory_mb=_number(environment, "_effective_memory_mb"),
        lease=_number(environment, "_sandbox_timeout_sec"),
        engine=custodian.engine,
        runner=custodian.runner,
        boot=custodian.boot,
        host=custodian.host,
    )


def kind_of(environment: BaseEnvironment) -> str:
    """Harbor's name of its type; of a class made from one of Harbor's, of that; an import path otherwise."""
    cls = type(environment)
    for base in cls.__mro__:
        if base.__module__ == "console.trials.bwrap":
            return "bwrap"
        if base.__module__.startswith("harbor.environments.") and base is not BaseEnvironment and hasattr(base, "type"):
            if getattr(base.type, "__isabstractmethod__", False):
                continue
            kind = base.type()
            return str(getattr(kind, "value", kind))
    return f"{cls.__module__}:{cls.__qualname__}"


def _identity(environment: BaseEnvironment) -> tuple[list[str], str]:
    """The provider's ids and the root on this machine, as far as the environment has them."""
    sandbox = getattr(environment, "_sandbox", None)
    one = getattr(sandbox, "sandbox_id", None)
    root = getattr(sandbox, "root", None)
    return ([one] if isinstance(one, str) else []), ("" if root is None else str(root))


def _kept(environment: BaseEnvironment, delete: bool) -> bool:
    """Whether the configuration keeps it: Docker's containers, and bubblewrap's files on disk."""
    kind, options = kind_of(environment), getattr(environment, "options", None)
    if kind == "docker":
        return bool(getattr(options, "keep_containers", False))
    return kind == "bwrap" and (not delete or bool(getattr(options, "keep", False)))


def _number(environment: BaseEnvironment, attribute: str) -> float | None:
    value = getattr(environment, attribute, None)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _why(said: str, trouble: Exception | None) -> str:
    return said or (_line(trouble) if trouble is not None else "it is still there")


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:_REASON_LIMIT]
