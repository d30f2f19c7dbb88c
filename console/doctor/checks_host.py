"""The machine: memory, disk, descriptors, processes, namespaces, clock."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import console
from console.doctor.case import Case, Host
from console.doctor.report import Check, Question
from console.state.thresholds import AlarmThresholds

_GIB = 2**30
MEMORY_LEAST, MEMORY_GOOD = 1.5 * _GIB, 4 * _GIB
"""The engine with the SDK and the cookbook, a runner with Harbor: about 1.5 GiB before the first trial."""
FDS_LEAST, FDS_OWN, FDS_TRIAL = 256, 256, 16
"""Descriptors: too few for anything, of the engine itself, and of each trial (its connections, files and pipes)."""
PROCESSES_OWN, PROCESSES_TRIAL = 128, 32
INODES_LEAST = 10_000

PLATFORM = Question("host.platform", "sandboxes of our own are made of Linux namespaces; the rest runs on macOS too")
MEMORY = Question("host.memory", "what runs out of memory is killed without a word, and a run with it")
DISK = Question("host.disk", "a run whose disk is full stops: captured tokens that cannot be written are not trained")
FDS = Question("host.fds", "each trial holds connections, files and pipes; without a free one its calls fail")
PROCESSES = Question("host.processes", "each sandbox runs processes of its own; where no more are allowed it fails")
USERNS = Question("host.userns", "bubblewrap makes its sandboxes of user namespaces")
CLOCK = Question("host.clock", "certificates, leases of sandboxes and the times in the journal go by it")


def platform(case: Case) -> Iterator[Check]:
    """Which system this is."""
    system = case.host.system
    if system.startswith("linux"):
        release = (case.host.read("/proc/sys/kernel/osrelease") or "").strip()
        yield PLATFORM.ok(f"Linux {release}".strip())
    elif system == "darwin":
        yield PLATFORM.note("macOS: no bubblewrap here", "use e2b or docker sandboxes")
    else:
        yield PLATFORM.error(f"{system} is not supported", "use Linux, or WSL 2 on Windows")


def memory(case: Case) -> Iterator[Check]:
    """What is free, of the machine's and of this process' control group."""
    free = _free_memory(case.host)
    if free is None:
        yield MEMORY.skipped("this system does not tell what is free")
        return
    found = f"{free / _GIB:.1f} GiB free"
    remedy = f"free some: the engine and a runner take about {MEMORY_LEAST / _GIB:g} GiB before the first trial"
    if free < MEMORY_LEAST:
        yield MEMORY.error(found, remedy)
    elif free < MEMORY_GOOD:
        yield MEMORY.warning(found, remedy)
    else:
        yield MEMORY.ok(found)


def _free_memory(host: Host) -> int | None:
    free = [
        int(line.split()[1]) * 1024
        for line in (host.read("/proc/meminfo") or "").splitlines()
        if line.startswith("MemAvailable:")
    ]
    for group in _groups(host):
        limit, used = host.number(f"{group}/memory.max"), host.number(f"{group}/memory.current")
        if limit is not None and used is not None:
            free.append(max(0, limit - used))
    return min(free, default=None)


def _groups(host: Host) -> Iterator[str]:
    """The control group of this process and those above it, as directories."""
    for line in (host.read("/proc/self/cgroup") or "").splitlines():
        number, _, path = line.partition("::")
        if number != "0":
            continue
        while True:
            yield f"/sys/fs/cgroup{path.rstrip('/')}"
            if path in ("", "/"):
                return
            path = os.path.dirname(path)


def disk(case: Case) -> Iterator[Check]:
    """Free space and free inodes where runs, the registry and sandboxes are kept."""
    limits = AlarmThresholds() if case.options is None else case.options.console.alarms
    places = {"the state directory": case.host.state_dir, "sandboxes": Path(tempfile.gettempdir())}
    if case.options is not None:
        places = {"the run": case.options.log_path, **places}
    seen: dict[int, str] = {}
    for name, path in places.items():
        there = _nearest(path)
        device = there.stat().st_dev
        if device not in seen:
            seen[device] = name
            yield _disk(name, there, limits)


def _nearest(path: Path) -> Path:
    """The path, or the nearest one above it that exists."""
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _disk(name: str, path: Path, limits: AlarmThresholds) -> Check:
    usage, inodes = shutil.disk_usage(path), os.statvfs(path)
    free, share = usage.free / 1e9, usage.free / usage.total if usage.total else 1.0
    few = free < limits.disk_plenty_gb
    found = f"{free:.1f} GB free of {usage.total / 1e9:.1f} GB for {name} ({path})"
    remedy = f"free some; with less than {limits.disk_free_gb:g} GB an alarm is raised"
    if free < limits.disk_free_gb / 5 or (few and share < limits.disk_free_critical_share):
        return DISK.error(found, remedy)
    if inodes.f_files and inodes.f_favail < INODES_LEAST:
        return DISK.warning(f"{inodes.f_favail} files can still be made for {name} ({path})", "remove files there")
    if free < limits.disk_free_gb or (few and share < limits.disk_free_share):
        return DISK.warning(found, remedy)
    return DISK.ok(found)


def fds(case: Case) -> Iterator[Check]:
    """Open files that a process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FDS_OWN + FDS_TRIAL * case.trials
    found = f"{_count(soft)} open files a process, {case.trials} trials at a time want {wanted}"
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        yield FDS.ok(found)
        return
    enough = hard == resource.RLIM_INFINITY or hard >= wanted
    remedy = f"ulimit -n {wanted}" if enough else f"have the hard limit of {hard} raised to {wanted} (limits.conf)"
    yield (FDS.error if soft < FDS_LEAST else FDS.warning)(found, remedy)


