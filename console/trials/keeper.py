"""The process that keeps one sandbox: starts it, enters its namespaces, serves requests, takes it down.

It lives outside the sandbox's pid namespace, so nothing inside can see, trace or kill it; what it forks is inside. Its
requests arrive on a sequenced-packet socket from the trial's process, bulky parts in a memory file, so that neither
commands nor environments ever stand on a command line:

    {"op": "exec", "id"}              fds: payload (command, cwd, env, limits, cpus), stdout, stderr -> {"id", "code"}
    {"op": "kill", "id"}               SIGKILL to the command's process group
    {"op": "read", "id", "path"}       -> {"id"} with a descriptor of a regular file or a directory
    {"op": "write", "id", "path", "mode"}   -> {"id"} with a descriptor of a new file; parents are made
    {"op": "mkdir", "id", "path", "mode"?}  -> {"id"}; parents are made
    {"op": "kind", "id", "path"}       -> {"id", "kind": "file" | "dir" | "other" | "none"}
    {"op": "listen", "id", "address", "port"}  -> {"id"} with a listening socket of the sandbox's network

A failed request answers {"id", "error"}. Once: {"up": true} or {"failed": why}; {"lost": true} when the sandbox died.
End of file on the socket takes the sandbox down; the socket closes when everything is gone. Standard library only.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import socket
import stat
import struct
import subprocess
from typing import Any

from console.memory_order import SANDBOX, yield_memory
from console.trials import syscalls
from console.trials.launch import Launched, LaunchError, launch

_MESSAGE = 65536
_DOUBT_MS = 50
_SIOCSIFADDR, _SIOCSIFFLAGS = 0x8916, 0x8914
_IFF_UP, _IFF_LOOPBACK, _IFF_RUNNING = 0x1, 0x8, 0x40

# The command comes from a descriptor, so that it is on no command line; `$0` and messages look like `bash -c`.
_BOOT = 'ulimit {limits}; IFS= read -r -d "" -u {fd} _command; exec {fd}<&-; eval "$_command"'


class _Refused(Exception):
    """A command that cannot be started for a reason of its own; exit code 126."""


def keep(channel: socket.socket, spec: dict[str, Any]) -> None:
    """Run one sandbox from start to end; returns when it and every process in it are gone."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # no death by accident, and nothing that commands would inherit
        signal.signal(getattr(signal, name), lambda *_: None)
    yield_memory(SANDBOX)
    try:
        sandbox = launch(spec)
    except LaunchError as error:
        _send(channel, {"failed": str(error)[:2000]})
        return
    keeper = None
    try:
        keeper = _Keeper(channel, sandbox, ranged=spec["base"] is not None)
        _furnish(spec["tree"])
        _send(channel, {"up": True})
        keeper.serve()
    except OSError as error:
        _send(channel, {"failed": str(error)[:2000]})
    finally:
        _take_down(sandbox, keeper)


def _take_down(sandbox: Launched, keeper: _Keeper | None) -> None:
    with contextlib.suppress(OSError):
        if keeper is not None:
            signal.pidfd_send_signal(keeper.init, signal.SIGKILL)
        else:
            os.kill(sandbox.init, signal.SIGKILL)
    os.close(sandbox.lifeline)
    while True:  # the commands first: their namespace cannot end while they are unreaped zombies
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
        except InterruptedError:
            continue


