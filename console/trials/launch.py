"""Starting one bubblewrap: user namespace, id map, private mounts, exec. Standard library only.

Started as root, ids 0..65535 of the sandbox map to a range that nobody else uses: the sandbox's root is then nobody to
the host, its process limit counts, and package managers can switch users. Started as anybody else, id 0 maps to the
user. The map is written here rather than by bubblewrap, which knows only the second kind.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.trials import syscalls

_START_LIMIT = 30.0
"""Seconds a sandbox may take to come up."""

# Process 1: says it is up, reaps orphans (bash does, while it reads), outlives every signal, ends when its input does.
_INIT = (
    'trap "" HUP INT QUIT TERM PIPE USR1 USR2 ALRM; echo ready; exec >/dev/null 2>&1; until [ -n "$_end" ]; do'
    " IFS= read -r _ || _end=1; done"
)
RANGE = 65536
_INODES_PER_MB = 100


class LaunchError(Exception):
    """The sandbox did not come up; the message is what bubblewrap or the kernel said."""


@dataclass(frozen=True)
class Launched:
    """A running sandbox.

    Attributes:
        outer: pid of the bubblewrap process, a child of the caller; its death ends the sandbox.
        init: pid, on the host, of the sandbox's process 1.
        lifeline: descriptor whose closing makes process 1 exit.
    """

    outer: int
    init: int
    lifeline: int


def launch(spec: dict[str, Any]) -> Launched:
    """Start a sandbox and wait until it is up.

    Args:
        spec: `bwrap` (path), `libs` (its library directory or None), `fs` (host directory that becomes `/`, None for
            memory), `storage_mb` (size of a root in memory), `base` (first host id of the range, or None), `arguments`
            (bubblewrap options that need no staging), `binds` ([source, target, read-only] each, host paths),
            `environment` of process 1.

    Raises:
        LaunchError: it did not come up; nothing is left behind.
    """
    info_read, info_write = os.pipe()
    ready_read, ready_write = os.pipe()
    life_read, life_write = os.pipe()
    born_read, born_write = os.pipe()
    go_read, go_write = os.pipe()
    errors = os.memfd_create("errors", os.MFD_CLOEXEC)
    parent = os.getpid()
    outer = os.fork()
    if outer == 0:
        try:
            os.setsid()
            syscalls.die_with_parent()
            os.close(go_write)
            os.dup2(life_read, 0)
            os.dup2(ready_write, 1)
            os.dup2(errors, 2)
            _become_bwrap(spec, parent, born_write, go_read, info_write)
        except BaseException as error:
            os.write(errors, str(error).encode())
        finally:
            os._exit(1)
    for fd in (info_write, ready_write, life_read, born_write, go_read):
        os.close(fd)
    try:
        if os.read(born_read, 1):  # nothing when it died before
            _write_maps(outer, spec["base"])
            os.write(go_write, b"g")
        if _line(ready_read) != b"ready":
            raise LaunchError("the sandbox did not come up")
        return Launched(outer, int(json.loads(os.read(info_read, 4096))["child-pid"]), life_write)
    except (LaunchError, OSError, ValueError, KeyError) as error:
        os.close(life_write)
        _kill_half_started(outer, info_read)
        said = os.pread(errors, 2000, 0).decode(errors="replace").strip()
        raise LaunchError(said or str(error)) from None
    finally:
        for fd in (info_read, ready_read, born_read, go_write, errors):
            os.close(fd)


def _write_maps(pid: int, base: int | None) -> None:
    process = Path(f"/proc/{pid}")
    if base is None:
        (process / "setgroups").write_text("deny")
        (process / "uid_map").write_text(f"0 {os.geteuid()} 1")
        (process / "gid_map").write_text(f"0 {os.getegid()} 1")
    else:
        (process / "uid_map").write_text(f"0 {base} {RANGE}")
        (process / "gid_map").write_text(f"0 {base} {RANGE}")


def _line(fd: int) -> bytes:
    """One line from a pipe within the start limit, b"" on end of file or time-out."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    end = time.monotonic() + _START_LIMIT
    data = b""
    while not data.endswith(b"\n"):
        if not poll.poll(max(0.0, end - time.monotonic()) * 1000) or not (piece := os.read(fd, 64)):
            return b""
        data += piece
    return data.strip()


def _kill_half_started(outer: int, info: int) -> None:
    """The inner process arms its death signal late; without this, killing the outer one could leave it for ever."""
    os.set_blocking(info, False)
    with contextlib.suppress(OSError, ValueError, KeyError):
        os.kill(int(json.loads(os.read(info, 4096))["child-pid"]), 9)
    with contextlib.suppress(OSError):
        os.kill(outer, 9)
    with contextlib.suppress(OSError):
        os.waitpid(outer, 0)


def _become_bwrap(spec: dict[str, Any], parent: int, born: int, go: int, info: int) -> None:
    program = os.open(spec["bwrap"], os.O_RDONLY)
    os.set_inheritable(info, True)
    os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNS)
    # Opened while this still has its user's rights on the host: the range's ids may not be able to reach these paths.
    root = os.open(spec["fs"], os.O_PATH) if spec["fs"] else None
    binds = [(os.open(source, os.O_PATH), target, read_only) for source, target, read_only in spec["binds"]]
    libraries = os.open(spec["libs"], os.O_PATH) if spec["libs"] else None
    os.write(born, b"b")
    if os.read(go, 1) != b"g":
        raise LaunchError("the id map was refused")
    if spec["base"] is not None:
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    syscalls.die_with_parent()
    if os.getppid() != parent:
        raise LaunchError("the parent is gone")
    syscalls.mount("tmpfs", "/run", "tmpfs", "mode=755,size=1m")  # in this process's own mounts only
    os.mkdir("/run/root")
    if root is None:
        inodes = spec["storage_mb"] * _INODES_PER_MB
        syscalls.mount("tmpfs", "/run/root", "tmpfs", f"mode=755,size={spec['storage_mb']}m,nr_inodes={inodes}")
    else:
        syscalls.mount(f"/proc/self/fd/{root}", "/run/root", None)
    arguments = ["bwrap", "--info-fd", str(info), "--bind", "/run/root", "/", *spec["arguments"]]
    for index, (fd, target, read_only) in enumerate(binds):
        arguments += ["--ro-bind" if read_only else "--bind", _stage(f"/run/{index}", fd), target]
    for name, value in spec["environment"].items():
        arguments += ["--setenv", name, value]
    environment = {} if libraries is None else {"LD_LIBRARY_PATH": _stage("/run/libraries", libraries)}
    os.execve(program, [*arguments, "--", "/usr/bin/bash", "-c", _INIT], environment)


def _stage(target: str, fd: int) -> str:
    """Bind an opened path to a place that the range's ids can reach."""
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    syscalls.mount(f"/proc/self/fd/{fd}", target, None)
    return target
