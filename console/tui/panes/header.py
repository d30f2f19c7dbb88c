"""The first rows: is it live, where are we, is the plumbing healthy, and what is about to stop the run."""

from __future__ import annotations

import statistics
import time
from itertools import islice

from console.journal.events import StepFinished
from console.state.gateway_words import troubles
from console.state.model import RunState
from console.state.sanitize import sanitize
from console.tui.panes import bench_head
from console.tui.panes.alarm import AS_ASKED
from console.tui.picture import Scene
from console.tui.text import Line, Span, cell, clock, count, fit, line, short_time, width

WIDE, BROAD = 100, 160
SILENT = 120.0
"""Seconds without progress from which the header says so."""
_ENOUGH = 5
_ENDED = {"finished": "FINISHED", "stopped": "STOPPED", "failed": "FAILED"}


def badges(scene: Scene) -> list[Span]:
    """The mode, in the console's own judgement; and, beside it, that no new trials begin."""
    out = [badge(scene)]
    if scene.state.paused and scene.state.status not in _ENDED and not scene.dead:
        pause = Span(" PAUSED ", "badge-warn")
        out = [pause] if out[0].text == " LIVE " else [*out, Span(" "), pause]
    return out


def badge(scene: Scene) -> Span:
    """The mode, without a pause."""
    link, state = scene.link, scene.state
    if scene.frozen:
        return Span(f" FROZEN {clock(scene.held)} ", "badge-replay")
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
        return Span(" LETS END " if scene.bench else " STOPPING AFTER STEP ", "badge-warn")
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
    """Badge, run, step and phase, estimate, alarms, watch, link, time of day; the last ones of this list go first."""
    state, link = scene.state, scene.link
    wide = cells >= WIDE
    mode = badges(scene)
    longest = 40 if wide else 10 if len(mode) > 1 or _stops_after_step(scene) else 20
    name = sanitize(state.name or state.run_id or "no run yet", limit=longest)
    parts: list[tuple[int, Line]] = [(0, line(" ", *mode, Span(f" {name} ", "bold"))), (0, _where(scene, wide))]
    running = state.status not in _ENDED
    if running:
        parts += [
            (3, _eta(scene, wide)),
            (2, _silent(scene)),
            (4 if wide else 7, _alarms(scene, wide)),
            (5, _watch(scene)),
        ]
    elif wide and state.reason and state.exit_code in AS_ASKED:  # otherwise the alarm's row has it
        parts.append((4, line(sanitize(state.reason, limit=60))))
    moment = "--:--"
    if scene.now:
        form = "%Y-%m-%d %H:%M:%S" if cells >= BROAD else "%H:%M:%S" if wide else "%H:%M"
        moment = time.strftime(form, time.localtime(scene.now))
    if link.status == "replay":
        far = f"{link.fraction:.0%}" if link.behind is None else f"{short_time(link.behind)} behind the run"
        parts += [(1, line(moment)), (1, line(far))]
    else:
        trouble = link.status not in ("ok", "ended")
        parts += [(1 if trouble else 8, line(_link(scene)))] if running else []
        parts.append((6, line(f"as of {moment}" if scene.dead else moment)))
    return _columns(parts, scene, cells)


def _where(scene: Scene, wide: bool) -> Line:
    if scene.bench:
        return bench_head.where(scene, wide)
    state = scene.state
    total = "?" if state.steps_planned is None else str(state.steps_planned)
    step = state.steps_done
    if state.status not in _ENDED and state.step is not None:
        step = max(step, state.step)
    spans = [Span("step "), Span(f"{step}/{total}", "bold")]
    if state.status in _ENDED:
        return line(*spans, Span(f" {state.status}, exit {'--' if state.exit_code is None else state.exit_code}"))
    age, usual = _since(scene, state.phase_since), _usual(scene)
    late = age is not None and usual is not None and age > 2 * usual and not scene.dead
    phase = sanitize(state.phase, limit=12).upper()
    if state.replaying:
        spans.append(Span(" applied again" if wide else " again", "limit"))
    spans += [Span(f" {scene.marks.phase} "), Span(phase, "title"), Span(f" {clock(age)}", "limit" if late else "")]
    if wide and usual is not None:
        spans.append(Span(f" (p50 {short_time(usual)})", "muted"))
    if state.stop_requested and not scene.dead and not _stops_after_step(scene):
        spans.append(Span(" stops after step" if state.stop_requested == "after_step" else " stops now", "limit"))
    elif state.phase_detail and wide:
        spans.append(Span(" " + sanitize(state.phase_detail, limit=30), "muted"))
    return line(*spans)


def _usual(scene: Scene) -> float | None:
    """How long the phase usually takes: the median of the last steps."""
    rows = _own(scene)
    match scene.state.phase:
        case "rollout":
            return median([row.seconds_rollout for row in rows])
        case "training":
            return median([row.seconds_train for row in rows])
        case "saving":
            return median([row.seconds_save for row in rows])
    return None


