"""A sandbox whose removal takes as long as a file stands: `BwrapEnvironment` with a `stop` that waits."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from console.trials.bwrap import BwrapEnvironment


class StuckRoom(BwrapEnvironment):
    """Waits in `stop` while `$QUARTERDECK_TEST_STUCK` exists."""

    async def stop(self, delete: bool) -> None:
        held = Path(os.environ["QUARTERDECK_TEST_STUCK"])
        while held.exists():  # noqa: ASYNC110 - another process removes it
            await asyncio.sleep(0.05)
        await super().stop(delete)

    async def exec(self, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(3600)  # the agent is at work until it is cancelled
        return await super().exec(*args, **kwargs)
