"""An agent and a sandbox for Harbor to import by path, which do what a task tells them: mostly, to fail.

The agent reads its instruction, a JSON object; the sandbox, and the agent's installation, read `told.json` among the
task's environment files. What they can be told stands in `Scripted.run` and in `Fragile`.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
from pathlib import Path
from typing import Any

from harbor.agents.installed.base import BaseInstalledAgent
from harbor.models.agent.context import AgentContext

from console.trials.bwrap import BwrapEnvironment

TOLD = "told.json"


def failure(words: str) -> BaseException:
    """An exception out of "module:Type: message", which is a real one, or "Type: message", which nobody knows."""
    name, _, message = words.partition(": ")
    if ":" not in name:
        return type(name, (Exception,), {})(message)
    module, _, kind = name.partition(":")
    made: Any = getattr(importlib.import_module(module), kind)
    known: dict[str, Any] = {"message": message, "llm_provider": "openai", "model": "m", "status_code": 500}
    if module.startswith("litellm"):
        wanted = inspect.signature(made).parameters
        if "response" in wanted and wanted["response"].default is inspect.Parameter.empty:
            import httpx

            known["response"] = httpx.Response(403, request=httpx.Request("POST", "http://model.example/v1"))
        return made(**{key: value for key, value in known.items() if key in wanted})
    return made(message) if message or module == "httpx" else made()


def tried_again(words: str) -> None:
    """Fails as a program does that tries twice, and then says so in an exception of its own."""
    from tenacity import Retrying, stop_after_attempt

    for attempt in Retrying(stop=stop_after_attempt(2)):
        with attempt:
            raise failure(words)


def told_of(environment: Any) -> dict[str, Any]:
    """What the task says about its sandbox."""
    path = Path(environment.environment_dir) / TOLD
    return json.loads(path.read_text()) if path.exists() else {}


class Scripted(BaseInstalledAgent):
    """Does what it is told."""

    @staticmethod
    def name() -> str:
        return "scripted"

    def version(self) -> str:
        return "1"

    async def setup(self, environment: Any) -> None:
        told = told_of(environment)
        if "setup_error" in told:
            raise failure(told["setup_error"])
        await super().setup(environment)

    async def install(self, environment: Any) -> None:
        told = told_of(environment)
        if "install" in told:
            await self.exec_as_root(environment, command=told["install"])
        if "install_error" in told:
            raise failure(told["install_error"])

    def populate_context_post_run(self, context: AgentContext) -> None:
        """Nothing: `run` has counted."""

    async def run(self, instruction: str, environment: Any, context: AgentContext) -> None:
        """Keys, in the order in which they are done.

        tokens: of input and output; files: name below the agent's logs to text; mark: file to make on the host; fuse:
        go on only if this file is there, and take it away; script: run in the sandbox by bash; error: raise it; again:
        raise it after a second try; json: parse this.
        """
        told = json.loads(instruction)
        if "tokens" in told:
            context.n_input_tokens, context.n_output_tokens = told["tokens"]
        for name, text in told.get("files", {}).items():
            path = Path(self.logs_dir, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if "mark" in told:
            Path(told["mark"]).touch()
        if "fuse" in told:
            try:
                Path(told["fuse"]).unlink()
            except FileNotFoundError:
                return
        if "script" in told:
            await self.exec_as_agent(environment, command=told["script"])
        if "error" in told:
            raise failure(told["error"])
        if "again" in told:
            tried_again(told["again"])
        if "json" in told:
            json.loads(told["json"])


class Fragile(BwrapEnvironment):
    """A sandbox that is told by its task: start_error, start_seconds, tests_error, logs_error, stop_mark, stop_error.

    With `stop_mark` it makes that file on the host when it is to be removed, and then takes a minute; with `stop_error`
    it is removed, and says that it is not.
    """

    async def start(self, force_build: bool) -> None:
        told = told_of(self)
        if "start_error" in told:
            raise failure(told["start_error"])
        await asyncio.sleep(told.get("start_seconds", 0))
        await super().start(force_build)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        told = told_of(self)
        if "tests_error" in told and str(target_dir).rstrip("/") == "/tests":
            raise failure(told["tests_error"])
        await super().upload_dir(source_dir, target_dir)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        told = told_of(self)
        if "logs_error" in told and "verifier" in str(source_dir):
            raise failure(told["logs_error"])
        await super().download_dir(source_dir, target_dir)

    async def stop(self, delete: bool) -> None:
        told = told_of(self)
        if "stop_mark" in told:
            Path(told["stop_mark"]).touch()
            await asyncio.sleep(60)
        await super().stop(delete)
        if "stop_error" in told:
            raise failure(told["stop_error"])