def _own(scene: Scene) -> list[StepFinished]:
    """The last steps but those that were applied again: those had no rollout, so that their times are not usual."""
    own = (row for row in reversed(scene.view.history.rows) if not (row.replayed or row.recovered))
    return list(islice(own, 20))


def _since(scene: Scene, moment: float) -> float | None:
    return scene.now - moment if moment else None


def median(values: list[float | None]) -> float | None:
    """The median of the known values."""
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None


def _eta(scene: Scene, wide: bool) -> Line:
    if scene.bench:
        return bench_head.eta(scene, wide)
    state = scene.state
    usual = median([row.seconds_total for row in _own(scene)])
    if usual is None or state.step_started is None or scene.dead:
        return ()
    done = state.steps_done > (state.step or 0)
    rest = 0.0 if done else max(0.0, usual - (scene.now - state.step_started))
    step = f"step {clock(rest)}"
    if state.steps_planned is None:
        return line(f"ETA {step}")
    later = 0 if state.stop_requested else max(0, state.steps_planned - (state.step or 0) - 1)
    run = f"run {short_time(rest + later * usual)}"
    return line(f"ETA {step} {run}" if wide else f"ETA {run}")


def _silent(scene: Scene) -> Line:
    """How long the run has not moved, once that is long, and as far as the link lets us know."""
    state = scene.state
    quiet = scene.now - state.progress if state.progress else 0.0
    limit = _threshold(state, "progress_seconds", SILENT)
    if quiet < min(SILENT, limit) or state.paused or scene.link.status not in ("ok", "stale", "replay"):
        return ()
    return line(Span(f"no progress {short_time(quiet)}", "limit" if quiet < limit else "alert"))


def _alarms(scene: Scene, wide: bool) -> Line:
    """How many alarms there are of each sort; the row beneath tells the first one that asks, and how many do."""
    found = [a for a in scene.state.alarms.values() if a.open]
    shelved = sum(a.shelved_until > scene.now for a in found)
    acked = sum(bool(a.acked_by) and a.shelved_until <= scene.now for a in found)
    asks = len(found) - shelved - acked
    over = sum(not a.open and a.asks(scene.now) for a in scene.state.alarms.values())
    if not (acked or shelved or over):
        return ()
    parts = [f"{asks} alarm{'' if asks == 1 else 's'}"] * bool(asks and wide)
    parts += [f"{n} {word}" for n, word in ((acked, "acked"), (shelved, "shelved"), (over, "over")) if n]
    return line(Span(" ".join(parts), "limit" if asks or over else "muted")) if parts else ()


def _watch(scene: Scene) -> Line:
    """Who may act, when that is not plain: several look, or somebody else has the watch."""
    viewers = scene.presence
    holder = next((v for v in viewers if v.acts), None)
    if len(viewers) < 2 and (holder is None or holder.you):
        return ()
    if holder is None:
        return line(Span("watch: nobody", "muted"))
    if holder.you:
        return line(Span("watch: you", "pass"), Span(f" of {len(viewers)}", "muted"))
    user, _, rest = holder.author.partition("@")
    place = rest.partition(":")[2]
    same = sum(v.author.partition("@")[0] == user for v in viewers) > 1  # then where it is tells them apart
    name = sanitize(f"{user}:{place}" if same and place else user or holder.author, limit=16)
    return line(Span(f"watch: {name}", "limit"))


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
    """Gateway, capture, sandboxes, budgets, disk, checkpoint."""
    state, wide = scene.state, cells >= WIDE
    if scene.bench:
        low = disk_is_low(state)
        parts = [*bench_head.plumbing_parts(scene, wide), (1 if low else 6, _disk(state, low))]
        return _columns(parts, scene, cells)
    c = state.capture
    capture = line(
        Span("capture " if wide else "cap "),
        Span("--" if scene.dead else count(c.sampled_per_second), "bold"),
        Span(" tok/s  " if wide else " tok/s "),
        *_bad_count("lost", c.lost),
        Span("  " if wide else " "),
        *_bad_count("no-logprob" if wide else "nolp", c.no_logprobs),
    )
    boxes = [Span("sandboxes unknown" if scene.dead else f"sandboxes {state.sandboxes_live}")]
    for number, word in ((len(state.sandboxes_left), "left"), (len(state.sandboxes.orphaned), "orphaned")):
        if number:
            boxes += [Span(", "), Span(f"{number} {word}", "limit")]
    if state.sandboxes.cost is not None and cells >= BROAD:
        boxes.append(Span(f" {dollars(state.sandboxes.cost)}", "muted"))
    low = disk_is_low(state)
    unused = bool(state.sandboxes_left or state.sandboxes.orphaned)
    parts = [(0, line(" ", *_gateway(scene, wide), " ")), (0, capture), (1 if unused else 4, tuple(boxes))]
    parts.append((1 if low else 6, _disk(state, low) if low or cells >= BROAD else ()))
    parts += [(2, one) for one in _budgets(scene)]
    if state.quarantined and cells >= BROAD:
        parts.append((7, line(Span(f"quarantined {len(state.quarantined)}", "limit"))))
    if state.checkpoints:
        last = state.checkpoints[-1]
        age = clock(_since(scene, last.ts))
        name = sanitize(last.name, limit=16 if wide else 8)
        parts.append((5, line(f"checkpoint {name} {age} ago" if wide else f"ckpt {name} {age}")))
    return _columns(parts, scene, cells)


