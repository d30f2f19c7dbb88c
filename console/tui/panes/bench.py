"""The pane of a benchmark: how far it is, what passed by which rule, infrastructure, tokens, time left, endpoint."""

from __future__ import annotations

from collections import Counter

from console.state import benchmark
from console.state.bench_words import left_text
from console.state.benchmark import Passed, TimeLeft
from console.state.sanitize import sanitize
from console.tui.glyphs import SIGNS, kind_of, sign_text
from console.tui.picture import ENDED, Scene
from console.tui.text import Line, Span, clock, count, fit, line, number, short_time, wrap

_LABEL = 9
_TALL, WIDE = 12, 100
"""Rows from which each figure has a line of its own."""
INFRA_LIMIT = 0.25
"""Share of infrastructure failures from which it is painted as trouble."""
EXCLUDED_RULE = "infra-excluded: agents' failures are 0, infrastructure is left out"
AWARE_RULE = "error-aware: every failure is 0, infrastructure too"


def bench_title(scene: Scene) -> tuple[str, str]:
    """Left and right part of the pane's title."""
    b = scene.state.bench
    name = sanitize(b.dataset.rstrip("/").rpartition("/")[2] or b.job_name, limit=30)
    return f"Benchmark  {name}" if name else "Benchmark", f"mop-up {b.mop_up}" if b.mop_up else ""


def bench_lines(scene: Scene, cells: int, rows: int) -> list[Line]:
    """At most `rows` lines: three that say most where there is little room, else one for each figure."""
    found = _tall(scene, cells) if rows >= _TALL or cells < 60 else _low(scene, cells)
    return [fit(one, cells) for one in found[:rows]]


def left(scene: Scene) -> TimeLeft | None:
    """Time left as of the scene."""
    return None if scene.dead else benchmark.seconds_left(scene.state, scene.now)


# --- figures in words ----------------------------------------


def total(scene: Scene) -> int:
    """Trials of the job, as far as they are known."""
    return max(scene.state.bench.trials, sum(len(g.trials) for g in scene.state.groups.values()))


def passed_text(passed: Passed, interval: bool = True) -> str:
    """12/33 36.4 %; with the interval in per cent where there is one."""
    if passed.value is None:
        return "--"
    tail = ""
    if interval and passed.low is not None and passed.high is not None:
        tail = f" [{100 * passed.low:.0f} {100 * passed.high:.0f}]"
    total = f"{passed.sum:g}" if passed.sum == int(passed.sum) else f"{passed.sum:.2f}"
    return f"{total}/{passed.of} {100 * passed.value:.1f} %{tail}"


def work_text(scene: Scene, job: bool = True) -> str:
    """Trials at work of those that may be; `job`: also how many the job asked for, when that is another number."""
    b, state = scene.state.bench, scene.state
    if scene.dead:
        return f"{benchmark.at_work(state)} when the engine died"
    limit = f"of {b.limit}" if b.limit else "none may begin" if state.bench.trials else ""
    if job and b.limit and b.concurrency and b.limit != b.concurrency:
        limit += f" (job {b.concurrency})"
    return f"{benchmark.at_work(state)} {limit}".rstrip()


def infra_span(scene: Scene) -> Span:
    """Infrastructure's share of the last tries."""
    failed, of = benchmark.infra_window(scene.state)
    if not of:
        return Span("--")
    crowded = of >= 8 and failed / of >= INFRA_LIMIT
    return Span(f"{failed} of the last {of}, {100 * failed / of:.0f} %", "infra" if crowded else "")


def money(cost: float | None) -> str:
    """US dollars; `--` when no trial tells them."""
    return "--" if cost is None else f"${cost:,.2f}" if cost < 1000 else f"${cost:,.0f}"


def has_endpoint(scene: Scene) -> bool:
    """Whether it is known where the model is."""
    return bool(scene.state.gateway_url or scene.state.gateway.probed)


def endpoint_spans(scene: Scene) -> list[Span]:
    """How the model's endpoint answers."""
    g = scene.state.gateway
    if not has_endpoint(scene):
        return [Span("not known", "muted")]
    if scene.dead or g.reachable is None:
        return [Span("unknown" if g.probed else "not asked yet", "muted")]
    if g.reachable is False:
        return [Span("DOWN", "alert"), Span(f" {clock(scene.now - g.since)}")]
    latency = "" if g.latency_ms is None else f" {short_time(g.latency_ms / 1000)}"
    return [Span("ok", "pass"), Span(latency)]


def _rate(scene: Scene) -> str:
    rate = None if scene.dead else benchmark.tokens_per_second(scene.state)
    return "" if not rate else f"{number(rate, 1) if rate < 100 else count(rate)}/s"


# --- two shapes ----------------------------------------


