"""A relay in front of an engine's socket, as SSH forwards one: it can be cut, come back, or swallow what passes."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from pathlib import Path


class Relay:
    """Runs on a thread of its own. `path`: where it listens.

    Attributes:
        swallow: everything that passes is lost, and the connections stay open.
    """

    def __init__(self, path: Path, target: Path) -> None:
        self.path, self.swallow = path, False
        self._target = target
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._wake, self._waker = socket.socketpair()
        self._listener: socket.socket | None = None
        self._over = False
        self.mend()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def mend(self) -> None:
        """Listen, once more."""
        self.swallow = False
        listener = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        listener.bind(str(self.path))
        listener.listen()
        self._listener = listener
        self._waker.send(b"x")

    def cut(self) -> None:
        """End all connections; nobody listens any more."""
        listener, self._listener = self._listener, None
        os.unlink(self.path)
        for one in [*self._pairs, *([listener] if listener is not None else [])]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._waker.send(b"x")

    def close(self) -> None:
        self._over = True
        self._waker.send(b"x")
        self._thread.join(5)

    def _run(self) -> None:
        while not self._over:
            listener = self._listener
            ready, _, _ = select.select([self._wake, *([listener] if listener else []), *self._pairs], [], [], 1.0)
            for one in ready:
                if one is self._wake:
                    one.recv(64)
                elif one is listener:
                    self._accept(one)
                elif one in self._pairs:
                    self._pass_on(one)
        for one in self._pairs:
            one.close()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            near, _ = listener.accept()
            far = socket.socket(socket.AF_UNIX)
            far.connect(str(self._target))
            self._pairs[near], self._pairs[far] = far, near

    def _pass_on(self, one: socket.socket) -> None:
        other = self._pairs[one]
        try:
            data = one.recv(65536)
            if data and not self.swallow:
                other.sendall(data)
        except OSError:
            data = b""
        if not data:
            for end in (one, other):
                self._pairs.pop(end, None)
                end.close()
