"""An agent that meets trouble as often as it is told to, for Harbor to import by path."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from harbor.agents.base import BaseAgent


class Fated(BaseAgent):
    """Loses its sandbox once for each file `<task>.<anything>` in FATES, which it takes away; else it does nothing.

    It notes `<task>` in `begun` of FATES, a line for each time that it ran, and waits there while a file `wait` or
    `wait.<task>` is.
    """

    def __init__(self, *args: Any, fates: str, api_base: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fates, self.api_base = Path(fates), api_base

    @staticmethod
    def name() -> str:
        return "fated"

    def version(self) -> str:
        return "1"

    async def setup(self, environment: Any) -> None:
        pass

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        task = environment.session_id.rpartition("__")[0].rpartition("__")[0] or environment.session_id
        with (self.fates / "begun").open("a") as file:
            file.write(f"{task}\n")
        while any((self.fates / name).exists() for name in ("wait", f"wait.{task}")):  # noqa: ASYNC110 - told from another process
            await asyncio.sleep(0.02)
        for token in sorted(self.fates.iterdir()):
            if token.name.rpartition(".")[0] == task:
                with contextlib.suppress(FileNotFoundError):
                    token.unlink()
                    raise ConnectionError("Server disconnected without sending a response.")
