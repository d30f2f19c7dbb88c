"""Alarm rules about sandboxes that nobody uses any more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from console.state.findings import WARNING, Finding, Look, clean
from console.state.model import RunState

_NAMED = 3


def sandboxes_left(look: Look) -> Iterator[Finding]:
    """Sandboxes that could not be removed."""
    left = look.state.sandboxes_left
    if left:
        yield Finding(
            key="sandbox.left",
            level=WARNING,
            text=f"{_count(left)} could not be removed: {_names(left)}",
            consequence=_consequence(look.state),
            remedy=f"{reap_command(look.state)} removes them",
            figure=float(len(left)),
        )


def sandboxes_orphaned(look: Look) -> Iterator[Finding]:
    """Sandboxes of an engine before this one, which ended without removing them."""
    orphaned = look.state.sandboxes.orphaned
    if orphaned:
        yield Finding(
            key="sandbox.orphaned",
            level=WARNING,
            text=f"{_count(orphaned)} left behind by an earlier engine of this run: {_names(orphaned)}",
            consequence=_consequence(look.state),
            remedy=f"{reap_command(look.state)} removes them",
            figure=float(len(orphaned)),
        )


def reap_command(state: RunState) -> str:
    """What removes the sandboxes of a run that nobody uses."""
    return f"quarterdeck reap {clean(state.run_id) or 'RUN'}"


def _count(names: Sequence[str]) -> str:
    return f"{len(names)} sandbox{'' if len(names) == 1 else 'es'}"


def _names(names: Sequence[str]) -> str:
    return ", ".join(clean(name) for name in names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def _consequence(state: RunState) -> str:
    """What they cost: money where prices are known, else the room they take."""
    rented = state.sandboxes.cost is not None
    return "they cost money until they are removed" if rented else "they hold memory and disk, or cost money"


WHATEVER = (sandboxes_left, sandboxes_orphaned)
