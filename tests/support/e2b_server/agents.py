"""The job's agent, run by Harbor in the runner process: it does what its trial's configuration says."""

from __future__ import annotations

import contextlib
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext


class ScriptAgent(BaseAgent):
    """Runs one command in the sandbox; `deaf`: it goes on when the sandbox fails it, as some agents do."""

    def __init__(self, *args: Any, script: str = "true", deaf: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._script, self._deaf = script, deaf

    @staticmethod
    def name() -> str:
        return "script"

    def version(self) -> str:
        return "1"

    async def setup(self, environment: BaseEnvironment) -> None:
        pass

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        with contextlib.suppress(Exception) if self._deaf else contextlib.nullcontext():
            await environment.exec(self._script, cwd="/app")
