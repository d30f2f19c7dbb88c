"""Starting an engine: a run directory, the options in a file, a process in a session of its own, and its answer.

The engine's own import is heavy; this module only starts it by name. The options can be read again from their file.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import msgspec

from console.child import importing_us, module_command
from console.control.registry import socket_path
from console.errors import ControlError, MissingExtraError, QuarterdeckError, UsageError
from console.training.options import RunOptions

OPTIONS_FILE = "options.json"
"""Not config.json: the cookbook writes one of its own."""
ANNOUNCE_SECONDS = 60.0
STOP_SECONDS = 60.0
"""For an engine that was told to stop before anybody watched it; its trials have hardly begun."""


class LaunchedRun(msgspec.Struct, kw_only=True):
    """A started engine.

    Attributes:
        socket: where it listens; owner_fd: held open by the command that owns the run, None when nobody does;
            closing it ends the run.
    """

    run_id: str
    run_dir: Path
    pid: int
    socket: Path
    owner_fd: int | None = None


def new_run_id(now: float | None = None) -> str:
    """Sortable by time, unique by chance: 20261129-142233-7f3a."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(now)) + "-" + secrets.token_hex(2)


def recorded_options(run_dir: Path) -> RunOptions:
    """The options of a run's last engine; the run directory is where it lies now.

    Raises:
        UsageError: they are missing or cannot be read.
    """
    path = run_dir / OPTIONS_FILE
    try:
        options = RunOptions.from_json(path.read_bytes())
    except (OSError, UsageError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is damaged"
        raise UsageError(
            f"{path}: the run's options cannot be read ({why}); give all of them with quarterdeck train"
        ) from None
    given = tuple(dict.fromkeys([*options.given, "config.log_path"]))
    return msgspec.structs.replace(options, config=options.config | {"log_path": str(run_dir)}, given=given)


def require_engine() -> None:
    """Raises `MissingExtraError` when the extra `engine` is not installed."""
    missing = [name for name in ("tinker", "tinker_cookbook", "harbor", "torch") if not importlib.util.find_spec(name)]
    if missing:
        raise MissingExtraError(
            f"this command needs the extra `engine` ({', '.join(missing)} missing): pip install 'quarterdeck[engine]'"
        )


class Launch:
    """An engine that was told to start, and has not answered yet.

    Attributes:
        run_id, run_dir: of the run; socket: where it will listen; run: what it answered.
        awaited: whether somebody waits for its answer, as the console does once it is on the screen.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        announce_fd: int,
        owner_fd: int | None,
        options_file: Path,
        run_dir: Path,
        run_id: str,
    ) -> None:
        self.run_dir, self.run_id, self.socket = run_dir, run_id, socket_path(run_id)
        self._process, self._announce_fd, self._owner_fd = process, announce_fd, owner_fd
        self._options_file = options_file
        self.awaited = False
        self.run: LaunchedRun | None = None

    def wait(self) -> LaunchedRun:
        """Wait until the engine's socket is bound. To be called once.

        Raises:
            QuarterdeckError: what the engine said instead of starting; its exit code is kept.
        """
        self.awaited = True
        try:
            record = _announcement(self._announce_fd, self._process, self.run_dir)
        finally:
            with contextlib.suppress(OSError):
                self._options_file.unlink(missing_ok=True)  # the engine has taken it, or will not
        if record.get("type") != "launch":
            self._process.wait()
            if self._owner_fd is not None:
                os.close(self._owner_fd)
            error = QuarterdeckError(str(record.get("message")))
            error.exit_code = int(str(record.get("exit_code", 7)))
            raise error
        self.run = LaunchedRun(
            run_id=self.run_id,
            run_dir=self.run_dir,
            pid=self._process.pid,
            socket=Path(str(record["socket"])),
            owner_fd=self._owner_fd,
        )
        return self.run

    def abandon(self) -> bool:
        """Have the engine stop in order, nobody having seen the run; whether it has ended.

        Raises:
            QuarterdeckError: what the engine said instead of starting; its exit code is kept.
        """
        from console.control.blocking import new_command, send_command

        run = self.run or self.wait()
        try:
            send_command(run.socket, new_command("stop_now", reason="interrupted while it started"), run=run.run_id)
        except ControlError:
            self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True


def begin(options: RunOptions, run_id: str, *, on_failure: str, owned: bool) -> Launch:
    """Tell an engine to start for these options.

    Args:
        on_failure: stop, hold or retry; owned: the run ends when this process does.

    Raises:
        UsageError: the run directory cannot be written.
    """
    run_dir = options.log_path
    return start_engine(
        "console.engine",
        run_dir,
        run_id,
        options.to_json(),
        ["--on-failure", on_failure],
        owned=owned,
        cwd=run_dir,
        told=f"config.log_path={run_dir}",
    )


def start_engine(
    module: str,
    run_dir: Path,
    run_id: str,
    options: bytes,
    words: Sequence[str] = (),
    *,
    owned: bool,
    cwd: Path | None = None,
    told: str,
) -> Launch:
    """Start the module of an engine, in a session of its own.

    Args:
        options: as the engine reads them from the file that it is given; words: more of its command line.
        owned: the run ends when this process does; cwd: where it works, None for here.
        told: the run directory, as a message names it.

    Raises:
        UsageError: the run directory cannot be written.
    """
    # Of this process: of two that begin at once, the one that comes too late must not change the other's options.
    options_file = run_dir / f"options.{run_id}.{os.getpid()}.json"
    with _prepared(run_dir, options, options_file, told) as log:
        announce_read, announce_write = os.pipe()
        owner_read, owner_write = os.pipe() if owned else (None, None)
        command = [*module_command(module), "--run-dir", str(run_dir), "--run-id", run_id, *words]
        command += ["--options", str(options_file), "--announce-fd", str(announce_write)]
        passed = [announce_write]
        if owner_read is not None:
            command += ["--owner-fd", str(owner_read)]
            passed.append(owner_read)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=passed,
            cwd=cwd,
            env=importing_us(os.environ),
        )
    for fd in passed:
        os.close(fd)
    return Launch(process, announce_read, owner_write, options_file, run_dir, run_id)


def _prepared(run_dir: Path, options: bytes, options_file: Path, told: str) -> IO[bytes]:
    """The directory with the options in it, and the engine's open log. Raises `UsageError` when it is not possible."""
    try:
        run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(options_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(options)
        return os.fdopen(os.open(run_dir / "engine.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"{told}: cannot be written ({why}); choose another directory") from None


def _announcement(fd: int, process: subprocess.Popen[bytes], run_dir: Path) -> dict[str, object]:
    """The one line that the engine says, or what its death says."""
    import select

    data = b""
    deadline = time.monotonic() + ANNOUNCE_SECONDS
    with contextlib.closing(os.fdopen(fd, "rb", buffering=0)) as pipe:
        while not data.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                process.kill()
                return {
                    "message": f"the engine did not start within {ANNOUNCE_SECONDS:.0f} s; see {run_dir}/engine.log"
                }
            chunk = pipe.read(65536)
            if not chunk:
                break
            data += chunk
    try:
        return dict(json.loads(data))
    except ValueError:
        return {"message": f"the engine ended before it started: see {run_dir}/engine.log"}
