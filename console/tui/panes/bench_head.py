"""What of a benchmark the first two rows of the screen tell: how far it is, and the plumbing under it."""

from __future__ import annotations

from console.state import benchmark
from console.state.bench_words import left_text
from console.state.sanitize import sanitize
from console.tui.panes.bench import endpoint_spans, has_endpoint, infra_span, left, money, passed_text, total, work_text
from console.tui.picture import ENDED, Scene
from console.tui.text import Line, Span, clock, count, line

_PHASES = {"rollout": "RUNNING"}


def where(scene: Scene, wide: bool) -> Line:
    """Trials that ended, and the phase, or the end."""
    state, b = scene.state, scene.state.bench
    spans = [Span("trials "), Span(f"{b.done}/{total(scene) or '?'}", "bold")]
    if state.status in ENDED:
        return line(*spans, Span(f" {state.status}, exit {'--' if state.exit_code is None else state.exit_code}"))
    phase = _PHASES.get(state.phase, sanitize(state.phase, limit=12).upper())
    age = scene.now - state.phase_since if state.phase_since else None
    was = "was " if scene.dead else ""
    spans += [Span(f" {scene.marks.phase} {was}"), Span(phase, "title"), Span(f" {clock(age)}")]
    if state.phase_detail and wide:
        spans.append(Span(" " + sanitize(state.phase_detail, limit=30), "muted"))
    return line(*spans)


def eta(scene: Scene, wide: bool) -> Line:
    """Time left."""
    text = left_text(left(scene), bounds=wide)
    return line(f"left {text}") if text else ()


def plumbing_parts(scene: Scene, wide: bool) -> list[tuple[int, Line]]:
    """Endpoint, trials at work, passed, infrastructure, tokens and cost; the rank of a part that gives way first."""
    state, b = scene.state, scene.state.bench
    parts: list[tuple[int, Line]] = []
    if has_endpoint(scene):
        parts.append((0, line(Span("endpoint "), *endpoint_spans(scene), " ")))
    if state.status not in ENDED and not scene.dead:
        parts.append((0, line(Span("at work "), Span(work_text(scene, job=wide), "bold" if b.limit else "limit"))))
    passed = passed_text(benchmark.infra_excluded(state), interval=False)
    parts.append((1, line(Span("passed "), Span(passed, "bold"), Span(" infra-excluded" if wide else "", "muted"))))
    parts.append((2, line(Span("infra "), infra_span(scene))))
    parts.append((4, line(f"tokens {count(b.prompt_tokens + b.sampled_tokens)}")))
    if b.cost_usd is not None:
        parts.append((3, line(money(b.cost_usd))))
    first_rank, first = parts[0]
    return [(first_rank, line(" ", *first)), *parts[1:]]
