"""One client of the control server: its requests, its stream, and its end when it is too slow or talks nonsense.

What a client asks to see of a trial is read on worker threads, one answer at a time, and sent when the client has
taken what came before: a large transcript makes nobody else wait and gets nobody dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from console.control import messages as m
from console.control.watch import Attendant
from console.state.model import encode_state
from console.state.sanitize import sanitize

if TYPE_CHECKING:
    from console.control.server import ControlServer

BUFFER_LIMIT = 1024 * 1024
"""Unsent bytes at which a client is dropped."""
COMMANDS_AT_ONCE = 32
ASKS_AT_ONCE = 16
PAST_ATTEMPTS = 20
PAST_BATCH = 2000

_log = logging.getLogger(__name__)


class Connection:
    """A client. It is `live` once it has everything up to the newest line; until then its own task feeds it.

    Attributes:
        viewer: its place in the watch, None for one that does not attend.
    """

    def __init__(
        self,
        server: ControlServer,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        peer: tuple[int, int] | None,
    ) -> None:
        self._server = server
        self._reader, self._writer = reader, writer
        self._peer = "" if peer is None else f"pid {peer[0]} uid {peer[1]}"
        self.viewer: Attendant | None = None
        self._sent = 0
        self._live = False
        self._stream: asyncio.Task[None] | None = None
        self._asks: deque[m.Ask] = deque()
        self._asking: asyncio.Task[None] | None = None
        self._commands: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Greet, then serve requests until the client goes away or is sent away."""
        self.push(m.encode(self._server.hello()))
        try:
            while line := await self._next_line():
                if not self._handle(line):
                    break
        except OSError:
            pass
        finally:
            self._stop_feeding()
            if self.viewer is not None:
                self._server.watch.leave(self.viewer)
            self._writer.close()

    def _stop_feeding(self) -> None:
        self._live = False
        for task in (self._stream, self._asking):
            if task is not None:
                task.cancel()

    def push(self, data: bytes) -> None:
        """Put a message into the write buffer; drop the client when it holds too much."""
        transport = self._writer.transport
        if transport.is_closing():
            return
        transport.write(data)
        fed = self._stream is not None and not self._live  # it waits for the client itself, message by message
        if not fed and transport.get_write_buffer_size() > BUFFER_LIMIT:
            _log.warning("client %s reads too slowly: dropped, it can come back by cursor", self._peer)
            self._live = False
            transport.abort()

    def beat(self, data: bytes) -> None:
        """A heartbeat; a client that has something else to read needs none."""
        if self._writer.transport.get_write_buffer_size() == 0:
            self.push(data)

    def live_lines(self, first: int, lines: list[bytes], batches: list[bytes]) -> None:
        """The lines of events `first` and on, also as encoded messages; what the client has is left out."""
        if not self._live:
            return
        known = self._sent - first + 1
        if known >= len(lines):
            return
        self._sent = first + len(lines) - 1
        for data in batches if known <= 0 else m.event_batches(lines[known:]):
            self.push(data)

    def refuse(self, text: str) -> None:
        """Say why, and close once it is sent."""
        self.push(m.encode(m.Failure(text=text)))
        self._live = False
        self._writer.close()

    async def finish(self, timeout: float) -> None:
        """Close in order; what the client does not take within `timeout` seconds is lost to it."""
        self._stop_feeding()
        if self._commands:
            await asyncio.wait(self._commands, timeout=timeout)
        self._writer.close()
        try:
            await asyncio.wait_for(self._writer.wait_closed(), timeout)
        except (OSError, TimeoutError):
            self._writer.transport.abort()

    # --- requests ----------------------------------------

    async def _next_line(self) -> bytes:
        """The next whole line, empty at the end: a request cut off by it may be half of something else."""
        try:
            line = await self._reader.readline()
            return line if line.endswith(b"\n") else b""
        except ValueError:  # the reader's limit
            self.refuse(f"a message is longer than {m.MAX_INCOMING} bytes")
            return b""

    def _handle(self, line: bytes) -> bool:
        """Take one request; False ends the connection."""
        try:
            request = m.decode_request(line)
        except ValueError as error:
            self.refuse(f"not a message of the control protocol: {sanitize(str(error), 200)}")
            return False
        match request:
            case m.CommandRequest():
                return self._take_command(request)
            case m.Ask():
                return self._take_ask(request)
            case m.Attend():
                return self._attend(request)
            case m.TakeWatch():
                self._take_watch(request)
            case m.Who():
                self.push(m.encode(self._server.watch.presence(self.viewer)))
            case m.Subscribe() if self._stream is None:
                self._stream = asyncio.create_task(self._feed(request.cursor))
            case m.Subscribe():
                self.refuse("subscribed twice on one connection")
                return False
        return True

    def _attend(self, request: m.Attend) -> bool:
        if self.viewer is not None:
            self.refuse("attended twice on one connection")
            return False
        self.viewer = Attendant.of(request.author, request.act, self._peer)
        if not self._server.watch.attend(self.viewer):
            self.viewer = None
            self.refuse("too many viewers attend this run already")
            return False
        return True

    def _take_watch(self, request: m.TakeWatch) -> None:
        watch = self._server.watch
        if self.viewer is None:
            done, text = False, "only a viewer that attends can have the watch"
        elif request.back:
            done, text = watch.give_back(self.viewer)
        else:
            done, text = watch.take(self.viewer, request.from_)
        self.push(m.encode(m.Result(id=request.id, status="done" if done else "refused", text=text)))

    def _take_command(self, request: m.CommandRequest) -> bool:
        if len(self._commands) >= COMMANDS_AT_ONCE:
            self.refuse(f"more than {COMMANDS_AT_ONCE} commands at once")
            return False
        if self.viewer is not None:
            request.author = request.author or self.viewer.author
            # A command that is known already does nothing anew: its sender, reconnected, asks for the result.
            if not request.dry_run and not self._server.dispatcher.knows(request.id):
                refusal = self._server.watch.refusal(self.viewer)
                if refusal:
                    self.push(m.encode(m.Result(id=request.id, status="refused", text=refusal)))
                    return True
        task = asyncio.create_task(self._answer(request))
        self._commands.add(task)
        task.add_done_callback(self._commands.discard)
        return True

    async def _answer(self, request: m.CommandRequest) -> None:
        result = await self._server.dispatcher.submit(request.to_command(), self._peer)
        self.push(m.encode(m.Result(id=request.id, status=result.status, text=result.text)))

    # --- content ----------------------------------------

    def _take_ask(self, request: m.Ask) -> bool:
        if len(self._asks) >= ASKS_AT_ONCE:
            self.refuse(f"more than {ASKS_AT_ONCE} questions at once")
            return False
        self._asks.append(request)
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._answer_asks())
        return True

    async def _answer_asks(self) -> None:
        while self._asks:
            data = await self._server.content_of(self._asks.popleft())
            try:
                await self._writer.drain()
            except OSError:
                return  # `run` ends too
            self.push(data)

    # --- stream ----------------------------------------

    async def _feed(self, cursor: int | None) -> None:
        try:
            if cursor is None or not 0 <= cursor <= self._server.tail.last:
                await self._send_view()
            else:
                self._sent = cursor
            await self._catch_up()
        except Exception as error:
            if not self._writer.is_closing():
                _log.exception("client %s cannot be served", self._peer)
                self.refuse(f"the journal cannot be served: {sanitize(str(error), 200)}")

    async def _send_view(self) -> None:
        view = self._server.view()
        self._sent, state, rows = view.state.seq, msgspec.Raw(encode_state(view.state)), list(view.history.rows)
        for start in range(0, len(rows), m.ROWS_PER_BATCH):
            await self._send(m.encode(m.HistoryRows(rows=rows[start : start + m.ROWS_PER_BATCH])))
        await self._send(m.encode(m.StateNow(state=state)))

    async def _catch_up(self) -> None:
        """Send what lies between the cursor and now, then go live. No step between the last check and `live` waits."""
        while (lines := self._server.tail.after(self._sent)) != []:
            if lines is None:
                await self._send_past()
                continue
            for data in m.event_batches(lines):
                await self._send(data)
            self._sent += len(lines)
        self._live = True

    async def _send_past(self) -> None:
        """From the files, until the tail covers the rest."""
        for _ in range(PAST_ATTEMPTS):
            while lines := await asyncio.to_thread(self._past_lines):
                for data in m.event_batches(lines):
                    await self._send(data)
                self._sent = m.seq_of(lines[-1])
                if self._server.tail.after(self._sent) is not None:
                    return
            await asyncio.sleep(0.1)
        raise OSError(f"event {self._sent + 1} is not in its files")

    def _past_lines(self) -> list[bytes]:
        return [m.for_wire(line) for line in islice(self._server.past(self._sent), PAST_BATCH)]

    async def _send(self, data: bytes) -> None:
        """Write and wait until the client has taken it: only this client's task waits."""
        self._writer.write(data)
        await self._writer.drain()
