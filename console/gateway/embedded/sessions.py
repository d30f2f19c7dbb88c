"""Sessions, models and samplers: who owns what, for how long, and in which order a model's operations run.

Owned by the event loop. A tenant is a digest of the API key; the key itself is not kept.
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from console.gateway.embedded.futures import Future, Futures
from console.gateway.embedded.likeness import Likeness
from console.gateway.embedded.lora import LoraLayout
from console.gateway.embedded.problems import OperationProblem, RequestProblem
from console.gateway.embedded.sampling import Adapter, SampleJob
from console.gateway.embedded.trainer import TrainableModel

_SESSIONS_PER_TENANT = 256
_SAMPLERS_PER_SESSION = 64
_REMEMBERED_SEQ_IDS = 4096
_PENDING_OPERATIONS = 256
_TOMBSTONES = 8192


class OperationQueue:
    """Runs a model's operations in the order of their `seq_id`, each once, however often it is sent."""

    def __init__(self) -> None:
        self._next = 1
        self._known: OrderedDict[int, Future] = OrderedDict()
        self._pending: dict[int, Callable[[], None]] = {}
        self._waiting_since: float | None = None

    def known(self, seq_id: int) -> Future | None:
        """The promise already given for this `seq_id`."""
        return self._known.get(seq_id)

    def add(self, seq_id: int, future: Future, start: Callable[[], None]) -> None:
        """Start an operation once all before it have started.

        Raises:
            RequestProblem: 400 a number of the past, 429 too many operations wait.
        """
        if seq_id < self._next:
            raise RequestProblem(400, f"seq_id {seq_id} is in the past; the model expects {self._next}")
        if len(self._pending) >= _PENDING_OPERATIONS:
            raise RequestProblem(429, f"{_PENDING_OPERATIONS} operations wait for seq_id {self._next}", retry_after=1.0)
        self._known[seq_id] = future
        self._pending[seq_id] = start
        while self._next in self._pending:
            self._pending.pop(self._next)()
            self._next += 1
        self._waiting_since = time.monotonic() if self._pending else None
        while len(self._known) > _REMEMBERED_SEQ_IDS:
            self._known.popitem(last=False)

    def give_up_gap(self, futures: Futures, timeout: float) -> None:
        """Fail what has waited too long for a number that never came, and go on after it."""
        if self._waiting_since is None or time.monotonic() - self._waiting_since < timeout:
            return
        why = f"seq_id {self._next} did not arrive within {timeout:g} s; operations sent after it were dropped"
        for seq_id in self._pending:
            futures.fail(self._known[seq_id], OperationProblem(why))
        self._next = max(self._pending) + 1
        self._pending.clear()
        self._waiting_since = None

    def forgive(self, seconds: float) -> None:
        """Do not count a time in which nothing could arrive."""
        if self._waiting_since is not None:
            self._waiting_since += seconds

    def fail_all(self, futures: Futures, why: str) -> None:
        """Fail every unsettled operation; those that run already have their result dropped."""
        for future in self._known.values():
            futures.fail(future, OperationProblem(why))
        self._pending.clear()
        self._waiting_since = None


@dataclass
class ServedModel:
    """A model in training. `trainable` is made on the compute thread, before the first operation runs there."""

    id: str
    session: Session
    layout: LoraLayout
    created: Future
    user_metadata: dict[str, Any] | None
    trainable: TrainableModel | None = None
    snapshot: tuple[int, Adapter] | None = None
    operations: OperationQueue = field(default_factory=OperationQueue)
    last_request: float = field(default_factory=time.time)


@dataclass
class Sampler:
    """A sampling session: fixed weights under an id."""

    id: str
    session: Session
    adapter: Adapter
    model_path: str | None
    known: OrderedDict[int, Future] = field(default_factory=OrderedDict)
    open: dict[str, tuple[Future, SampleJob]] = field(default_factory=dict)
    last_request: float = field(default_factory=time.monotonic)

    def remember(self, seq_id: int, future: Future) -> None:
        """Answer a repeated `seq_id` with the same promise."""
        self.known[seq_id] = future
        while len(self.known) > _REMEMBERED_SEQ_IDS:
            self.known.popitem(last=False)


