"""The first rows: is it live, where are we, is the plumbing healthy, and what is about to stop the run."""

from __future__ import annotations

import statistics
import time

from console.state.sanitize import sanitize
from console.tui import glyphs
from console.tui.panes.alarm import AS_ASKED
from console.tui.picture import Scene
from console.tui.text import Line, Span, clock, count, fit, line, number, short_time, width

_ENDED = {"finished": "FINISHED", "stopped": "STOPPED", "failed": "FAILED"}


def badge(scene: Scene) -> Span:
    """The mode, in the console's own judgement."""
    link, state = scene.link, scene.state
    if link.status == "replay":
        if not link.playing:
            return Span(" REPLAY paused ", "badge-replay")
        return Span(f" REPLAY {speed_text(link.speed)} ", "badge-replay")
    if state.status in _ENDED:
        role = "badge-quiet" if state.exit_code == 0 else "badge-dead" if state.status == "failed" else "badge-warn"
        return Span(f" {_ENDED[state.status]} ", role)
    match link.status:
        case "connecting":
            return Span(" CONNECTING ", "badge-quiet")
        case "stale":
            return Span(f" STALE {short_time(link.age)} ", "badge-warn")
        case "lost":
            return Span(f" LINK LOST {short_time(link.age)} ", "badge-dead")
        case "dead":
            return Span(" DEAD ", "badge-dead")
    if _stops_after_step(scene):
        return Span(" STOPPING AFTER STEP ", "badge-warn")
    if state.status == "stopping" or state.stop_requested:
        return Span(" STOPPING ", "badge-warn")
    return Span(" LIVE ", "badge-live")


def _stops_after_step(scene: Scene) -> bool:
    state = scene.state
    return scene.link.status == "ok" and state.status == "live" and state.stop_requested == "after_step"


def speed_text(speed: float) -> str:
    """4x, 0.25x, or max."""
    return "max" if speed <= 0 else f"{speed:g}x"


def header(scene: Scene, cells: int) -> Line:
    """Badge, run, step and phase, estimate, link, time of day."""
    state, link = scene.state, scene.link
    wide = cells >= 100
    longest = 40 if wide else 10 if _stops_after_step(scene) else 20
    name = sanitize(state.name or state.run_id or "no run yet", limit=longest)
    parts: list[list[Span]] = [[Span(" "), badge(scene), Span(f" {name} ", "bold")]]
    parts.append(_where(scene, wide))
    left = _eta(scene, wide)
    if left:
        parts.append([Span(left)])
    moment = time.strftime("%H:%M:%S" if wide else "%H:%M", time.localtime(scene.now)) if scene.now else "--:--"
    if link.status == "replay":
        parts += [[Span(moment)], [Span(f"{link.fraction:.0%}")]]
        return _columns(parts, scene, cells)
    if state.status not in _ENDED:
        parts.append([_link(scene)])
    elif wide and state.reason and state.exit_code in AS_ASKED:  # otherwise the alarm's row has it
        parts.append([Span(sanitize(state.reason, limit=60))])
    parts.append([Span(f"as of {moment}" if scene.dead else moment)])
    return _columns(parts, scene, cells)


def _where(scene: Scene, wide: bool) -> list[Span]:
    state = scene.state
    total = "?" if state.steps_planned is None else str(state.steps_planned)
    step = state.steps_done
    if state.status not in _ENDED and state.step is not None:
        step = max(step, state.step)
    spans = [Span("step "), Span(f"{step}/{total}", "bold")]
    if state.status in _ENDED:
        return [*spans, Span(f" {state.status}, exit {'--' if state.exit_code is None else state.exit_code}")]
    phase = sanitize(state.phase, limit=12).upper()
    spans += [Span(f" {scene.marks.phase} "), Span(phase, "title"), Span(f" {clock(_since(scene, state.phase_since))}")]
    if wide and state.phase == "rollout":
        usual = median([row.seconds_rollout for row in scene.view.history.rows[-20:]])
        if usual is not None:
            spans.append(Span(f" (p50 {short_time(usual)})", "muted"))
    if state.stop_requested and not scene.dead and not _stops_after_step(scene):
        spans.append(Span(" stops after step" if state.stop_requested == "after_step" else " stops now", "limit"))
    elif state.phase_detail and wide:
        spans.append(Span(" " + sanitize(state.phase_detail, limit=30), "muted"))
    return spans


def _since(scene: Scene, moment: float) -> float | None:
    return scene.now - moment if moment else None


def median(values: list[float | None]) -> float | None:
    """The median of the known values."""
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None


def _eta(scene: Scene, wide: bool) -> str:
    state = scene.state
    usual = median([row.seconds_total for row in scene.view.history.rows[-20:]])
    if usual is None or state.status in _ENDED or state.step_started is None or scene.dead:
        return ""
    done = state.steps_done > (state.step or 0)
    rest = 0.0 if done else max(0.0, usual - (scene.now - state.step_started))
    step = f"step {clock(rest)}"
    if state.steps_planned is None:
        return f"ETA {step}"
    later = 0 if state.stop_requested else max(0, state.steps_planned - (state.step or 0) - 1)
    run = f"run {short_time(rest + later * usual)}"
    return f"ETA {step} {run}" if wide else f"ETA {run}"


