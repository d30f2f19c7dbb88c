"""The process that owns a runner's sandboxes: one small one beside each process that runs trials.

It forks a keeper per sandbox, so that starting one costs the big process nothing. When its owner dies, however it dies,
the keepers see their sockets close and take the sandboxes down; the warden waits for them, removes the roots that
the owner had not removed, and exits. Standard library only.

Messages on its socket: {"op": "start"} with a payload (the keeper's specification) and the keeper's socket;
{"op": "forget", "root"} once the owner has removed a root, or means to keep it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
from pathlib import Path

from console.trials import syscalls
from console.trials.keeper import keep
from console.trials.roots import remove_root


def main(fd: int, held: int | None = None) -> None:
    """Serve until end of file on socket `fd`, then clean up. Descriptor `held` stays open until then."""
    for own in (fd, held):
        if own is not None:
            os.set_inheritable(own, False)
    owner = socket.socket(fileno=fd)
    os.setsid()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # its end is its owner's end, in order
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    gc.freeze()
    roots: set[str] = set()
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(owner, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poll.poll()]
        if wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake_read, 4096)
            _reap()
        if owner.fileno() in ready and not _receive(owner, roots):
            break
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    for root in roots:
        with contextlib.suppress(OSError):  # what cannot be removed is found by name later
            remove_root(Path(root))


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _receive(owner: socket.socket, roots: set[str]) -> bool:
    try:
        data, fds, _, _ = socket.recv_fds(owner, 65536, 8)
    except ConnectionError:
        return False
    if not data:
        return False
    for fd in fds:
        os.set_inheritable(fd, False)
    message = json.loads(data)
    if message["op"] == "forget":
        roots.discard(message["root"])
        return True
    payload, channel = fds
    spec = json.loads(os.pread(payload, os.fstat(payload).st_size, 0))
    if spec["root"]:
        roots.add(spec["root"])
    parent = os.getpid()
    if os.fork() == 0:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            owner.close()
            os.close(payload)
            syscalls.die_with_parent()
            if os.getppid() == parent:
                keep(socket.socket(fileno=channel), spec)
            code = 0
        finally:
            os._exit(code)
    for fd in fds:
        os.close(fd)
    return True