@dataclass
class Session:
    """What one client has opened. It ends when the client says so, or when its lease runs out."""

    tenant: str
    user_metadata: dict[str, Any] | None
    display_name: str | None
    id: str = field(default_factory=lambda: f"session-{uuid.uuid4().hex}")
    models: dict[str, ServedModel] = field(default_factory=dict)
    created: dict[int, ServedModel] = field(default_factory=dict)
    sampler_ids: dict[int, str] = field(default_factory=dict)
    samplers: OrderedDict[str, Sampler] = field(default_factory=OrderedDict)
    last_seen: float = field(default_factory=time.monotonic)


class Registry:
    """Everything that is open.

    Args:
        like: the rules; see `Likeness`.
        max_models: models in training at a time, over all tenants.
        lease: seconds without a sign of life after which a session ends.
        cancel: ends a sampling request.
        release: called with an adapter's key when no sampler uses it any more.
    """

    def __init__(
        self,
        futures: Futures,
        *,
        like: Likeness,
        max_models: int,
        lease: float,
        cancel: Callable[[SampleJob], None],
        release: Callable[[str], None],
    ) -> None:
        self._futures = futures
        self._like = like
        self._cancel = cancel
        self._max_models = max_models
        self._lease = lease
        self._release = release
        self._sessions: dict[str, Session] = {}
        self._models: dict[str, ServedModel] = {}
        self._samplers: dict[str, Sampler] = {}
        self._gone: OrderedDict[str, str] = OrderedDict()

    @property
    def models(self) -> list[ServedModel]:
        """Every model in training."""
        return list(self._models.values())

    def open_session(self, tenant: str, user_metadata: dict[str, Any] | None, display_name: str | None) -> Session:
        """A new session.

        Raises:
            RequestProblem: 429 when the tenant has too many.
        """
        if sum(session.tenant == tenant for session in self._sessions.values()) >= _SESSIONS_PER_TENANT:
            raise RequestProblem(429, f"{_SESSIONS_PER_TENANT} sessions are open; finish some", retry_after=5.0)
        session = Session(tenant, user_metadata, display_name)
        self._sessions[session.id] = session
        return session

    def session(self, session_id: str, tenant: str) -> Session:
        """An open session of the tenant; where any request renews a lease, this one does.

        Raises:
            RequestProblem: unknown, ended, 403 another tenant's.
        """
        session = self._find(self._sessions, session_id, "session")
        self._check(session.tenant, tenant, "session", session_id)
        self._renew(session)
        return session

    def heartbeat(self, session_id: str, tenant: str) -> None:
        """Renew a session's lease.

        Raises:
            RequestProblem: unknown, ended, 403 another tenant's.
        """
        self.session(session_id, tenant).last_seen = time.monotonic()

    def _renew(self, session: Session) -> None:
        if self._like.any_request_renews:
            session.last_seen = time.monotonic()

    def sessions(self, tenant: str) -> list[Session]:
        """The tenant's open sessions."""
        return [session for session in self._sessions.values() if session.tenant == tenant]

    def model(self, model_id: str, tenant: str) -> ServedModel:
        """A model of the tenant.

        Raises:
            RequestProblem: unknown, unloaded, 403 another tenant's.
        """
        model = self._find(self._models, model_id, "model")
        self._check(model.session.tenant, tenant, "model", model_id)
        self._renew(model.session)
        model.last_request = time.time()
        return model

    def add_model(
        self, session: Session, model_seq_id: int, layout: LoraLayout, created: Future, user_metadata: Any
    ) -> ServedModel:
        """Take a slot for a new model.

        Raises:
            RequestProblem: 400 when no slot is free.
        """
        if len(self._models) >= self._max_models:
            hint = "" if self._like.strict else f"; a dead session frees its slots after {self._lease:.0f} s"
            raise RequestProblem(400, f"no free adapter slots (capacity {self._max_models}){hint}")
        own = self._like.own_ids
        model_id = f"model-{uuid.uuid4().hex[:12]}" if own else f"{session.id}:train:{model_seq_id}"
        model = ServedModel(model_id, session, layout, created, user_metadata)
        self._models[model_id] = session.models[model_id] = session.created[model_seq_id] = model
        return model

    def known_model(self, session: Session, model_seq_id: int) -> ServedModel | None:
        """The model that this request has already created.

        Raises:
            RequestProblem: it was unloaded since.
        """
        model = session.created.get(model_seq_id)
        return None if model is None else self._find(self._models, model.id, "model")

    def unload(self, model: ServedModel, why: str) -> None:
        """Free a model's slot; `why` completes a sentence that begins with the model."""
        if self._models.pop(model.id, None) is not None:
            model.session.models.pop(model.id, None)
            model.operations.fail_all(self._futures, f"model {model.id} {why}")
            self._futures.fail(model.created, OperationProblem(f"model {model.id} {why}"))
            self._bury(model.id, why)

    def sampler(self, sampler_id: str, tenant: str) -> Sampler:
        """A sampler of the tenant.

        Raises:
            RequestProblem: unknown, dropped, 403 another tenant's.
        """
        sampler = self._find(self._samplers, sampler_id, "sampling session")
        self._check(sampler.session.tenant, tenant, "sampling session", sampler_id)
        self._renew(sampler.session)
        sampler.last_request = time.monotonic()
        sampler.session.samplers.move_to_end(sampler_id)
        return sampler

    def add_sampler(self, session: Session, seq_id: int, adapter: Adapter, model_path: str | None) -> Sampler:
        """Open a sampler, or return the one that this request opened before; the least recently used may have to go."""
        fresh = f"sampling-{uuid.uuid4().hex}" if self._like.own_ids else f"{session.id}:sample:{seq_id}"
        sampler_id = session.sampler_ids.setdefault(seq_id, fresh)
        if sampler_id in self._samplers:
            return self._samplers[sampler_id]
        sampler = Sampler(sampler_id, session, adapter, model_path)
        self._samplers[sampler_id] = session.samplers[sampler_id] = sampler
        if len(session.samplers) > _SAMPLERS_PER_SESSION:
            idle = next((each for each in session.samplers.values() if not each.open), None)
            if idle is not None and idle is not sampler:
                self._drop_sampler(idle, f"was dropped: a session keeps its {_SAMPLERS_PER_SESSION} latest samplers")
        return sampler

    def _drop_sampler(self, sampler: Sampler, why: str) -> None:
        del self._samplers[sampler.id]
        del sampler.session.samplers[sampler.id]
        for future, job in list(sampler.open.values()):
            self._cancel(job)
            self._futures.fail(future, OperationProblem(f"sampling session {sampler.id} {why}"))
        self._bury(sampler.id, why)
        if all(other.adapter.key != sampler.adapter.key for other in self._samplers.values()):
            self._release(sampler.adapter.key)

    def end_session(self, session: Session, why: str) -> None:
        """Cancel a session's sampling, unload its models, forget its samplers."""
        for sampler in list(session.samplers.values()):
            self._drop_sampler(sampler, why)
        for model in list(session.models.values()):
            self.unload(model, f"was unloaded: {why}")
        del self._sessions[session.id]
        self._bury(session.id, why)

    def sweep(self) -> list[str]:
        """End sessions whose lease ran out; returns their ids."""
        limit = time.monotonic() - self._lease
        expired = [session for session in self._sessions.values() if session.last_seen < limit]
        for session in expired:
            self.end_session(session, "lease expired")
        return [session.id for session in expired]

    def give_up_gaps(self, timeout: float) -> None:
        """Fail operations that wait for one before them that has not come for this many seconds."""
        for model in self._models.values():
            model.operations.give_up_gap(self._futures, timeout)

    def forgive(self, seconds: float) -> None:
        """Do not count a time in which this process stood still: heartbeats could not arrive."""
        for session in self._sessions.values():
            session.last_seen += seconds
        for model in self._models.values():
            model.operations.forgive(seconds)

    def _find[T](self, table: dict[str, T], key: str, what: str) -> T:
        found = table.get(key)
        if found is None:
            if key in self._gone:
                raise RequestProblem(self._like.gone, f"{what} {key!r} {self._gone[key]}")
            raise RequestProblem(self._like.unknown, f"{what} {key!r} is unknown to this gateway")
        return found

    def _check(self, owner: str, tenant: str, what: str, key: str) -> None:
        if owner != tenant:
            raise RequestProblem(403, f"{what} {key!r} belongs to another API key")

    def _bury(self, key: str, why: str) -> None:
        self._gone[key] = why
        while len(self._gone) > _TOMBSTONES:
            self._gone.popitem(last=False)
