"""The agents' side of `capture.py`, in a process of its own so that its work is not on the gateway's event loop.

Reads a plan as JSON on stdin and prints what it measured as JSON. Times are from the first byte written to the last
byte read, of raw connections that stay open; bodies are made before and read after. A trial of the plan has the
address of its route and the conversation that it speaks. Modes:

    talk    every conversation to its end, `width` at a time
    rounds  every conversation is `history` turns old; all ask at once, `turns` times
    steady  `width` ask as fast as they are answered, for `seconds`; the next trial follows a conversation that ended
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from typing import Any

from capture_talks import TOOLS, Talk, load, replayed


class Link:
    """A connection to a gateway."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, key: str, body: bytes) -> tuple[int, bytes, float]:
        """Status, body and seconds of a request."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        reader, writer = self._streams
        head = (
            f"POST {path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        data = head.encode() + body
        began = time.perf_counter()
        writer.write(data)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        size = next(int(line.partition(":")[2]) for line in lines if line.lower().startswith("content-length:"))
        answer = await reader.readexactly(size)
        return int(lines[0].split()[1]), answer, time.perf_counter() - began


class Agent:
    """One trial's agent. `history`: turns that its first request has; `prompt_tokens`: of the last, as it was told."""

    prompt_tokens = 0

    def __init__(self, trial: dict[str, Any], talk: Talk, history: int = 0) -> None:
        self._trial, self._talk, self.turn = trial, talk, history
        self._messages = talk.opening()
        for index in range(history):
            self._messages += replayed(talk.turns[index], f"call_{index}")

    @property
    def done(self) -> bool:
        """Whether the conversation is at its end."""
        return self.turn >= len(self._talk.turns)

    def body(self) -> bytes:
        """The next request's."""
        return json.dumps(
            {"model": "policy", "max_tokens": 1024, "messages": self._messages, "tools": TOOLS}, ensure_ascii=False
        ).encode()

    async def ask(self, link: Link, data: bytes) -> float:
        """Send it, and go on with what came; the seconds it took."""
        status, answer, seconds = await link.post(self._trial["path"], self._trial["key"], data)
        if status != 200:
            raise SystemExit(f"the gateway answered {status}: {answer[:300]!r}")
        body = json.loads(answer)
        self.prompt_tokens = body["usage"]["prompt_tokens"]
        message = body["choices"][0]["message"]
        calls = message.get("tool_calls") or []
        if len(calls) != 1:
            raise SystemExit(f"the reply has {len(calls)} tool calls")
        said = {name: value for name, value in message.items() if value is not None}
        output = self._talk.turns[self.turn].printed + self._trial.get("mark", "")
        printed = {"role": "tool", "tool_call_id": calls[0]["id"], "content": output}
        self._messages += [said, printed]
        self.turn += 1
        return seconds


async def talk(plan: dict[str, Any], agents: list[Agent]) -> dict[str, Any]:
    """See the module."""
    left = list(reversed(agents))
    seconds: list[list[float]] = []

    async def work() -> None:
        link = Link(plan["port"])
        while left:
            agent = left.pop()
            times = []
            while not agent.done:
                times.append(await agent.ask(link, agent.body()))
            seconds.append(times)

    await asyncio.gather(*(work() for _ in range(plan["width"])))
    return {"seconds": seconds}


async def rounds(plan: dict[str, Any], agents: list[Agent]) -> dict[str, Any]:
    """See the module."""
    links = [Link(plan["port"]) for _ in agents]
    found = []
    for _ in range(plan["turns"]):
        bodies = [agent.body() for agent in agents]
        gc.collect()
        await asyncio.sleep(0.5)
        began = time.monotonic()
        seconds = await asyncio.gather(*(agents[i].ask(links[i], bodies[i]) for i in range(len(agents))))
        prompts = [agent.prompt_tokens for agent in agents]
        found.append({"began": began, "ended": time.monotonic(), "seconds": seconds, "prompts": prompts})
    return {"rounds": found}


async def steady(plan: dict[str, Any], agents: list[Agent]) -> dict[str, Any]:
    """See the module."""
    left = list(reversed(agents))
    began = time.monotonic()
    counts = [0] * plan["width"]

    async def work(place: int) -> None:
        link = Link(plan["port"])
        agent = left.pop()
        while time.monotonic() - began < plan["seconds"]:
            if agent.done:
                agent = left.pop()
            await agent.ask(link, agent.body())
            counts[place] += 1

    await asyncio.gather(*(work(place) for place in range(plan["width"])))
    return {"replies": sum(counts), "seconds": time.monotonic() - began}


def main() -> None:
    """Do as the plan says."""
    plan = json.loads(sys.stdin.read())
    talks = load(plan["talks"])
    agents = [Agent(trial, talks[trial["talk"]], plan.get("history", 0)) for trial in plan["trials"]]
    gc.disable()
    modes = {"talk": talk, "rounds": rounds, "steady": steady}
    print(json.dumps(asyncio.run(modes[plan["mode"]](plan, agents))))


if __name__ == "__main__":
    main()
