"""The engine's socket: the journal from a cursor to any number of viewers, commands from them to the dispatcher.

Everything here runs on the engine's main loop and thread. Nothing that the engine calls waits for a viewer: a live line
is put into a client's write buffer, and a client whose buffer grows too large is dropped; it comes back by cursor.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from console.control import messages as m
from console.control.binding import listen, may_connect, peer_of
from console.control.connection import Connection
from console.control.dispatch import CommandDispatcher
from console.control.tail import Tail
from console.control.watch import Watch
from console.journal.events import Event
from console.records.content import TrialContent
from console.state.reduce import RunView
from console.state.sanitize import sanitize

HEARTBEAT_SECONDS = 2.0
CLOSING_SECONDS = 1.0
CONTENT_THREADS = 2

_log = logging.getLogger(__name__)


class ControlServer:
    """Serves one run.

    Attributes:
        path: the socket; view: the run's view now; past: some journal lines after a `seq`, read from the files;
        dispatcher: where commands go; watch: who attends, and who may act; tail: the newest lines.
        last_word: said to everybody at the close, when the journal cannot tell how the run ended; else empty.
    """

    def __init__(
        self,
        path: Path,
        *,
        run_id: str,
        run_dir: Path,
        view: Callable[[], RunView],
        past: Callable[[int], Iterable[bytes]],
        dispatcher: CommandDispatcher,
        content: Callable[[m.Ask], m.Content] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Nothing is opened before `start`. `past` (see `PastLines`) and `content` are called on worker threads.

        `content` answers what viewers ask of a trial; by default from the run directory. `clock` tells the run's time.
        """
        self.path = path
        self.view = view
        self.past = past
        self.dispatcher = dispatcher
        self.watch = Watch(dispatcher.append_event, dispatcher.audit, self._tell_presence)
        self.tail = Tail(view().state.seq)
        self.last_word = ""
        self._run_id, self._run_dir = run_id, run_dir
        self._clock = clock
        self._content = content if content is not None else TrialContent(run_dir).answer
        self._readers = ThreadPoolExecutor(CONTENT_THREADS, thread_name_prefix="content")
        self._pending: list[bytes] = []
        self._scheduled = False
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._inode: int | None = None
        self._heart: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Bind and serve. Raises `ControlError` when the socket cannot be opened or is another engine's."""
        listening = listen(self.path)
        self._inode = self.path.stat().st_ino
        self._server = await asyncio.start_unix_server(self._accepted, sock=listening, limit=m.MAX_INCOMING)
        self._loop = asyncio.get_running_loop()
        self._heart = asyncio.create_task(self._beat())

    def publish(self, line: bytes, event: Event) -> None:
        """A journal line just written, in order: what `JournalWriter.subscribe` calls. On the server's loop."""
        line = m.for_wire(line)
        self.tail.add(event.seq, line)
        if self._loop is None:
            return
        self._pending.append(line)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def hello(self) -> m.Hello:
        """The greeting."""
        return m.Hello(run_id=self._run_id, run_dir=os.fspath(self._run_dir), pid=os.getpid(), seq=self.tail.last)

    @property
    def clients(self) -> int:
        """Connections now."""
        return len(self._connections)

    async def content_of(self, ask: m.Ask) -> bytes:
        """The encoded answer to a question of a viewer, read on a worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read_content, ask)

    async def close(self) -> None:
        """Hand out the last lines, end all connections, remove the socket."""
        self.watch.close()
        self._flush()
        for connection in list(self._connections) if self.last_word else []:
            connection.push(m.encode(m.Failure(text=self.last_word)))
        if self._heart is not None:
            self._heart.cancel()
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*(c.finish(CLOSING_SECONDS) for c in list(self._connections)), return_exceptions=True)
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._remove_socket()

    # --- inside ----------------------------------------

    def _flush(self) -> None:
        """Send the lines of this turn of the loop to every live client, as one message each."""
        self._scheduled = False
        lines, self._pending = self._pending, []
        if not lines:
            return
        batches = list(m.event_batches(lines))
        first = self.tail.last - len(lines) + 1
        for connection in list(self._connections):
            connection.live_lines(first, lines, batches)

    def _read_content(self, ask: m.Ask) -> bytes:
        try:
            return m.encode(self._content(ask))
        except Exception as error:
            _log.exception("content (%s) cannot be read", ask.kind)
            why = f"it cannot be read: {type(error).__name__}: {sanitize(str(error), 200)}"
            return m.encode(m.Content(id=sanitize(ask.id, 64), kind=ask.kind, cursor=ask.cursor, note=why))

    def _tell_presence(self) -> None:
        for connection in list(self._connections):
            if connection.viewer is not None:
                connection.push(m.encode(self.watch.presence(connection.viewer)))

    async def _beat(self) -> None:
        while True:
            beat = m.encode(m.Heartbeat(seq=self.tail.last, ts=self._clock()))
            for connection in list(self._connections):
                connection.beat(beat)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = peer_of(writer.get_extra_info("socket"))
        connection = Connection(self, reader, writer, peer)
        if not may_connect(peer):
            _log.warning("connection of another user refused: pid %s, uid %s", *(peer or ("?", "?")))
            connection.refuse("this run belongs to another user")
            return
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    def _remove_socket(self) -> None:
        try:
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()
        except FileNotFoundError:
            pass