def _link(scene: Scene) -> Span:
    link = scene.link
    match link.status:
        case "ok" | "ended":
            return Span("link ok")
        case "connecting":
            return Span("link ...", "muted")
        case "stale":
            return Span(f"silent {short_time(link.age)}", "limit")
        case "dead":
            return Span("engine gone", "infra")
        case _:
            return Span("reconnecting", "infra")


def plumbing(scene: Scene, cells: int) -> Line:
    """Gateway, capture, sandboxes, checkpoint."""
    state, wide = scene.state, cells >= 100
    g, c = state.gateway, state.capture
    if g.reachable is None or scene.dead:
        gateway = [Span("gateway " if wide else "gw "), Span("unknown", "muted")]
    elif g.reachable:
        gateway = [Span("gateway " if wide else "gw "), Span("ok", "pass"), Span(_ms(g.latency_ms))]
        if g.queued is not None:
            gateway.append(Span(f" queue {g.queued}" if wide else f" q{g.queued}"))
    else:
        gateway = [
            Span("gateway " if wide else "gw "),
            Span("DOWN", "alert"),
            Span(f" {clock(_since(scene, g.since))}"),
        ]
    capture = [
        Span("capture " if wide else "cap "),
        Span("--" if scene.dead else count(c.sampled_per_second), "bold"),
        Span(" tok/s  " if wide else " tok/s "),
        *_bad_count("lost", c.lost),
        Span("  " if wide else " "),
        *_bad_count("no-logprob" if wide else "nolp", c.no_logprobs),
    ]
    boxes = [Span("sandboxes unknown" if scene.dead else f"sandboxes {state.sandboxes_live}")]
    if state.sandboxes_left:
        boxes += [Span(" "), Span(f"{len(state.sandboxes_left)} left", "limit")]
    parts = [[Span(" "), *gateway, Span(" ")], capture, boxes]
    if state.checkpoints:
        last = state.checkpoints[-1]
        age = clock(_since(scene, last.ts))
        text = (
            f"checkpoint {sanitize(last.name, limit=16)} {age} ago"
            if wide
            else f"ckpt {sanitize(last.name, limit=8)} {age}"
        )
        parts.append([Span(text)])
    return _columns(parts, scene, cells)


def _ms(latency: float | None) -> str:
    return "" if latency is None else f" {short_time(latency / 1000)}"


def _bad_count(name: str, value: int) -> list[Span]:
    return [Span(f"{name} "), Span(str(value), "alert" if value else "")]


def _columns(parts: list[list[Span]], scene: Scene, cells: int) -> Line:
    out: list[Span] = []
    for i, part in enumerate(parts):
        if i:
            gap = "" if out and out[-1].text.endswith(" ") else " "
            out += [Span(f"{gap}{scene.marks.separator} ", "rule")]
        if width(out) + width(part) > cells and i > 1:
            out.pop()
            break
        out += part
    return fit(out, cells)


def tiny(scene: Scene, cells: int, rows: int, need: tuple[int, int]) -> list[Line]:
    """What a terminal that is too small shows."""
    first = fit(line(f"terminal {cells}x{rows}, need {need[0]}x{need[1]}"), cells)
    return [first, fit(header(scene, max(cells, 60)), cells)][: max(rows, 0)]


def capture_pane(scene: Scene, cells: int, rows: int) -> list[Line]:
    """The wide screen's pane of gateway and capture: readings with their recent past."""
    state = scene.state
    g, c = state.gateway, state.capture
    size = max(6, cells - 20)

    def row(name: str, value: str, series: list[float | None], high: float | None = None) -> Line:
        spark = glyphs.spark(series, size, scene.ascii, low=0.0, high=high)
        return line(Span(f" {name:<8}", "muted"), Span(f"{value:>8}  "), Span(spark, "accent"))

    trends = scene.trends
    lines = [
        row("rtt", "--" if g.latency_ms is None else short_time(g.latency_ms / 1000), list(trends.latency)),
        row("queue", "--" if g.queued is None else str(g.queued), list(trends.queued)),
        row("tok/s", count(c.sampled_per_second), list(trends.sampled)),
        line(
            Span(" sampled ", "muted"),
            Span(f"{count(c.sampled_tokens):>8}"),
            Span("  prompt ", "muted"),
            Span(count(c.prompt_tokens)),
        ),
        line(
            Span(" calls   ", "muted"),
            Span(f"{count(c.calls):>8}"),
            Span("  failed ", "muted"),
            Span(str(c.failed), "limit" if c.failed else ""),
            Span("  open ", "muted"),
            Span(str(c.inflight)),
        ),
        line(Span(" kv      ", "muted"), Span(f"{'--' if g.kv_fraction is None else number(g.kv_fraction, 2):>8}")),
    ]
    return lines[:rows]
