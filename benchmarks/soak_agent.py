"""The bundled agent, which also writes down how many loggers its process has: Harbor makes some for each trial."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from console.trials.agent import TerminalAgent


class CountingAgent(TerminalAgent):
    """Writes the count to `$QUARTERDECK_SOAK_LOGGERS`, a file a process."""

    async def setup(self, *args: Any, **kwargs: Any) -> None:
        where = Path(os.environ["QUARTERDECK_SOAK_LOGGERS"])
        (where / str(os.getpid())).write_text(str(len(logging.root.manager.loggerDict)))
        await super().setup(*args, **kwargs)
