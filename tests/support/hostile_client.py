"""A program that attacks a capture gateway with all that a sandbox has: `python hostile_client.py PLAN`, a JSON object.

    url, token    of the trial that it belongs to
    sealed        token of a trial that has ended, "" for none
    ids           ids and signatures that name samples of other trials
    guesses, flood, connections, megabytes, levels    how much of each

The flood goes on, whatever its number, until there is nothing more to read on stdin. The program needs nothing but
Python's own library, so that it runs inside a sandbox too. It prints what it was answered: a JSON object of attacks,
each with its statuses and how often they came (`closed`: no answer, `silent`: none for a long time), and `oddities`,
answers that are not shaped as they should be.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import secrets
import sys
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
CROWD = 400
PATIENCE = 60.0
PIECE = 1 << 16

_PATHS = (
    *("/", "/admin", "/metrics", "/debug", "/seal", "/routes", "/v1/trials", "/../../etc/passwd", "/v1/../admin"),
    *("/s0.g0.t1.y0/v1/chat/completions", "/v1/chat/completions/s0.g0.t1.y0", "/capture/step-000000", "/v1/files"),
    *("//evil.invalid/v1/chat/completions", "/v1/%2e%2e/%2e%2e/journal", "/v1/responses/resp_n0x00000000", "/%00"),
    *("http://127.0.0.1:1/v1/models", "/v1/models?key=%ff", "/v1/models/" + "m" * 4000),
)


class Client:
    """Sends what it is told, and notes what comes back."""

    def __init__(self, plan: dict[str, Any]) -> None:
        place = urlsplit(plan["url"])
        self.host, self.port, self.plan = place.hostname or "", place.port or 80, plan
        self.statuses: dict[str, Counter[str]] = {}
        self.oddities: list[str] = []
        self._held: list[asyncio.StreamWriter] = []

    def note(self, attack: str, status: str) -> None:
        self.statuses.setdefault(attack, Counter())[status] += 1

    def odd(self, what: str) -> None:
        if len(self.oddities) < 20:
            self.oddities.append(what)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.wait_for(asyncio.open_connection(self.host, self.port), PATIENCE)

    def head(self, path: str, size: int | None, *lines: str, token: str | None = None, method: str = "POST") -> bytes:
        """The head of a request. `size`: of its body, None for a body in chunks; `token`: by default the trial's."""
        token = self.plan["token"] if token is None else token
        start = f"{method} {path} HTTP/1.1"
        framing = "Transfer-Encoding: chunked" if size is None else f"Content-Length: {size}"
        key = [f"Authorization: Bearer {token}"] if token else []
        return "\r\n".join(
            [start, "Host: gateway", "Content-Type: application/json", *key, framing, *lines, "", ""]
        ).encode("latin-1", "replace")  # fmt: skip

    async def send(self, attack: str, head: bytes, body: bytes = b"", times: int = 1) -> None:
        """A request on a connection of its own; the body again and again."""
        try:
            reader, writer = await self.connect()
        except OSError:
            self.note(attack, "closed")
            return
        writing = asyncio.ensure_future(_write(writer, head, body, times))
        try:
            self.note(attack, await self.answer(attack, reader))
        finally:
            writing.cancel()
            await asyncio.wait([writing])
            writer.close()

    async def post(self, attack: str, path: str, body: Any, *lines: str, token: str | None = None) -> None:
        """A JSON body to a path."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        await self.send(attack, self.head(path, len(data), *lines, token=token), data)

    async def answer(self, attack: str, reader: asyncio.StreamReader) -> str:
        """The status of the next response on a connection. Its body is read, and looked at when it is an error's."""
        try:
            async with asyncio.timeout(PATIENCE):
                head = "HTTP/1.1 100 Continue"
                while head.split(" ", 2)[1:2] == ["100"]:
                    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                status = head.split(" ", 2)[1]
                names = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
                if "content-length" not in names:
                    while b"0\r\n\r\n" not in await reader.read(PIECE):
                        pass
                    return status
                body = await reader.readexactly(int(names["content-length"]))
        except TimeoutError:
            return "silent"
        except (OSError, EOFError, asyncio.LimitOverrunError):
            return "closed"
        if status >= "400":
            self._look_at(attack, status, body)
        return status

    def _look_at(self, attack: str, status: str, body: bytes) -> None:
        try:
            message = json.loads(body)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            self.odd(f"{attack}: {status} {body[:200]!r}")
            return
        if len(message) > 600 or any(word in message for word in ("Traceback", ".py", self.plan["token"])):
            self.odd(f"{attack}: {status} {message[:600]}")

    # --- attacks ---

    async def guesses(self) -> None:
        """Tokens that are none, and almost the own one."""
        own, chance, free = self.plan["token"], random.Random(0), asyncio.Semaphore(50)
        almost = [own[:-1], own + "A", own.swapcase(), own[::-1], f"{own},{own}x", own.replace(own[3], "~", 1)]

        async def one(token: str) -> None:
            async with free:
                path = chance.choice((CHAT, RESPONSES, MESSAGES))
                await self.post("guesses", path, _said("Let me in."), token=token)

        await asyncio.gather(*map(one, (*almost, *(secrets.token_urlsafe(32) for _ in range(self.plan["guesses"])))))

    async def addresses(self) -> None:
        """Paths that are none, and methods."""
        for path in _PATHS:
            for method in ("GET", "POST", "DELETE"):
                await self.send("addresses", self.head(path, 0, method=method))
        for method in ("TRACE", "CONNECT", "PUT", "OPTIONS", "PROPFIND", "SEAL"):
            await self.send("addresses", self.head(CHAT, 0, method=method))

    async def ended(self) -> None:
        """The token of a trial that has ended, alone and beside the own one."""
        if not self.plan["sealed"]:
            return
        for path in (CHAT, RESPONSES, MESSAGES, "/v1/messages/count_tokens"):
            await self.post("ended", path, _said("Are you there?"), token=self.plan["sealed"])
            await self.post("both", path, _said("Me?"), f"x-api-key: {self.plan['sealed']}")

    async def others_samples(self) -> None:
        """Ids and signatures of other trials' samples in messages of the own one."""
        for word in self.plan["ids"]:
            tool = {"id": word, "type": "function", "function": {"name": "bash", "arguments": "{}"}}
            await self.post("others' samples", CHAT, {"model": "m", "max_tokens": 8, "messages": [
                {"role": "user", "content": "Go on."}, {"role": "assistant", "content": None, "tool_calls": [tool]},
                {"role": "tool", "tool_call_id": word, "content": "x"}]})  # fmt: skip
            await self.post("others' samples", MESSAGES, {"model": "m", "max_tokens": 8, "messages": [
                {"role": "user", "content": "Go on."}, {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "", "signature": word}, {"type": "text", "text": "x"}]},
                {"role": "user", "content": "And?"}]})  # fmt: skip
            await self.post("others' samples", RESPONSES, {"model": "m", "max_output_tokens": 8, "input": [
                {"role": "user", "content": "Go on."}, {"type": "message", "id": word, "role": "assistant",
                 "content": [{"type": "output_text", "text": "x"}]}, {"role": "user", "content": "And?"}]})  # fmt: skip

    async def replays(self) -> None:
        """The same request, marked as a retry and not, side by side and one after the other."""
        for _ in range(3):
            marks = [f"x-stainless-retry-count: {count}" for count in range(6)]
            await asyncio.gather(*(self.post("replays", CHAT, _said("Once more."), mark) for mark in marks))

    async def values(self) -> None:
        """Numbers that are none, and structures without end."""
        for number in ("NaN", "Infinity", "-Infinity", "1e999", "-1", "9" * 400, '"hot"', "[]"):
            for path in (CHAT, RESPONSES, MESSAGES):
                body = json.dumps(_said("x"))[:-1] + f', "temperature": {number}}}'
                await self.post("values", path, body.encode())
        levels = self.plan["levels"]
        for opening, closing in (("[", "]"), ('{"a":', "}")):
            deep = (opening * levels + "1" + closing * levels).encode()
            await self.post("depth", CHAT, b'{"model":"m","messages":' + deep + b"}")
            await self.post("depth", MESSAGES, b'{"model":"m","max_tokens":4,"messages":[],"tools":' + deep + b"}")
        await self.post("depth", RESPONSES, b"[" * levels)
        await self.post("values", CHAT, b'{"messages":[' + b"[]," * 900_000 + b"[]]}")

    async def sizes(self) -> None:
        """Bodies far beyond what is read, announced and not."""
        times, piece = self.plan["megabytes"] * 16, b" " * PIECE
        await self.send("sizes", self.head(CHAT, times * PIECE), piece, times)
        await self.send("sizes", self.head(CHAT, times * PIECE, token="unknown"), piece, times)
        await self.send("sizes", self.head(CHAT, None), b"10000\r\n" + piece + b"\r\n", times)
        inflating = self.head(CHAT, None, "Content-Encoding: gzip")
        await self.send("sizes", inflating, b"10000\r\n" + b"\x1f\x8b\x08" + b"\0" * (PIECE - 3) + b"\r\n", times)

    async def headers(self) -> None:
        """Heads that are read in two ways, or in none."""
        body, token = json.dumps(_said("x")).encode(), self.plan["token"]
        size = f"Content-Length: {len(body)}"
        key = f"Authorization: Bearer {token}"
        start = f"POST {CHAT} HTTP/1.1"
        for lines in (
            (start, "Host: a", key, size, "Content-Length: 0"),
            (start, "Host: a", key, size, "Transfer-Encoding: chunked"),
            (start, "Host: a", key, "Transfer-Encoding: chunked, identity", size),
            (start, "Host: a", key, "Content-Length: -5"),
            (start, "Host: a", key, "Content-Length: 9" + "9" * 30),
            (start, "Host: a", "Authorization: Bearer \xff\xfe\x80", size),
            (start, "Host: a", "Authorization: Bearer " + "A" * 100_000, size),
            (start, "Host: a", *(f"x-{n}: y" for n in range(500)), key, size),
            (start, "Host: a", key, size, "X-Forwarded-For: 127.0.0.1", "X-Real-IP: ::1", "Forwarded: for=10.0.0.1"),
            (start, "Host: a", key, size, " folded: line", "\tmore"),
            (start, "Host: a\0b", key, size),
            (start, "Host: a", f"Bearer {token}", size),
            (f"POST {CHAT} HTTP/9.9", "Host: a", key, size),
            (f"GET {CHAT}\x0b HTTP/1.1", "Host: a", key),
            ("PRI * HTTP/2.0", ""),
            (start, "Host: a", key, size, "Upgrade: websocket", "Connection: Upgrade"),
            (start, "Host: a", key, size, "Expect: 100-continue", "Expect: something-else"),
        ):
            await self.send("headers", ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"), body)
        await self.send("headers", self.head(CHAT, None), b"zz\r\nnot a chunk\r\n")
        await self.send("headers", self.head(CHAT, None), b"ffffffffffffffffffff\r\nx\r\n")
        await self.send("headers", bytes(random.Random(1).randrange(256) for _ in range(4000)) + b"\r\n\r\n")

    async def half(self) -> None:
        """Connections that say nothing, half a head, or half a body, most of them a stranger's; they are held."""
        own = self.head(CHAT, 10**7) + b'{"messages":['
        starts = (b"", b"POST /v1/chat/compl", self.head(CHAT, 1000)[:-4], self.head(CHAT, 10**7, token="x") + b"{")
        for number in range(self.plan["connections"]):
            try:
                _, writer = await self.connect()
                writer.write(own if number % 25 == 0 else starts[number % len(starts)])
            except OSError:
                self.note("half", "closed")
                continue
            self._held.append(writer)

    async def crowd(self) -> None:
        """More connections with the own token than a trial may have, each with a body that never ends."""
        await self.let_go()
        for _ in range(CROWD):
            _, writer = await self.connect()
            writer.write(self.head(CHAT, 10**7) + b'{"messages":[')
            self._held.append(writer)
        await self.post("crowd", CHAT, _said("Is there room?"))
        await self.let_go()

    async def let_go(self) -> None:
        """End the connections that are held."""
        for writer in self._held:
            writer.transport.abort()
        self._held.clear()
        await self.post("let go", CHAT, _said("And now?"))

    async def flood(self) -> None:
        """Small requests without a pause, good ones and bad ones."""
        over = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
        numbers, least = itertools.count(), self.plan["flood"]
        bodies = [
            b"{}",
            b"[]",
            b"",
            b'{"messages": "x"}',
            b"\xff\xfe",
            json.dumps(_said("Quick.", max_tokens=2)).encode(),
        ]

        async def one() -> None:
            reader, writer = await self.connect()
            for number in numbers:
                if number >= least and over.done():
                    break
                body = bodies[number % len(bodies)]
                writer.write(self.head((CHAT, RESPONSES, MESSAGES)[number % 3], len(body)) + body)
                status = await self.answer("flood", reader)
                self.note("flood", status)
                if status == "closed":
                    writer.close()
                    reader, writer = await self.connect()
            writer.close()

        for done in await asyncio.gather(*(one() for _ in range(40)), return_exceptions=True):
            if isinstance(done, BaseException):
                self.note("flood", "closed")

    async def gone(self) -> None:
        """Streams that nobody reads to their end."""
        for number in range(30):
            body = json.dumps(_said(f"Story {number}.", stream=True, max_tokens=64)).encode()
            reader, writer = await self.connect()
            writer.write(self.head(CHAT, len(body)) + body)
            with contextlib.suppress(OSError, EOFError, TimeoutError):
                await asyncio.wait_for(reader.read(20), 5)
            writer.transport.abort()

    async def attack(self) -> None:
        """All of it, what is small while the connections are held."""
        await self.half()
        await asyncio.gather(self.guesses(), self.addresses(), self.ended(), self.values(), self.headers())
        await asyncio.gather(self.others_samples(), self.replays(), self.gone())
        await self.let_go()
        await self.sizes()
        await self.crowd()
        await self.flood()


def _said(text: str, **more: Any) -> dict[str, Any]:
    """A body that all dialects take."""
    message = [{"role": "user", "content": text}]
    return {"model": "m", "max_tokens": 8, "messages": message, "input": text} | more


async def _write(writer: asyncio.StreamWriter, head: bytes, body: bytes, times: int) -> None:
    with contextlib.suppress(OSError):
        writer.write(head + body)  # together, so that both are there when the first of it is looked at
        for _ in range(times - 1):
            await writer.drain()
            writer.write(body)


def main() -> None:
    client = Client(json.loads(sys.argv[1]))
    asyncio.run(client.attack())
    sys.stdout.write(json.dumps({"attacks": client.statuses, "oddities": client.oddities}) + "\n")


if __name__ == "__main__":
    main()
