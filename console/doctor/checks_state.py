"""The user's state directory, the sockets in it, the runs that it knows, and the sandboxes that they left."""

from __future__ import annotations

import json
import os
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from console.control.binding import PATH_LIMIT
from console.control.registry import RunEntry, engine_alive, entries
from console.control.runs import RunInfo, info_of
from console.doctor.case import Case, Host
from console.doctor.report import Check, Question
from console.errors import ControlError, RecordingError
from console.records.sandbox_ledger import LEDGER, LedgerView
from console.trials.roots import start_ticks

LOOK_SECONDS = 0.4
"""For looking at runs; of many the newest are looked at."""
RECENT_DAYS = 7
SOCKET_NAME = f"{'0' * 20}.sock"
"""As long as a run's id makes it."""
REGISTRY = "runs.jsonl"
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "afs", "lustre", "beegfs", "ceph")
_NAMED = 5

DIRECTORY = Question("state.dir", "the list of runs and the sockets of their engines are kept there, closed to others")
REGISTRY_FILE = Question("state.registry", "runs, attach and ctl find a run by its line there")
SOCKET = Question("state.socket", "an engine that cannot listen there does not start")
DEAD = Question("runs.dead", "an engine that was killed wrote no end; what it had trained and captured is on the disk")
ORPHANED = Question("sandboxes.orphaned", "a sandbox that nobody watches costs money until its provider ends it")


def directory(case: Case) -> Iterator[Check]:
    """Whose it is, whether it can be written, and what it lies on. It is not made here."""
    path = case.host.state_dir
    above = path
    while not above.exists() and above != above.parent:
        above = above.parent
    try:
        found = above.stat()
        if path.is_symlink() or not stat.S_ISDIR(found.st_mode) or (above == path and found.st_uid != case.host.uid):
            yield DIRECTORY.error(f"{path} is not a directory of yours", "remove it, or set QUARTERDECK_STATE_DIR")
            return
        with tempfile.TemporaryDirectory(dir=above, prefix=".quarterdeck-"):
            pass
    except OSError as error:
        yield DIRECTORY.error(f"{path}: nothing can be written ({error.strerror})", "set QUARTERDECK_STATE_DIR")
        return
    runtime = case.host.env.get("XDG_RUNTIME_DIR", "")
    if runtime and path.is_relative_to(runtime):
        yield DIRECTORY.warning(f"{path} is removed at your last log-out", "set QUARTERDECK_STATE_DIR to another place")
    elif (kind := _file_system(case.host, above)) in _NETWORK:
        yield DIRECTORY.warning(
            f"{path} lies on {kind}, where locks and sockets may not work", "set QUARTERDECK_STATE_DIR to a local disk"
        )
    else:
        yield DIRECTORY.ok(str(path))


def _file_system(host: Host, path: Path) -> str:
    """Type of the mount that a path lies on, empty when it is not known."""
    best, kind = "", ""
    for line in (host.read("/proc/self/mountinfo") or "").splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) > 4 and right:
            mount = fields[4].replace("\\040", " ")
            if path.is_relative_to(mount) and len(mount) >= len(best):
                best, kind = mount, right.split()[0]
    return kind


def registry(case: Case) -> Iterator[Check]:
    """Whether its lines can be read."""
    path = case.host.state_dir / REGISTRY
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        yield REGISTRY_FILE.ok("no runs yet")
        return
    except OSError as error:
        yield REGISTRY_FILE.error(f"{path} cannot be read ({error.strerror})", "correct its permissions")
        return
    bad = sum(not _is_entry(line) for line in lines)
    if bad:
        yield REGISTRY_FILE.warning(
            f"{bad} of {len(lines)} lines in {path} cannot be read and are skipped",
            "nothing is lost but the names: open such a run by its directory",
        )
    else:
        yield REGISTRY_FILE.ok(f"{len(lines)} lines")