def processes(case: Case) -> Iterator[Check]:
    """Processes that the account and this process' control group may have."""
    wanted = PROCESSES_OWN + PROCESSES_TRIAL * case.trials
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    free = [] if soft == resource.RLIM_INFINITY or case.host.uid == 0 else [soft]
    for group in _groups(case.host):
        limit, used = case.host.number(f"{group}/pids.max"), case.host.number(f"{group}/pids.current")
        if limit is not None and used is not None:
            free.append(max(0, limit - used))
    if not free or min(free) >= wanted:
        yield PROCESSES.ok(f"{min(free)} more are allowed" if free else "no limit")
    else:
        yield PROCESSES.warning(
            f"{min(free)} more are allowed, {case.trials} trials at a time may want {wanted}",
            "raise ulimit -u, or the container's --pids-limit, or run fewer trials at a time",
        )


_USERNS = (
    ("user.max_user_namespaces", "/proc/sys/user/max_user_namespaces", 0, "15000"),
    ("kernel.unprivileged_userns_clone", "/proc/sys/kernel/unprivileged_userns_clone", 0, "1"),
    (
        "kernel.apparmor_restrict_unprivileged_userns",
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        1,
        "0",
    ),
)


def userns(case: Case) -> Iterator[Check]:
    """Settings of the kernel that keep users from making namespaces; `sandbox.bubblewrap` tries it."""
    if not case.host.system.startswith("linux"):
        yield USERNS.skipped("only Linux has them")
        return
    for name, path, bad, good in _USERNS:
        if case.host.number(path) == bad and (case.host.uid != 0 or name == "user.max_user_namespaces"):
            yield USERNS.warning(f"{name}={bad} forbids them", f"sudo sysctl {name}={good}")
            return
    yield USERNS.ok("no setting forbids them")


def clock(case: Case) -> Iterator[Check]:
    """Whether the time of day can be right, and whether somebody keeps it."""
    now = datetime.fromtimestamp(case.host.now, UTC)
    installed = Path(console.__file__).stat().st_mtime
    if case.host.now < installed - 86400:
        yield CLOCK.error(
            f"it is {now:%Y-%m-%d %H:%MZ}, which is before this program was installed", "set the time of day"
        )
    elif case.host.synchronised is False:
        yield CLOCK.note(f"nobody keeps the clock ({now:%Y-%m-%d %H:%MZ})", "switch on chrony or systemd-timesyncd")
    else:
        kept = "is kept" if case.host.synchronised else "cannot be asked whether it is kept"
        yield CLOCK.ok(f"{now:%Y-%m-%d %H:%MZ}, the clock {kept}")


def _count(limit: int) -> str:
    return "any number of" if limit == resource.RLIM_INFINITY else str(limit)