def _gateway(scene: Scene, wide: bool) -> list[Span]:
    g = scene.state.gateway
    name = Span("gateway " if wide else "gw ")
    if scene.dead:
        return [name, Span("unknown", "muted")]
    if g.reachable is False:
        return [name, Span("DOWN", "alert"), Span(f" {clock(_since(scene, g.since))}")]
    held_up = troubles(scene.state, scene.now)
    if g.waiting and held_up:
        return [name, Span(cell(held_up[0].text, 60).rstrip() if wide else held_up[0].short, "limit")]
    if g.reachable is None:
        return [name, Span("unknown", "muted")]
    if held_up:
        return [name, Span(cell(held_up[0].text, 44).rstrip() if wide else held_up[0].short, "limit")]
    out = [name, Span("ok", "pass"), Span(_ms(g.latency_ms))]
    if wide and len(g.latencies) >= _ENOUGH:
        out.append(Span(f" p95{_ms(percentile(g.latencies, 0.95))}", "muted"))
    if g.queued is not None:
        out.append(Span(f" queue {g.queued}" if wide else f" q{g.queued}"))
    return out


def dollars(cost: float) -> str:
    """An estimate of cost in USD."""
    return f"${cost:,.2f}" if cost < 1000 else f"${cost:,.0f}"


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of the values lie, one of them."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def _ms(latency: float | None) -> str:
    return "" if latency is None else f" {short_time(latency / 1000)}"


def _bad_count(name: str, value: int) -> list[Span]:
    return [Span(f"{name} "), Span(str(value), "alert" if value else "")]


def _budgets(scene: Scene) -> list[Line]:
    """What is used of the budgets that are set."""
    state = scene.state
    out: list[Line] = []
    warn = _threshold(state, "budget_share", 0.8)
    tokens = state.tunables.get("token_budget")
    if tokens:
        used = state.capture.prompt_tokens + state.capture.sampled_tokens
        out.append(_budget("tokens", count(used), count(tokens), used / tokens, warn))
    seconds = state.tunables.get("time_budget")
    if seconds and state.started and state.engines == 1:  # when a later engine began is not in the state
        used_time = scene.now - state.started
        out.append(_budget("time", short_time(used_time), short_time(seconds), used_time / seconds, warn))
    return out


def _budget(name: str, used: str, limit: str, share: float, warn: float) -> Line:
    return line(f"{name} ", Span(f"{used}/{limit}", "alert" if share >= 1 else "limit" if share >= warn else ""))


def _threshold(state: RunState, name: str, default: float) -> float:
    return state.thresholds.get(name, default)


def disk_is_low(state: RunState) -> bool:
    """Whether the disk of the run directory has less room than the alarms want."""
    free, total = state.host.disk_free, state.host.disk_total
    if free is None or free >= _threshold(state, "disk_plenty_gb", 100.0) * 1e9:
        return False
    if free < _threshold(state, "disk_free_gb", 5.0) * 1e9:
        return True
    return bool(total) and free / (total or 1) < _threshold(state, "disk_free_share", 0.1)


def _disk(state: RunState, low: bool) -> Line:
    free = state.host.disk_free
    return () if free is None else line("disk ", Span(f"{count(free)}B free", "limit" if low else "muted"))


def _columns(parts: list[tuple[int, Line]], scene: Scene, cells: int) -> Line:
    """The parts in their order between bars; while they do not fit, the one with the highest rank goes."""
    kept = [(rank, one) for rank, one in parts if one]
    while True:
        out: list[Span] = []
        for i, (_, one) in enumerate(kept):
            if i:
                gap = "" if out[-1].text.endswith(" ") else " "
                out += [Span(f"{gap}{scene.marks.separator} ", "rule")]
            out += one
        worst = max((rank for rank, _ in kept), default=0)
        if width(out) <= cells or worst == 0:
            return fit(out, cells)
        last = max(i for i, (rank, _) in enumerate(kept) if rank == worst)
        del kept[last]


def tiny(scene: Scene, cells: int, rows: int, need: tuple[int, int]) -> list[Line]:
    """What a terminal that is too small shows."""
    first = fit(line(f"terminal {cells}x{rows}, need {need[0]}x{need[1]}"), cells)
    return [first, fit(header(scene, max(cells, 60)), cells)][: max(rows, 0)]
