"""Agents that note what they were told, that attack, that meet an outage; for the runner to import by path."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import hostile_client
import httpx
import openai
from pydantic import Field

from console.trials.agent import TerminalAgent, TerminalAgentOptions


class RecordingOptions(TerminalAgentOptions):
    notes: str = Field(default="", description="A directory for what agents write down.")
    flood: int = Field(default=500, description="Requests of the attacker's flood.")


class Recording(TerminalAgent):
    """Talks for `max_turns` turns, and writes each reply down as soon as it has it: a line in NOTES/SESSION.jsonl."""

    options_model = RecordingOptions
    pause = 0.0

    async def run(self, instruction, environment, context):
        await self.talk(instruction, environment)

    def note(self, environment: Any, **fields: Any) -> None:
        path = Path(self.options.notes, f"{environment.session_id}.jsonl")
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, (json.dumps(fields) + "\n").encode())
        os.close(file)

    async def talk(self, instruction, environment):
        self.note(environment, token=self._extra_env["OPENAI_API_KEY"])
        messages = [{"role": "user", "content": instruction}]
        async with httpx.AsyncClient(trust_env=False, timeout=120) as client:
            for number in range(self.options.max_turns):
                answer = await client.post(self._url, json={"messages": messages}, headers=self._headers)
                answer.raise_for_status()
                body = answer.json()
                text = body["choices"][0]["message"]["content"]
                self.note(environment, node=body["id"].removeprefix("chatcmpl-"), text=text)
                messages += [{"role": "assistant", "content": text}, {"role": "user", "content": f"Go on, {number}."}]
                await asyncio.sleep(self.pause)


class Attacking(Recording):
    """The first of a group attacks from inside its sandbox; its siblings talk, until they have had their turns."""

    pause = 0.5

    async def run(self, instruction, environment, context):
        begun = Path(self.options.notes, "attacked")
        try:
            os.mkdir(begun)
        except FileExistsError:
            await self.talk(instruction, environment)
            return
        while not self._others_ids():  # noqa: ASYNC110 - told by other trials
            await asyncio.sleep(0.05)
        self.note(environment, token=self._extra_env["OPENAI_API_KEY"])
        await self._attack(environment)
        await self.talk(instruction, environment)

    async def _attack(self, environment):
        plan = {
            "url": self._extra_env["OPENAI_BASE_URL"].removesuffix("/v1"), "token": self._extra_env["OPENAI_API_KEY"],
            "sealed": "", "ids": self._others_ids(), "guesses": 40, "flood": self.options.flood, "connections": 30,
            "megabytes": 100, "levels": 100_000,
        }  # fmt: skip
        await environment.upload_file(hostile_client.__file__, "/tmp/attack.py")
        done = await environment.exec(
            f"{os.path.realpath(sys.executable)} /tmp/attack.py '{json.dumps(plan)}' </dev/null", timeout_sec=100
        )
        told = {"code": done.return_code, "out": done.stdout, "err": done.stderr}
        Path(self.options.notes, "told.json").write_text(json.dumps(told))

    def _others_ids(self) -> list[str]:
        notes = "".join(path.read_text() for path in Path(self.options.notes).glob("*.jsonl"))
        nodes = [node for line in notes.splitlines() if (node := json.loads(line).get("node"))]
        return [word for node in nodes[-3:] for word in (f"call_{node}_0", f"qd1.{node}", f"msg_{node}")]


class Waiting(TerminalAgent):
    """Makes a call, says so with a file in its log directory, and makes a second one when NOTES/go is there."""

    options_model = RecordingOptions

    async def run(self, instruction, environment, context):
        messages = [{"role": "user", "content": instruction}]
        tally = {"turns": 0, "model_seconds": 0.0}
        await self._ask(messages, context, tally)
        (self.logs_dir / "waiting").touch()
        while not Path(self.options.notes, "go").exists():  # noqa: ASYNC110 - told from another process
            await asyncio.sleep(0.02)
        await self._ask(messages, context, tally)


class Impatient(TerminalAgent):
    """Asks with the openai SDK, which waits three seconds for a reply and asks twice more when it does not come."""

    options_model = RecordingOptions

    async def run(self, instruction, environment, context):
        (self.logs_dir / "waiting").touch()
        while not Path(self.options.notes, "go").exists():  # noqa: ASYNC110 - told from another process
            await asyncio.sleep(0.02)
        async with openai.AsyncOpenAI(
            base_url=self._extra_env["OPENAI_BASE_URL"], api_key=self._extra_env["OPENAI_API_KEY"], timeout=3.0,
            max_retries=2,
        ) as client:  # fmt: skip
            messages: Any = [{"role": "user", "content": instruction}]
            await client.chat.completions.create(model="policy", messages=messages)