def _low(scene: Scene, cells: int) -> list[Line]:
    b, state = scene.state.bench, scene.state
    known = total(scene)
    share = b.done / known if known else 0.0
    size = max(6, min(40, cells - 68))
    first = line(
        Span(" done ", "muted"), Span(f"{b.done}/{known or '?'} ", "bold"), *_bar(scene, share, size),
        Span(f" {100 * share:.0f} %"), Span("  at work ", "muted"), Span(work_text(scene, job=False)),
        *([] if scene.dead else [Span("  left ", "muted"), Span(left_text(left(scene)) or "--")]),
    )  # fmt: skip
    excluded = benchmark.infra_excluded(state)
    second = line(
        Span(" passed ", "muted"), Span(passed_text(excluded), "bold"),
        Span(f" infra-excluded, {excluded.left_out} out", "muted"),
        Span("  "), Span(passed_text(benchmark.error_aware(state), interval=cells >= WIDE)),
        Span(" error-aware", "muted"),
    )  # fmt: skip
    rate = _rate(scene)
    third = line(
        Span(" infra ", "muted"), infra_span(scene),
        Span("  in ", "muted"), Span(count(b.prompt_tokens)), Span(" out ", "muted"), Span(count(b.sampled_tokens)),
        Span(f" {rate}" if rate else ""), Span(f"  {money(b.cost_usd)}" if b.cost_usd is not None else ""),
        *([Span("  endpoint ", "muted"), *endpoint_spans(scene)] if has_endpoint(scene) else []),
    )  # fmt: skip
    return [first, second, third, *_outcomes(scene, cells), *_limit(scene, cells)]


def _tall(scene: Scene, cells: int) -> list[Line]:
    b, state = scene.state.bench, scene.state
    known = total(scene)
    share = b.done / known if known else 0.0
    excluded, aware = benchmark.infra_excluded(state), benchmark.error_aware(state)
    rate, out = _rate(scene), []
    out += [
        _row("done", f"{b.done}/{known or '?'}  {100 * share:.0f} %", "bold"),
        line(" ", *_bar(scene, share, cells - 2)),
    ]
    if b.stood:
        out.append(_row("", f"{b.stood} stood from before", "muted"))
    if state.status not in ENDED:
        out.append(_row("at work", work_text(scene)))
        out += [] if scene.dead else [_row("left", left_text(left(scene)) or "--")]
    out += _row_with_rule("passed", passed_text(excluded), f"{EXCLUDED_RULE} ({excluded.left_out})", cells)
    out += _row_with_rule("", passed_text(aware), AWARE_RULE, cells)
    out.append(line(Span(f" {'infra':<{_LABEL}}", "muted"), infra_span(scene)))
    out += _outcomes(scene, cells)
    cached = f" (cached {count(b.cached_tokens)})" if b.cached_tokens else ""
    out += [
        _row("tokens", f"in {count(b.prompt_tokens)}{cached}"),
        _row("", f"out {count(b.sampled_tokens)}" + (f", {rate}" if rate else "")),
        _row("cost", money(b.cost_usd)),
        line(Span(f" {'endpoint':<{_LABEL}}", "muted"), *endpoint_spans(scene)),
    ]
    out += _said("", state.gateway_url or "", cells)
    out += _limit(scene, cells)
    h = state.host
    if h.disk_free is not None:
        out.append(_row("disk", f"{count(h.disk_free)}B free"))
    if state.sandboxes_live or state.sandboxes_left:
        gone = f", {len(state.sandboxes_left)} left behind" if state.sandboxes_left else ""
        out.append(_row("boxes", f"{state.sandboxes_live}{gone}"))
    for name, text in (
        ("agent", ", ".join(b.agents[:4])), ("model", ", ".join(b.models[:4]) or state.model), ("dataset", b.dataset),
        ("job", b.job_dir), ("harbor", b.harbor), ("mops up", b.parent),
    ):  # fmt: skip
        out += _said(name, text, cells)
    return out


def _row(name: str, text: str, role: str = "") -> Line:
    return line(Span(f" {name:<{_LABEL}}", "muted"), Span(text, role))


def _row_with_rule(name: str, text: str, rule: str, cells: int) -> list[Line]:
    return [_row(name, text, "bold"), *(_row("", plain[0].text, "muted") for plain in wrap(rule, cells - _LABEL - 2))]


def _said(name: str, text: str, cells: int) -> list[Line]:
    clean = sanitize(text, limit=200)
    rows = wrap(clean, max(10, cells - _LABEL - 2)) if clean else []
    return [_row(name if not at else "", part[0].text, "muted") for at, part in enumerate(rows[:3])]


def _limit(scene: Scene, cells: int) -> list[Line]:
    b = scene.state.bench
    if not b.why or (b.limit == b.concurrency and b.limited_by == "policy"):
        return []
    return _said("limit", f"{b.limit}, by {b.limited_by}: {b.why}", cells)


def _bar(scene: Scene, share: float, size: int) -> list[Span]:
    full = min(size, round(share * size))
    return [Span(scene.marks.full * full, "accent"), Span(scene.marks.light * (size - full), "muted")]


def _outcomes(scene: Scene, cells: int) -> list[Line]:
    """How many trials of each sign, in as few rows as they need."""
    found = Counter(kind_of(t, scene.now) for _, t in benchmark.trials(scene.state) if t.phase == "done")
    order = [kind for kind in SIGNS if kind in found]
    out: list[Line] = []
    each = max(1, (cells - _LABEL - 1) // 8)
    for at in range(0, len(order), each):
        spans = [Span(" " * (_LABEL + 1) if at else f" {'ended':<{_LABEL}}", "muted")]
        for kind in order[at : at + each]:
            spans += [Span(sign_text(kind, scene.ascii), SIGNS[kind].role), Span(f" {found[kind]:<6}")]
        out.append(tuple(spans))
    return out
