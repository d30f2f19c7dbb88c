"""The two texts that are read in a box: the help, made from the registry, and a trial, made from the state."""

from __future__ import annotations

from console.outcomes.classes import SCORED
from console.state.lines import trial_name
from console.state.sanitize import sanitize
from console.tui.glyphs import SIGNS, kind_of, sign_text
from console.tui.picture import Scene
from console.tui.text import Line, Span, cell, clock, count, line, number, short_time, wrap

_TEXT_ROWS = 12


def help_text(entries: list[tuple[str, str]], ascii_only: bool, cells: int) -> list[Line]:
    """Keys and what they do, then the signs of the strips."""
    out: list[Line] = [line(Span("Keys", "title"))]
    for key, text in entries:
        head, *rest = wrap(text, cells - 12)
        out.append(line(Span(f"{key:<11} ", "key"), *head))
        out += [line(" " * 12, *more) for more in rest]
    out += [(), line(Span("Signs of the trials", "title"))]
    signs = [(kind, sign) for kind, sign in SIGNS.items() if kind not in ("ambiguous", "unreadable")]
    columns = 2 if cells >= 72 else 1
    rows = -(-len(signs) // columns)
    for y in range(rows):
        parts: list[Span] = []
        for kind, sign in signs[y::rows]:
            parts += [
                Span(f" {sign_text(kind, ascii_only)} ", sign.role),
                Span(" " + cell(sign.meaning, cells // columns - 5)),
            ]
        out.append(tuple(parts))
    return out


def trial_title(scene: Scene) -> str:
    """Which trial it is."""
    if scene.group is None or scene.trial is None:
        return "Trial"
    return f"{trial_name(scene.group.group, scene.trial.trial)} {cell(scene.group.task, 40).strip()}"


def trial_text(scene: Scene, cells: int) -> list[Line]:
    """Outcome, cause, rule and evidence, times and tokens of the selected trial."""
    trial = scene.trial
    if trial is None:
        return [line("the trial is gone: its step has ended")]
    kind = kind_of(trial, scene.now)
    sign = SIGNS[kind]

    def row(name: str, value: str, role: str = "") -> Line:
        return line(Span(f"{name:<10}", "muted"), Span(value, role))

    out = [line(Span(sign_text(kind, scene.ascii), sign.role), f" {sign.meaning}"), ()]
    out.append(row("phase", f"{trial.phase}, {clock(scene.now - trial.phase_since)}"))
    out.append(row("try", str(trial.try_ + 1)))
    if trial.outcome is not None:
        cause = f", {trial.cause.replace('_', ' ')}" if trial.cause else ""
        out.append(row("outcome", sanitize(trial.outcome.replace("_", " ") + cause, limit=cells), "bold"))
        reward = number(trial.reward) if trial.outcome in SCORED else "none: not scored"
        out.append(row("reward", reward))
        if trial.outcome not in SCORED:
            out.append(row("retryable", "yes" if trial.retryable else "no"))
    if trial.hold_deadline is not None:
        out.append(
            row(
                "held",
                f"the run stops in {clock(trial.hold_deadline - scene.now)} unless it is retried or cancelled",
                "infra",
            )
        )
    if trial.exception:
        out.append(row("exception", sanitize(trial.exception, limit=cells)))
    if trial.rule:
        out.append(row("rule", sanitize(trial.rule, limit=cells)))
    out.append(row("turns", str(trial.turns)))
    out.append(row("tokens", f"prompt {count(trial.prompt_tokens)}, sampled {count(trial.sampled_tokens)}"))
    if trial.started is not None:
        ended = trial.finished if trial.finished is not None and trial.phase in ("done", "held") else scene.now
        out.append(row("time", clock(ended - trial.started)))
    if trial.seconds:
        parts = [f"{sanitize(k, limit=20)} {short_time(v)}" for k, v in trial.seconds.items()]
        out += _labelled("seconds", ", ".join(parts), cells)
    if trial.trial_dir:
        out += _labelled("files", sanitize(trial.trial_dir, limit=1000), cells)
    if trial.evidence:
        out += [(), line(Span("Evidence", "title"))]
        out += wrap(sanitize(trial.evidence, keep_newlines=True), cells)[:_TEXT_ROWS]
    return out


def _labelled(name: str, text: str, cells: int) -> list[Line]:
    head, *rest = wrap(text, cells - 10)
    return [line(Span(f"{name:<10}", "muted"), *head), *(line(" " * 10, *more) for more in rest)]
