"""The reducer's part for what a run stands on: gateway, capture, sandboxes, checkpoints, host."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from console.journal import events as ev
from console.state.model import CHECKPOINTS_KEPT, READINGS_KEPT, CheckpointState, SandboxState

if TYPE_CHECKING:
    from console.state.reduce import RunView


def _gateway(view: RunView, e: ev.GatewayHealth) -> None:
    g = view.state.gateway
    if g.reachable != e.reachable:
        g.since = e.ts
    g.reachable, g.latency_ms, g.queued, g.running = e.reachable, e.latency_ms, e.queued, e.running
    g.kv_fraction, g.detail, g.probed = e.kv_fraction, e.detail, e.ts
    if e.latency_ms is not None:
        g.latencies.append(e.latency_ms)
        del g.latencies[:-READINGS_KEPT]
    g.queues.append(e.queued)
    del g.queues[:-READINGS_KEPT]
    g.queue, g.queue_reason, g.backoff = e.queue, e.queue_reason, e.backoff
    g.heartbeat_age, g.lease_left, g.pending, g.oldest = e.heartbeat_age, e.lease_left, e.pending, e.oldest


def _profiled(view: RunView, e: ev.GatewayProfiled) -> None:
    g = view.state.gateway
    g.profile, g.how, g.sdk, g.translated = e.profile, e.how, e.sdk, e.translated
    g.losses, g.context_window, g.max_rank, g.modules = e.losses, e.context_window, e.max_rank, e.modules
    g.expiring, g.slots, g.lease = e.expiring, e.slots, e.lease


def _waiting(view: RunView, e: ev.GatewayWaiting) -> None:
    view.state.gateway.waiting, view.state.gateway.waiting_until = e.reason, e.until if e.reason else 0.0


def _capture(view: RunView, e: ev.CaptureStats) -> None:
    c = view.state.capture
    gap = e.ts - c.reported
    if c.reported and gap > 0:
        c.sampled_per_second = max(0.0, (e.sampled_tokens - c.sampled_tokens + c.unreported_sampled) / gap)
        c.prompt_per_second = max(0.0, (e.prompt_tokens - c.prompt_tokens + c.unreported_prompt) / gap)
        c.trained_per_second = max(0.0, (e.trained_tokens - c.trained_tokens) / gap)
        c.rates.append(c.sampled_per_second)
        del c.rates[:-READINGS_KEPT]
    c.calls, c.failed, c.prompt_tokens, c.sampled_tokens = e.calls, e.failed, e.prompt_tokens, e.sampled_tokens
    c.unreported_sampled = c.unreported_prompt = 0
    c.lost, c.no_logprobs, c.inflight, c.reported = e.lost, e.no_logprobs, e.inflight, e.ts
    c.trained_tokens, c.bridged, c.unbridged = e.trained_tokens, e.bridged, e.unbridged
    c.refusals, c.excluded = e.refusals, e.excluded
    c.temperature_low, c.temperature_high = e.temperature_low, e.temperature_high


def _probed(view: RunView, e: ev.SamplingProbed) -> None:
    c = view.state.capture
    c.tempered, c.probed, c.sampling = e.tempered, e.detail, e.mode


def _sandboxes(view: RunView, e: ev.SandboxStats) -> None:
    view.state.sandboxes_live, view.state.sandboxes_left = e.live, e.left
    view.state.sandboxes = SandboxState(
        creating=e.creating, orphaned=e.orphaned, oldest=e.oldest, hours=e.hours, cost=e.cost
    )


def _checkpoint(view: RunView, e: ev.CheckpointSaved) -> None:
    kept = view.state.checkpoints
    kept.append(CheckpointState(name=e.name, step=e.step, path=e.path, ts=e.ts, weights=e.weights))
    del kept[:-CHECKPOINTS_KEPT]


def _host(view: RunView, e: ev.HostStats) -> None:
    h = view.state.host
    h.disk_free, h.disk_total, h.rss, h.memory_total = e.disk_free, e.disk_total, e.rss, e.memory_total
    h.loop_lag, h.reported = e.loop_lag, e.ts


def _clock(view: RunView, e: ev.ClockJumped) -> None:
    h = view.state.host
    if e.slept:
        h.slept, h.slept_at = e.slept, e.ts
    if e.stepped:
        h.stepped, h.stepped_at = e.stepped, e.ts


HANDLERS: dict[type[ev.Event], Callable[[RunView, Any], None]] = {
    ev.GatewayHealth: _gateway,
    ev.GatewayProfiled: _profiled,
    ev.GatewayWaiting: _waiting,
    ev.CaptureStats: _capture,
    ev.SamplingProbed: _probed,
    ev.SandboxStats: _sandboxes,
    ev.CheckpointSaved: _checkpoint,
    ev.HostStats: _host,
    ev.ClockJumped: _clock,
}
