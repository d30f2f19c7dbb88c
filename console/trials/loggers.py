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
    return len(named)
