"""Whom the embedded gateway behaves like, as data: the rules in which other Tinker services differ from it.

`miles` is the Miles gateway, whose request models are those of SDK 0.26.2; `hosted` is the hosted service; `skyrl` is
SkyRL's server; `embedded` is this gateway's own behaviour, the most permissive of them. Here is only what a client can
notice. The figures are defaults; the command line has options for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

_OWN_CONFIG = {
    "pjwt_auth_enabled": False,
    "parallel_fwdbwd_chunks": True,
    "proto_compress_fwdbwd": False,
    "sample_max_concurrent_requests": 512,
}
_OWN_DYNAMIC = {"refresh_interval_sec": 300, "sample_cancel_enabled": True, "sample_cancel_max_batch_size": 64}


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """The rules of one service.

    Attributes:
        needs_key: without an API key a request is refused with `no_key`; otherwise everybody is one tenant.
        open_descriptions: client settings, telemetry and capabilities are answered without a key.
        unknown, gone, invalid: the HTTP status for an id that was never there, for one that has ended, and for a body
            that does not fit the route.
        future_unknown, session_unknown: the same for promises, and for a heartbeat's session.
        wrong_model: what is said to who asks for another base model; {asked} and {served} are filled in.
        error_field: the name under which an error says what is wrong.
        absent: routes (without `/api/v1/`) that do not exist, with all below them.
        strict: bodies are held to the request models of SDK 0.26.2, which refuse fields that came later.
        defers: what is wrong with a model's command fails its promise, in its turn, instead of the request.
        closes: a training operation that fails closes its model.
        create_by_load: `load_weights` may create the model it loads into.
        loads_first_only: `load_weights` is only taken as a model's first operation.
        own_ids: models and samplers have names of their own, which a client cannot compute.
        sequence_ids: the promise of a sample names its sequences.
        problems_as_status: a failed promise is answered with HTTP 400 instead of a body that has an error.
        poll_status: how a poll ends without a result: 200 with `try_again`, or 408.
        any_request_renews: every request of a session renews its lease; otherwise only heartbeats do.
        ttl: whether a checkpoint's time to live is `taken`, `refused` or `ignored`.
        seeds: an adapter's seed is taken.
        fixed_layout: a model must train the layers that the server was started for.
        forced_off: layers that are never trained, whatever is asked for.
        layout_known: `weights_info` tells which layers a checkpoint trains.
        needs_max_tokens: a sample must say how long it may be.
        losses: the losses that are known; None for all.
        capabilities: what the service tells of its model beside its name.
        max_models, max_queued, max_samples, max_rank, lease, poll_seconds, keep_seconds: limits and times (in seconds).
        sweep_share: dead sessions are looked for every this share of the lease; 0 for every second.
    """

    name: str
    needs_key: bool = True
    no_key: int = 401
    open_descriptions: bool = False
    unknown: int = 404
    gone: int = 410
    invalid: int = 400
    future_unknown: int = 410
    session_unknown: int = 410
    wrong_model: str = "base_model {asked!r} is not served here; this gateway serves {served!r}"
    error_field: str = "detail"
    absent: frozenset[str] = frozenset()
    strict: bool = False
    defers: bool = False
    closes: bool = False
    create_by_load: bool = True
    loads_first_only: bool = False
    own_ids: bool = False
    sequence_ids: bool = True
    problems_as_status: bool = False
    poll_status: int = 200
    any_request_renews: bool = True
    ttl: Literal["taken", "refused", "ignored"] = "taken"
    seeds: bool = True
    fixed_layout: bool = False
    forced_off: frozenset[str] = frozenset()
    layout_known: bool = True
    needs_max_tokens: bool = False
    losses: frozenset[str] | None = None
    capabilities: frozenset[str] = frozenset({"max_context_length", "trainable", "sampleable"})
    client_config: Mapping[str, Any] = field(default_factory=lambda: _OWN_CONFIG)
    dynamic_config: Mapping[str, Any] = field(default_factory=lambda: _OWN_DYNAMIC)
    max_models: int = 8
    max_queued: int = 512
    max_samples: int = 128
    max_rank: int = 1024
    lease: float = 300.0
    sweep_share: float = 0.0
    poll_seconds: float = 25.0
    keep_seconds: float = 900.0

    def lacks(self, path: str) -> bool:
        """Whether a route is absent; `path` with `/api/v1/`."""
        route = path.removeprefix("/api/v1/")
        return any(route == name or route.startswith(name + "/") for name in self.absent)


EMBEDDED = Likeness(name="embedded")

MILES = Likeness(
    name="miles",
    no_key=400,
    open_descriptions=True,
    unknown=400,
    gone=400,
    wrong_model="this gateway serves {served!r}, not {asked!r}",
    error_field="error",
    absent=frozenset({"training_runs", "checkpoints", "sessions", "unload_model"}),
    strict=True,
    defers=True,
    closes=True,
    create_by_load=False,
    own_ids=True,
    any_request_renews=False,
    ttl="refused",
    seeds=False,
    fixed_layout=True,
    needs_max_tokens=True,
    losses=frozenset({"cross_entropy", "importance_sampling", "ppo", "cispo", "dro"}),
    capabilities=frozenset({"trainable", "sampleable"}),
    client_config={},
    dynamic_config={},
    max_models=1,
    max_queued=1_000_000,  # it never answers 429
    max_samples=64,
    max_rank=16,
    sweep_share=0.1,  # every 30 s of its lease of 300 s
    poll_seconds=30.0,
    keep_seconds=3600.0,
)

HOSTED = Likeness(
    name="hosted",
    absent=frozenset({"engine_load"}),
    max_models=64,
)

SKYRL = Likeness(
    name="skyrl",
    needs_key=False,
    gone=404,
    invalid=422,
    future_unknown=404,
    session_unknown=404,
    absent=frozenset({"checkpoints", "sessions", "engine_load", "client/dynamic_config", "cancel_future"}),
    create_by_load=False,
    loads_first_only=True,
    own_ids=True,
    sequence_ids=False,
    problems_as_status=True,
    poll_status=408,
    any_request_renews=False,
    ttl="ignored",
    forced_off=frozenset({"unembed"}),
    layout_known=False,
    needs_max_tokens=True,
    losses=frozenset({"cross_entropy", "importance_sampling", "ppo", "gspo", "cispo"}),
    capabilities=frozenset(),
    client_config={"pjwt_auth_enabled": False},
    sweep_share=0.2,  # every 60 s of its lease of 300 s
    poll_seconds=300.0,
)

LIKENESSES: Mapping[str, Likeness] = {like.name: like for like in (EMBEDDED, MILES, HOSTED, SKYRL)}
