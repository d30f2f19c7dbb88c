"""Agents that talk until nobody answers any more: `python capture_talkers.py URL DIARY TOKENS`, the last a JSON object.

One conversation for each token, in one dialect or another, with streams and without. What an agent was told is in the
diary, a line for each reply, as soon as it has read it: key, name of the sample, text, and whether it came to its end.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import aiohttp

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
WAYS = [(CHAT, False), (CHAT, True), (MESSAGES, False), (RESPONSES, False), (MESSAGES, True)]
TURNS_EACH = 12
"""After so many turns a conversation begins anew."""


class Talker:
    """One agent. `diary`: descriptor of the file."""

    def __init__(self, number: int, key: str, token: str, diary: int) -> None:
        self.key, self._diary = key, diary
        self.path, self.stream = WAYS[number % len(WAYS)]
        self._headers = {"Authorization": f"Bearer {token}"}

    async def talk(self, http: aiohttp.ClientSession, url: str) -> None:
        """Until the connection fails."""
        messages: list[dict[str, Any]] = []
        for number in range(10**6):
            if number % TURNS_EACH == 0:
                messages = []
            messages.append({"role": "user", "content": f"Question {number} of {self.key}. " + "x" * (number % 7 * 40)})
            talk = {"input" if self.path == RESPONSES else "messages": messages}
            body = {
                "model": "m",
                "stream": self.stream,
                **talk,
                **({"max_tokens": 2048} if "mess" in self.path else {}),
            }
            try:
                async with http.post(url + self.path, json=body, headers=self._headers) as answer:
                    text = await self._read(answer)
            except aiohttp.ClientError:
                return
            messages.append({"role": "assistant", "content": text})

    async def _read(self, answer: aiohttp.ClientResponse) -> str:
        node = answer.headers["x-request-id"]
        if not self.stream:
            text = _text(self.path, await answer.json())
            self._note(node, text, whole=True)
            return text
        text, whole = "", False
        async for line in answer.content:
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                new = _piece(self.path, event)
                text += new
                if new:
                    self._note(node, text, whole=False)
            whole = whole or b"[DONE]" in line or b"message_stop" in line
        if whole:
            self._note(node, text, whole=True)
        return text

    def _note(self, node: str, text: str, *, whole: bool) -> None:
        line = json.dumps({"key": self.key, "node": node, "text": text, "whole": whole}) + "\n"
        os.write(self._diary, line.encode())


def _text(path: str, body: Any) -> str:
    if path == CHAT:
        return str(body["choices"][0]["message"]["content"])
    if path == MESSAGES:
        return "".join(part["text"] for part in body["content"] if part["type"] == "text")
    return "".join(part["text"] for item in body["output"] if item["type"] == "message" for part in item["content"])


def _piece(path: str, event: Any) -> str:
    if path == CHAT:
        return "".join(choice["delta"].get("content") or "" for choice in event["choices"])
    return str(event["delta"].get("text", "")) if event["type"] == "content_block_delta" else ""


async def main(url: str, diary: str, tokens: dict[str, str]) -> None:
    """All of them at once."""
    file = os.open(diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as http:
        talkers = [Talker(number, *trial, file) for number, trial in enumerate(tokens.items())]
        await asyncio.gather(*(talker.talk(http, url) for talker in talkers))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
