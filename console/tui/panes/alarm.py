"""The rows under the header: what is about to stop the run, or why it has ended. Not there when there is neither."""

from __future__ import annotations

from dataclasses import dataclass

from console.state.model import AlarmState, GroupState, TrialState
from console.state.sanitize import sanitize
from console.tui.actions import BY_ID
from console.tui.picture import ENDED, Scene, asking, held_trials
from console.tui.spots import named
from console.tui.text import Line, Span, clock, fit, line, spread, width, wrap

WIDE = 100
REASON_ROWS = 3
_BOTH_KEYS = 72
_ROOMY = 7
_KEYS_WITHIN = 140
"""The keys stand at the right, but not further away than this."""
"""Rows from which two alarms are shown, when two ask."""
AS_ASKED = (None, 0, 3)
"""Exit codes of a run that goes on, completed, or was stopped by the operator: nothing to alarm about."""
_ON_SELECTION = ("cancel_group", "cancel_trial", "retry", "quarantine")
"""Orders that are about what is selected."""


@dataclass(frozen=True)
class _Asks:
    """One thing that asks for the operator: held trials of a group, or an alarm."""

    held: tuple[tuple[GroupState, TrialState], ...] = ()
    alarm: AlarmState | None = None


def alarm(scene: Scene, cells: int, rows: int = REASON_ROWS) -> list[Line]:
    """The most urgent alarm in one row (two, where `rows` are many), or the reason of a run that did not complete.

    Alarms of held trials (key `held.…`) are told from the trials themselves, with the time that is left. What was
    acknowledged or shelved takes no row. A critical alarm that is over and was not acknowledged is told, dimmed.
    """
    state = scene.state
    if state.status in ENDED:
        return _reason(scene, cells, rows) if state.exit_code not in AS_ASKED and state.reason else []
    if scene.dead:  # whatever was open then, this is the one that counts now
        text = "quarterdeck train with the same options resumes"
        if scene.bench:
            text = "quarterdeck bench run JOB --continue goes on with the job: what has ended stands"
            return _told_why(f"{scene.link.detail or 'the engine is gone'}; {text}", Span(" ! ", "alert"), cells, rows)
        if scene.link.detail:
            return _told_why(f"{scene.link.detail}; {text} it", Span(" ! ", "alert"), cells, rows)
        text = f"the engine is gone: {text}"
        return [_row(1, f"{text} from the last checkpoint" if cells >= WIDE else text, cells)]
    found = _urgent(scene)
    if found:
        shown = found[: 2 if rows >= _ROOMY else 1]
        untold = len(held_trials(state))  # what the last row about held trials has to count
        out = []
        for i, one in enumerate(shown):
            last = not any(later.held for later in shown[i + 1 :])
            out.append(_told(scene, one, len(found) if i == 0 else 0, untold if last else len(one.held), cells))
            untold -= len(one.held)
        return out
    g = state.gateway
    if g.reachable is False and "gateway.unreachable" not in state.alarms:
        what = "model endpoint" if scene.bench else "gateway"
        text = f"{what} unreachable for {clock(scene.now - g.since)}: {sanitize(g.detail, limit=120)}"
        return [_row(1, text, cells)]
    over = [a for a in state.alarms.values() if not a.open and a.asks(scene.now)]
    return [_over(scene, over, cells)] if over else []


def _urgent(scene: Scene) -> list[_Asks]:
    """Held groups, the one with the least time left first; then the alarms, critical and old ones first."""
    state = scene.state
    held = held_trials(state)
    found: list[_Asks] = []
    for number in dict.fromkeys(group.group for group, _ in held):
        known = state.alarms.get(f"held.g{number + 1}")
        if known is None or known.asks(scene.now):
            found.append(_Asks(held=tuple(pair for pair in held if pair[0].group == number)))
    return found + [_Asks(alarm=a) for a in asking(state, scene.now) if not (held and a.key.startswith("held."))]


def _told(scene: Scene, one: _Asks, total: int, waiting: int, cells: int) -> Line:
    if one.alarm is None:
        return _held(scene, one.held, total, waiting, cells)
    a = one.alarm
    text = sanitize(a.text, limit=200)
    after = sanitize(a.consequence, limit=200) or ("" if a.action in BY_ID else sanitize(a.remedy, limit=200))
    hint = _hints(scene, a, cells)
    head = _count(total)
    room = cells - width(head) - width(hint) - 1
    body = [Span(f" {text}", "bold")]
    if after and room - width(body) > 12:
        body.append(Span(f" {scene.marks.dash} {after}"))
    return _with_keys((*head, *fit(body, min(room, width(body)))), hint, cells)


def _with_keys(text: Line, keys: Line, cells: int) -> Line:
    """The text, and at the right the keys; on very wide screens not far from it."""
    return fit(spread(text, keys, min(cells, max(_KEYS_WITHIN, width(text) + width(keys) + 1))), cells)


