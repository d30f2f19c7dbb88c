"""Letting go of the loggers that Harbor makes for each trial: `logging` keeps every logger by its name for ever."""

from __future__ import annotations

import logging


def forget_loggers(trial_name: str) -> int:
    """Forget the loggers named after a trial that has ended; how many. Whoever holds one can still log with it."""
    known = logging.root.manager.loggerDict
    below = f".{trial_name}."
    named = [name for name in list(known) if below in f"{name}."]
    for name in named:
        logger = known.pop(name, None)
        if isinstance(logger, logging.Logger):
            for handler in list(logger.handlers):
                logger.removeHandler(handler)
                handler.close()
    for place in {name[: f"{name}.".index(below)] for name in named}:
        _forget_places(place, trial_name)
    return len(named)


def _forget_places(above: str, trial_name: str) -> None:
    """A dot in the name makes a place for each part before it; those under which no other trial logs go, too."""
    known = logging.root.manager.loggerDict
    parts = trial_name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        place = f"{above}.{'.'.join(parts[:end])}"
        if any(name.startswith(f"{place}.") for name in list(known)):
            return
        if isinstance(known.get(place), logging.PlaceHolder):
            del known[place]
