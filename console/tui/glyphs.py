"""One vocabulary of signs: what each trial looks like in a strip, in Unicode and in ASCII, and which role colours it.

Colour never carries the meaning alone. Zero is data, not an error; healthy is blue, never green against red.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from console.state.model import TrialState

STALLED_AFTER = 300.0
"""Seconds without a model call or a change of phase after which a trial counts as stalled."""

_BUILDING = frozenset({"create", "environment", "setup"})
_BLOCKS = " ▁▂▃▄▅▆▇"
_ASCII_BLOCKS = " ._-=+*#"


class Sign(NamedTuple):
    """A sign of the strip: its two spellings, its role, and what the help says of it."""

    unicode: str
    ascii: str
    role: str
    meaning: str


SIGNS: dict[str, Sign] = {
    "queued": Sign("·", ".", "muted", "queued"),
    "building": Sign("b", "b", "muted", "environment or agent being set up"),
    "running": Sign("▸", ">", "text", "agent at work"),
    "stalled": Sign("▸", "S", "limit+reverse", "no model call for 5 minutes"),
    "verifying": Sign("v", "v", "text", "verifier or teardown"),
    "pass": Sign("✓", "P", "pass", "completed, full reward"),
    "partial": Sign("~", "~", "pass", "completed, part of the reward"),
    "zero": Sign("o", "o", "zero", "completed, no reward (it is data)"),
    "agent_timeout": Sign("T", "T", "limit", "agent timeout, scored"),
    "context_overflow": Sign("C", "C", "limit", "context overflow, scored"),
    "output_limit": Sign("L", "L", "limit", "output-token limit, scored"),
    "infrastructure": Sign("!", "!", "infra+alert", "infrastructure failure, never scored"),
    "bad_reward": Sign("?", "?", "infra+bold", "missing or bad reward, never scored"),
    "agent_failure": Sign("F", "F", "infra", "agent crashed, never scored"),
    "capture_loss": Sign("∅", "K", "infra+bold", "captured tokens lost"),
    "no_logprobs": Sign("≠", "N", "infra+bold", "samples without log-probs"),
    "no_samples": Sign("E", "E", "infra", "empty: no model call was answered"),
    "configuration": Sign("G", "G", "infra+bold", "configuration error"),
    "cancelled": Sign("⊘", "x", "zero", "cancelled"),
    "retrying": Sign("↻", "y", "infra", "being tried again"),
    "ambiguous": Sign("A", "A", "zero", "ambiguous"),
    "unreadable": Sign("U", "U", "zero", "unreadable"),
}


class Marks(NamedTuple):
    """The other characters of the screen, in one of two sets."""

    rule: str
    bar: str
    cursor: str
    phase: str
    dash: str
    top_left: str
    top_right: str
    left: str
    right: str
    bottom_left: str
    bottom_right: str
    axis: str
    blocks: str
    full: str
    light: str
    dot: str
    separator: str
    branch: str
    leaf: str
    alarm: str
    order: str
    up: str
    down: str


UNICODE = Marks(
    "─", "│", ">", "▸", "—", "┌", "┐", "├", "┤", "└", "┘", "┤", _BLOCKS, "━", "─", "·", "│", "├", "└", "▲", "»",
    "↑", "↓",
)  # fmt: skip
ASCII = Marks(
    "-", "|", ">", ">", "-", "+", "+", "+", "+", "+", "+", "|", _ASCII_BLOCKS, "=", "-", ".", "|", "|", "`", "A", ">",
    "^", "v",
)  # fmt: skip


def marks(ascii_only: bool) -> Marks:
    """The set for a terminal that has, or has not, more than ASCII."""
    return ASCII if ascii_only else UNICODE


def kind_of(trial: TrialState, now: float) -> str:
    """The key of the trial's sign in `SIGNS`."""
    match trial.phase:
        case "queued":
            return "queued"
        case "retrying":
            return "retrying"
        case "verify" | "teardown":
            return "verifying"
        case "agent":
            return "stalled" if trial.last_event and now - trial.last_event > STALLED_AFTER else "running"
        case phase if phase in _BUILDING:
            return "building"
        case "held" | "done":
            return outcome_kind(trial.outcome, trial.reward)
        case _:
            return "running"


def outcome_kind(outcome: str | None, reward: float | None) -> str:
    """The key of an outcome's sign; a completed trial's depends on its reward."""
    if outcome == "completed":
        if reward is None or reward <= 0:
            return "zero"
        return "pass" if reward >= 1 else "partial"
    return outcome if outcome in SIGNS else "unreadable"


def sign_text(kind: str, ascii_only: bool) -> str:
    """The character of a sign."""
    sign = SIGNS[kind]
    return sign.ascii if ascii_only else sign.unicode


def spark(
    values: Sequence[float | None],
    cells: int,
    ascii_only: bool = False,
    low: float | None = None,
    high: float | None = None,
) -> str:
    """The last `cells` values as one row of blocks, right-aligned; an unknown value is a space.

    `low` and `high` fix the scale; by default it is that of the values shown. A flat series is drawn low.
    """
    blocks = _ASCII_BLOCKS if ascii_only else _BLOCKS
    shown = values[-cells:] if cells > 0 else []
    known = [v for v in shown if v is not None]
    if not known:
        return " " * cells
    floor = min(known) if low is None else low
    top = max(known) if high is None else high
    scale = (len(blocks) - 2) / (top - floor) if top > floor else 0.0
    chars = [" " if v is None else blocks[1 + max(0, min(len(blocks) - 2, round((v - floor) * scale)))] for v in shown]
    return "".join(chars).rjust(cells)