def _hints(scene: Scene, a: AlarmState, cells: int) -> Line:
    """The key that helps; without one, or where there is room, also the one that says that it was seen."""
    group, trial = named(a.key, scene.state.groups)
    if a.action in _ON_SELECTION and not _acts_on(scene, a.action, group, trial):
        helps = _goes_there(scene) if group is not None else ()
    else:
        helps = _hint(scene, a.action) if a.action != "ack" else ()
    return (*helps, *_hint(scene, "ack")) if cells >= WIDE or not helps else helps


def _acts_on(scene: Scene, action_id: str, group: int | None, trial: int | None) -> bool:
    """Whether the key of an action on the selection would act on this group, and on this trial where it is named."""
    chosen = scene.selection
    if scene.page not in BY_ID[action_id].pages or scene.group is None or scene.group.group != group:
        return False
    if action_id == "cancel_group":
        return chosen.marked <= {group}
    of_trial = action_id == "cancel_trial" or (action_id == "retry" and chosen.focus == "trials")
    return not of_trial or trial is None or chosen.trial == trial


def _goes_there(scene: Scene) -> Line:
    if not scene.key("next_alarm") or scene.link.status == "replay":
        return ()
    return line(Span(f" {scene.key('next_alarm')}", "key"), Span(" goes there "))


def _hint(scene: Scene, action_id: str) -> Line:
    """The key of an action with its name, as far as there is one here."""
    action, key = BY_ID.get(action_id), scene.key(action_id)
    if action is None or not key or scene.link.status == "replay":
        return ()
    return line(Span(f" {key}", "key"), Span(f" {action.label or action.id.replace('_', ' ')} "))


def _row(total: int, text: str, cells: int) -> Line:
    return fit(line(*_count(total), Span(f" {text}", "bold")), cells)


def _count(total: int) -> list[Span]:
    """How many ask; the rows below the first have the same room in front."""
    if total == 0:
        return [Span(" " * 10)]
    return [Span(" "), Span(f" {total} alarm{'' if total == 1 else 's'} ", "alert")]


def _held(scene: Scene, held: tuple[tuple[GroupState, TrialState], ...], total: int, waiting: int, cells: int) -> Line:
    """Which trial waits, and for how long yet; the name of its failure gives way to the countdown and the keys.

    `waiting`: held trials in all that this row tells of.
    """
    group, trial = held[0]
    wide = cells >= WIDE
    hint: list[Span] = []
    if scene.link.status != "replay":
        tried = [t for _, t in held if scene.selection.focus != "trials" or t is scene.trial]
        if any(t.retryable for t in tried) and _acts_on(scene, "retry", group.group, None):
            hint += [Span(f" {scene.key('retry')}", "key"), Span(" retry ")]
        if not _acts_on(scene, "cancel_group", group.group, None):
            hint = [*_goes_there(scene)]
        elif cells >= _BOTH_KEYS or not hint:
            hint += [Span(f" {scene.key('cancel_group')}", "key"), Span(" cancel group " if wide else " cancel ")]
        hint += _hint(scene, "ack") if wide else ()
    left = clock(None if trial.hold_deadline is None else trial.hold_deadline - scene.now)
    more = "" if waiting < 2 else f" and {waiting - 1} more" if wide else f" +{waiting - 1}"
    head = [*_count(total), Span(f" g{group.group + 1}/t{trial.trial + 1} ", "bold")]
    tail = Span(f"{more} held: {'the run stops' if wide else 'stops'} in {left}", "bold")
    room = max(6, cells - 1 - width(head) - width([tail]) - width(hint))
    what = Span(sanitize(trial.exception or trial.cause or "failure", limit=min(room, 40)), "bold")
    return _with_keys((*head, what, tail), tuple(hint), cells)


def _over(scene: Scene, over: list[AlarmState], cells: int) -> Line:
    """The last critical alarm that is over, so that nobody misses that it was."""
    last = max(over, key=lambda a: a.cleared or 0.0)
    ago = clock(scene.now - (last.cleared or scene.now))
    more = f" and {len(over) - 1} more" if len(over) > 1 else ""
    hint = _hint(scene, "ack")
    room = cells - width(hint) - 1
    text = f" was: {sanitize(last.text, limit=200)}{more}, over for {ago}"
    return _with_keys(fit((Span(text, "muted"),), min(width([Span(text)]), room)), hint, cells)


def _reason(scene: Scene, cells: int, limit: int) -> list[Line]:
    mark = Span(" ! ", "alert" if scene.state.status == "failed" else "badge-warn")
    return _told_why(scene.state.reason, mark, cells, limit)


def _told_why(text: str, mark: Span, cells: int, limit: int) -> list[Line]:
    rows = wrap(sanitize(text, limit=1000), cells - 6)
    if len(rows) > limit:
        rest = line(*rows[limit - 1], *(Span(f" {span.text}") for row in rows[limit:] for span in row))
        rows = [*rows[: limit - 1], fit(rest, cells - 6)]
    return [
        fit(line(Span(" "), mark if i == 0 else Span("   "), " ", *(Span(s.text, "bold") for s in row)), cells)
        for i, row in enumerate(rows)
    ]