def _is_entry(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def listening(case: Case) -> Iterator[Check]:
    """Binds a socket where engines do, and takes it away again."""
    sockets = case.host.state_dir / "sockets"
    if len(os.fsencode(sockets / SOCKET_NAME)) > PATH_LIMIT:
        sockets = Path("/tmp") / f"quarterdeck-{case.host.uid}"
    above = sockets
    while not above.is_dir() and above != above.parent:
        above = above.parent
    name = above / f".doctor-{os.getpid()}"
    if len(os.fsencode(name)) > PATH_LIMIT:
        yield SOCKET.skipped(f"{above} is too long a path for a socket; engines use {sockets}")
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            try:
                server.bind(os.fspath(name))
                server.listen(1)
            finally:
                name.unlink(missing_ok=True)
    except OSError as error:
        yield SOCKET.error(
            f"no socket can be bound in {above} ({error.strerror})",
            "set QUARTERDECK_STATE_DIR to a local disk of yours",
        )
        return
    yield SOCKET.ok(f"sockets can be bound in {above}")


def dead_runs(case: Case) -> Iterator[Check]:
    """Runs whose engine is gone without a word."""
    looked, total = _runs(case)
    dead = [run for run in looked if run.state == "dead"]
    live = sum(run.state == "live" for run in looked)
    of = "" if len(looked) == total else f" (the newest {len(looked)} of {total} were looked at)"
    if not dead:
        yield DEAD.ok(f"{live} live, none dead{of}")
        return
    recent = [run for run in dead if run.heard is None or case.host.now - run.heard < RECENT_DAYS * 86400]
    named = ", ".join(run.run_id for run in (recent or dead)[:_NAMED])
    more = f" and {len(recent or dead) - _NAMED} more" if len(recent or dead) > _NAMED else ""
    remedy = "quarterdeck train --resume RUN goes on from its last checkpoint; quarterdeck replay RUN shows its end"
    if recent:
        yield DEAD.warning(f"dead within the last {RECENT_DAYS} days: {named}{more}{of}", remedy)
    else:
        yield DEAD.note(f"dead for longer: {named}{more}{of}", remedy)


def _runs(case: Case) -> tuple[list[RunInfo], int]:
    """The newest runs whose directory is there, as many as time allows, and how many there are."""
    known = [entry for entry in reversed(_known(case)) if Path(entry.run_dir).is_dir()]
    looked: list[RunInfo] = []
    until = time.monotonic() + LOOK_SECONDS
    for entry in known:
        if looked and time.monotonic() > until:
            break
        looked.append(info_of(entry))
    return looked, len(known)


def _known(case: Case) -> list[RunEntry]:
    """Registered runs; none where the registry cannot be used, of which the other checks tell."""
    if not (case.host.state_dir / REGISTRY).exists():
        return []  # asking for the entries would make the directory
    try:
        return list({entry.run_dir: entry for entry in entries()}.values())
    except ControlError:
        return []


def orphaned_sandboxes(case: Case) -> Iterator[Check]:
    """What the ledgers of the known runs have open, and no engine watches."""
    found: list[str] = []
    runs: dict[str, None] = {}
    unread: list[str] = []
    looked = 0
    here = socket.gethostname()
    until = time.monotonic() + LOOK_SECONDS
    known = [entry for entry in reversed(_known(case)) if (Path(entry.run_dir) / LEDGER).exists()]
    for entry in known:
        if looked and time.monotonic() > until:
            break
        looked += 1
        if entry.host not in ("", here):
            if engine_alive(entry):  # by its journal: what of the ledger is its own, cannot be told from here
                continue
            engine = ""
        else:
            engine = f"{entry.pid}-{start_ticks(entry.pid)}"  # a process that is gone, or another one, owns none
        view = LedgerView(entry.run_dir, engine)
        try:
            view.refresh()
        except RecordingError:
            unread.append(entry.run_id)
            continue
        for name in (*view.orphaned, *view.left):
            found.append(name)
            runs[entry.run_id] = None
    of = "" if looked == len(known) else f" (the ledgers of the newest {looked} runs of {len(known)} were read)"
    if found:
        yield ORPHANED.warning(
            f"{len(found)} may still exist, of {', '.join(list(runs)[:_NAMED])}: {', '.join(found[:_NAMED])}{of}",
            f"quarterdeck reap {next(iter(runs)) if len(runs) == 1 else '--all'}: it lists, asks, and removes",
        )
    elif unread:
        yield ORPHANED.warning(f"the ledger of {', '.join(unread[:_NAMED])} cannot be read", "correct its permissions")
    else:
        yield ORPHANED.ok(f"none{of}")
