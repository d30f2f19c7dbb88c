"""The row under the header: what is about to stop the run, or why it has ended. Not there when there is neither."""

from __future__ import annotations

from console.state.sanitize import sanitize
from console.tui.picture import ENDED, Scene, held_trials
from console.tui.text import Line, Span, clock, fit, line, spread, width, wrap

WIDE = 100
REASON_ROWS = 3
AS_ASKED = (None, 0, 3)
"""Exit codes of a run that goes on, completed, or was stopped by the operator: nothing to alarm about."""


def alarm(scene: Scene, cells: int, rows: int = REASON_ROWS) -> list[Line]:
    """The most urgent alarm in one row, or the reason of a run that did not complete in up to `rows`.

    Alarms that the engine derives from held trials (key `held.…`) are told from the trials themselves, with the
    time that is left; they count once a group.
    """
    state = scene.state
    if state.status in ENDED:
        return _reason(scene, cells, rows) if state.exit_code not in AS_ASKED and state.reason else []
    if scene.dead:  # whatever was open then, this is the one that counts now
        text = "the engine is gone: quarterdeck train with the same options resumes"
        return [_row(1, f"{text} from the last checkpoint" if cells >= WIDE else text, cells)]
    held = held_trials(state)
    others = [a for a in state.alarms.values() if not (held and a.key.startswith("held."))]
    others.sort(key=lambda a: (a.level != "critical", a.since))
    total = len({group.group for group, _ in held}) + len(others)
    if held:
        return [_held(scene, cells, total)]
    if others:
        first = others[0]
        remedy = f" {scene.marks.dash} {sanitize(first.remedy, limit=200)}" if first.remedy else ""
        return [_row(total, f"{sanitize(first.text, limit=200)}{remedy}", cells)]
    if state.gateway.reachable is False:
        g = state.gateway
        return [
            _row(1, f"gateway unreachable for {clock(scene.now - g.since)}: {sanitize(g.detail, limit=120)}", cells)
        ]
    return []


def _row(total: int, text: str, cells: int) -> Line:
    return fit(line(*_count(total), Span(f" {text}", "bold")), cells)


def _count(total: int) -> list[Span]:
    return [Span(" "), Span(f" {total} alarm{'' if total == 1 else 's'} ", "alert")]


def _held(scene: Scene, cells: int, total: int) -> Line:
    """Which trial waits, and for how long yet; the name of its failure gives way to the countdown and the keys."""
    held = held_trials(scene.state)
    group, trial = held[0]
    wide = cells >= WIDE
    hint: list[Span] = []
    if scene.link.status != "replay":
        if any(t.retryable for _, t in held):
            hint += [Span(" r", "key"), Span(" retry ")]
        hint += [Span(" x", "key"), Span(" cancel group " if wide else " cancel ")]
    left = clock(None if trial.hold_deadline is None else trial.hold_deadline - scene.now)
    more = "" if len(held) == 1 else f" and {len(held) - 1} more" if wide else f" +{len(held) - 1}"
    head = [*_count(total), Span(f" g{group.group + 1}/t{trial.trial + 1} ", "bold")]
    tail = Span(f"{more} held: {'the run stops' if wide else 'stops'} in {left}", "bold")
    room = max(6, cells - 1 - width(head) - width([tail]) - width(hint))
    what = Span(sanitize(trial.exception or trial.cause or "failure", limit=min(room, 40)), "bold")
    return spread((*head, what, tail), tuple(hint), cells)


def _reason(scene: Scene, cells: int, limit: int) -> list[Line]:
    state = scene.state
    mark = Span(" ! ", "alert" if state.status == "failed" else "badge-warn")
    rows = wrap(sanitize(state.reason, limit=1000), cells - 6)
    if len(rows) > limit:
        rest = line(*rows[limit - 1], *(Span(f" {span.text}") for row in rows[limit:] for span in row))
        rows = [*rows[: limit - 1], fit(rest, cells - 6)]
    return [
        fit(line(Span(" "), mark if i == 0 else Span("   "), " ", *(Span(s.text, "bold") for s in row)), cells)
        for i, row in enumerate(rows)
    ]