def _send(channel: socket.socket, message: dict[str, Any], fd: int | None = None) -> None:
    rights = [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
    with contextlib.suppress(OSError):  # nobody there: the end of file that follows says so
        channel.sendmsg([json.dumps(message).encode()], rights)


class _Keeper:
    """Inside the sandbox's namespaces, all but the pid namespace, which only its children enter."""

    def __init__(self, channel: socket.socket, sandbox: Launched, ranged: bool) -> None:
        self.channel = channel
        self.init = os.pidfd_open(sandbox.init)
        self.null = os.open("/dev/null", os.O_RDONLY)
        self.commands: dict[int, tuple[int, int]] = {}  # pidfd -> (pid, request id)
        self.killed: set[int] = set()
        self.doubtful: list[dict[str, Any]] = []
        proc = os.open("/proc", os.O_PATH)
        names = ("user", "ipc", "uts", "net", "pid", "mnt")
        for fd in [os.open(f"/proc/{sandbox.init}/ns/{name}", os.O_RDONLY) for name in names]:
            os.setns(fd)
            os.close(fd)
        if ranged:
            os.setgroups([])
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
        syscalls.restrict_privileges()  # for what this process starts; itself keeps what it has
        syscalls.die_with_parent()
        syscalls.hide_memory()
        os.chdir("/")
        os.umask(0o022)
        with contextlib.suppress(OSError):  # no user namespaces below this one: less kernel within reach
            fd = os.open("sys/user/max_user_namespaces", os.O_WRONLY, dir_fd=proc)
            os.write(fd, b"0")
            os.close(fd)
        os.close(proc)
        self.poll = select.poll()
        for fd in (channel.fileno(), self.init):
            self.poll.register(fd, select.POLLIN)

    def serve(self) -> None:
        """Until the other side closes or the sandbox dies."""
        while True:
            ready = self.poll.poll(_DOUBT_MS if self.doubtful else None)
            if not ready:
                for answer in self.doubtful:
                    _send(self.channel, answer)
                self.doubtful.clear()
            for fd, _ in ready:
                if fd == self.init:
                    _send(self.channel, {"lost": True})
                    return
                if fd == self.channel.fileno():
                    if not self._receive():
                        return
                elif fd in self.commands:
                    self._ended(fd)

    def _receive(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self.channel, _MESSAGE, 8)
        if not data:
            return False
        request = json.loads(data)
        try:
            self._handle(request, fds)
        except OSError as error:
            _send(self.channel, {"id": request["id"], "error": os.strerror(error.errno or 0)})
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _handle(self, request: dict[str, Any], fds: list[int]) -> None:
        number = request["id"]
        fd: int | None = None
        answer: dict[str, Any] = {"id": number}
        match request["op"]:
            case "exec":
                self._exec(number, fds)
                return
            case "kill":
                for pid, command in self.commands.values():
                    if command == number:
                        self.killed.add(number)
                        os.kill(pid, signal.SIGKILL)  # still unreaped; it may not lead its group yet
                        with contextlib.suppress(OSError):
                            os.killpg(pid, signal.SIGKILL)
                return
            case "read":
                fd = _open_readable(request["path"])
            case "write":
                fd = _create(request["path"], request["mode"])
            case "mkdir":
                os.makedirs(request["path"], exist_ok=True)
                if "mode" in request:
                    os.chmod(request["path"], request["mode"])
            case "kind":
                answer["kind"] = _kind(request["path"])
            case "listen":
                fd = _listen(request["address"], request["port"])
        _send(self.channel, answer, fd)
        if fd is not None:
            os.close(fd)

    def _exec(self, number: int, fds: list[int]) -> None:
        payload, out, err = fds
        order = json.loads(os.pread(payload, os.fstat(payload).st_size, 0))
        try:
            pid = self._spawn(order, out, err)
        except _Refused as refused:
            os.write(err, f"{refused}\n".encode(errors="replace"))
            _send(self.channel, {"id": number, "code": 126})
            return
        pidfd = os.pidfd_open(pid)
        self.commands[pidfd] = (pid, number)
        self.poll.register(pidfd, select.POLLIN)

    def _spawn(self, order: dict[str, Any], out: int, err: int) -> int:
        """Start bash with the command; its pid. `Popen` with these arguments does not copy this process to do so."""
        command = os.memfd_create("command", os.MFD_CLOEXEC)
        try:
            os.write(command, _bytes(order["command"]))
            os.lseek(command, 0, os.SEEK_SET)
            try:
                os.chdir(order["cwd"])
            except OSError as error:
                raise _Refused(f"cannot enter {order['cwd']}: {error.strerror}") from None
            if order["cpus"]:
                os.sched_setaffinity(0, order["cpus"])
            try:
                process = subprocess.Popen(
                    ["bash", "-c", _BOOT.format(fd=command, limits=order["limits"])],
                    executable="/bin/bash",
                    env={_bytes(name): _bytes(value) for name, value in order["env"].items()},
                    stdin=self.null,
                    stdout=out,
                    stderr=err,
                    pass_fds=(command,),
                    start_new_session=True,
                )
            except ValueError as error:
                raise _Refused(f"bad environment: {error}") from None
        finally:
            os.close(command)
            os.chdir("/")
        process.returncode = 0  # reaped by this class, not behind its back
        return process.pid

    def _ended(self, pidfd: int) -> None:
        pid, number = self.commands.pop(pidfd)
        killed = number in self.killed
        self.killed.discard(number)
        self.poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        answer = {"id": number, "code": code if code >= 0 else 128 - code}
        if code == -signal.SIGKILL and not killed:
            # Perhaps the whole sandbox is dying: its process 1 ends after everything else in it.
            self.doubtful.append(answer)
        else:
            _send(self.channel, answer)


def _furnish(tree: dict[str, Any]) -> None:
    """Make the private part of the file system: `directories` ([path, mode]), `files` and `links` (path to content)."""
    for path, mode in tree["directories"]:
        os.makedirs(path, exist_ok=True)
        os.chmod(path, mode)
    for path, text in tree["files"].items():
        with open(path, "w") as file:
            file.write(text)
    for path, target in tree["links"].items():
        os.symlink(target, path)


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _open_readable(path: str) -> int:
    """A regular file or directory, links followed within the sandbox; never blocks on a pipe or opens a device."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    mode = os.fstat(fd).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file")
    return fd


def _create(path: str, mode: int) -> int:
    """A new file in place of whatever file, link or pipe was there."""
    os.makedirs(os.path.dirname(path) or "/", exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    os.fchmod(fd, mode & 0o7777)
    return fd


def _kind(path: str) -> str:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return "none"
    return "dir" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def _listen(address: str, port: int) -> int:
    with contextlib.closing(socket.socket()) as listener:
        if not address.startswith("127."):
            _add_loopback_address(listener, address)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(64)
        return os.dup(listener.fileno())


def _add_loopback_address(any_socket: socket.socket, address: str) -> None:
    """Give the sandbox's loopback device the gateway's own address, so that the gateway's URL works unchanged."""
    name = b"lo:1".ljust(16, b"\0")
    target = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
    fcntl.ioctl(any_socket, _SIOCSIFADDR, name + target)
    fcntl.ioctl(any_socket, _SIOCSIFFLAGS, name + struct.pack("=H", _IFF_UP | _IFF_LOOPBACK | _IFF_RUNNING))
