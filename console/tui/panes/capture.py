"""The pane of gateway, capture, host and sandboxes: what holds the run up, then readings with their recent past."""

from __future__ import annotations

from collections.abc import Sequence

from console.state.gateway_words import operations, profile, session, troubles
from console.state.model import SandboxState
from console.state.sanitize import sanitize
from console.tui.glyphs import spark
from console.tui.panes.header import disk_is_low, dollars, percentile
from console.tui.picture import Scene
from console.tui.text import Line, Span, clock, count, fit, line, number, short_time, wrap

_TROUBLE_ROWS = 3


def capture_title(scene: Scene) -> tuple[str, str]:
    """Left and right part of the pane's title."""
    return "Gateway & capture", ""


def capture_lines(scene: Scene, cells: int, rows: int) -> list[Line]:
    """What holds the run up at the gateway, then readings with their recent past; as many as there is room for."""
    state = scene.state
    g, c, h = state.gateway, state.capture, state.host
    size = max(6, cells - 20)

    def row(name: str, value: str, series: Sequence[float | None], high: float | None = None) -> Line:
        past = spark(series, size, scene.ascii, low=0.0, high=high)
        return line(Span(f" {name:<8}", "muted"), Span(f"{value:>8}  "), Span(past, "accent"))

    def figures(*pairs: tuple[str, str, str]) -> Line:
        first, *rest = pairs
        spans = [Span(f" {first[0]:<8}", "muted"), Span(f"{first[1]:>8}", first[2])]
        for name, value, role in rest:
            spans += [Span(f"  {name} ", "muted"), Span(value, role)]
        return line(*spans)

    def tally(name: str, counts: dict[str, int]) -> Line:
        ranked = sorted(counts.items(), key=lambda item: -item[1])
        text = " ".join(f"{sanitize(reason, limit=20)} {count(number)}" for reason, number in ranked[:8])
        return line(Span(f" {name:<9} ", "muted"), Span(text or "--"))

    def said(name: str, text: str, role: str = "") -> Line:
        return line(Span(f" {name:<8} ", "muted"), Span(text, role))

    b = state.sandboxes
    held_up = [] if scene.dead else troubles(state, scene.now)
    lines = [line(" ", *part) for one in held_up for part in wrap(one.text, cells - 2, "limit")[:_TROUBLE_ROWS]]
    lines += [
        row("rtt", "--" if g.latency_ms is None else short_time(g.latency_ms / 1000), g.latencies),
        row("queue", "--" if g.queued is None else str(g.queued), g.queues),
        row("out/s", count(c.sampled_per_second), c.rates),
        figures(("tokens", count(c.sampled_tokens), ""), ("prompt", count(c.prompt_tokens), "")),
        figures(
            ("calls", count(c.calls), ""), ("failed", str(c.failed), "limit" if c.failed else ""),
            ("open", str(c.inflight), ""),
        ),
        figures(
            ("bridged", "--" if c.bridge_rate is None else f"{100 * c.bridge_rate:.0f}%", ""),
            ("lost", str(c.lost), "alert" if c.lost else ""),
            ("nolp", str(c.no_logprobs), "alert" if c.no_logprobs else ""),
        ),
        figures(
            ("in/s", count(c.prompt_per_second), ""), ("trained/s", count(c.trained_per_second), ""),
            ("refused", count(sum(c.refusals.values())), "limit" if c.refusals else ""),
        ),
        figures(
            ("kv", "--" if g.kv_fraction is None else number(g.kv_fraction, 2), ""),
            ("running", "--" if g.running is None else str(g.running), ""),
            *((("p95", short_time(percentile(g.latencies, 0.95) / 1000), ""),) if g.latencies else ()),
        ),
        *([said("session", text)] if (text := session(g)) else []),
        *([said("pending", text)] if (text := operations(g)) else []),
        figures(
            ("disk", "--" if h.disk_free is None else f"{count(h.disk_free)}B", "limit" if disk_is_low(state) else ""),
            ("of", "--" if h.disk_total is None else f"{count(h.disk_total)}B", ""),
            ("memory", "--" if h.rss is None else f"{count(h.rss)}B", ""),
            ("loop", "--" if h.loop_lag is None else short_time(h.loop_lag), ""),
        ),
        figures(
            ("boxes", str(state.sandboxes_live), ""), ("left", str(len(state.sandboxes_left)), ""),
            ("policy", f"v{state.policy_version}", ""), ("engines", str(state.engines), ""),
        ),
        *([
            figures(
                ("creating", str(b.creating), ""),
                ("orphaned", str(len(b.orphaned)), "limit" if b.orphaned else ""),
                ("oldest", clock(None if b.oldest is None else scene.now - b.oldest), ""),
                ("hours", "--" if b.hours is None else number(b.hours, 2), ""),
                *((("cost", f"~{dollars(b.cost)}", ""),) if b.cost is not None else ()),
            )
        ] if b != SandboxState() else []),
        tally("unbridged", {name: calls for name, calls in c.unbridged.items() if name != "first"}),
        tally("refused", c.refusals),
        tally("untrained", c.excluded),
        said("gateway", sanitize(state.gateway_url or "--", limit=200)),
        said("model", sanitize(state.model or "--", limit=200)),
        said("says", sanitize(g.detail or "--", limit=200)),
        *([said("profile", text)] if (text := profile(g)) else []),
        *([said("found by", sanitize(g.how, limit=200))] if g.how else []),
        *(said("changed" if n == 0 else "", sanitize(text, limit=200)) for n, text in enumerate(g.translated[:8])),
    ]  # fmt: skip
    return [fit(one, cells) for one in lines[:rows]]
