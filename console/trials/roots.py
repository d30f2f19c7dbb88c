"""Sandbox roots on the host: named after the process that owns them, and removable whatever a sandbox left in them.

Standard library only: the warden process imports this without the rest of the package.
"""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from pathlib import Path

ENVIRONMENT_VARIABLE = "QUARTERDECK_SANDBOXES"
_NAME_LIMIT = 60


def default_root_dir() -> Path:
    """Where roots go when a trial does not say: `$QUARTERDECK_SANDBOXES` (a runner's engine sets it), else one private
    directory per user under the temporary directory.
    """
    if chosen := os.environ.get(ENVIRONMENT_VARIABLE):
        return Path(chosen)
    return Path(tempfile.gettempdir()) / f"quarterdeck-sandboxes-{os.geteuid()}"


def start_ticks(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot, None when there is no such process (or only a zombie)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def make_root(root_dir: Path, session_id: str) -> Path:
    """Create `<root_dir>/<pid>-<start ticks>-<session>-<random>`, mode 0700.

    Args:
        root_dir: parent of the roots; created (0700) when absent.
        session_id: Harbor's name for the environment; unsafe characters are replaced, its end is kept.

    Raises:
        OSError: the directory cannot be made, or `root_dir` belongs to somebody else.
    """
    root_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = root_dir.stat().st_uid
    if owner not in (os.geteuid(), 0):
        raise PermissionError(f"{root_dir} belongs to uid {owner}; choose another root_dir")
    pid = os.getpid()
    root = root_dir / f"{pid}-{start_ticks(pid)}-{_safe(session_id)}-{secrets.token_hex(4)}"
    root.mkdir(mode=0o700)
    return root


def _safe(session_id: str) -> str:
    return "".join(c if c.isalnum() or c in "._" else "_" for c in session_id)[-_NAME_LIMIT:]


def roots_of(root_dir: Path, owner: str, session_id: str) -> list[Path]:
    """The roots that process `owner` (`<pid>-<start ticks>`) made for a session."""
    begin = f"{owner}-{_safe(session_id)}-"
    try:
        return sorted(root for root in root_dir.iterdir() if root.name.startswith(begin))
    except OSError:
        return []


def owner_of(root: Path) -> tuple[int, int] | None:
    """(pid, start ticks) of the process that made a root, None when the name is not one of ours."""
    pid, _, rest = root.name.partition("-")
    ticks, _, _ = rest.partition("-")
    return (int(pid), int(ticks)) if pid.isdigit() and ticks.isdigit() else None


def sweep(root_dir: Path) -> list[str]:
    """Remove the roots whose owner is dead.

    Returns:
        Names of dead roots that could not be removed.
    """
    left = []
    try:
        roots = sorted(root_dir.iterdir())
    except OSError:
        return []
    for root in roots:
        owner = owner_of(root)
        if owner is None or start_ticks(owner[0]) == owner[1]:
            continue
        try:
            remove_root(root)
        except OSError:
            left.append(root.name)
    return left


def remove_root(root: Path) -> None:
    """Remove a tree, whatever its depth, path lengths and directory modes. Missing is fine; links are not followed.

    Nested directories are moved up to the top before they are emptied, so neither recursion nor path length nor the
    number of open files grows with depth. No process may be writing to the tree any more.

    Raises:
        OSError: something in the tree cannot be removed.
    """
    try:
        top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fchmod(top, 0o700)
        moved = 0
        while names := os.listdir(top):
            for name in names:
                if not _unlink(name, top):
                    moved = _flatten(name, top, moved)
    finally:
        os.close(top)
    os.rmdir(root)


def _unlink(name: str, parent: int) -> bool:
    """Remove a file, link or empty directory; False for a directory that has entries."""
    if not stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
        os.unlink(name, dir_fd=parent)
        return True
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError:
        return False
    return True


def _flatten(name: str, top: int, moved: int) -> int:
    """Empty one directory of the top level: unlink its files, move its directories up. Returns the rename counter."""
    os.chmod(name, 0o700, dir_fd=top)
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
    try:
        for child in os.listdir(fd):
            if not _unlink(child, fd):
                os.chmod(child, 0o700, dir_fd=fd)  # moving a directory rewrites its "..", which needs write permission
                moved += 1
                os.rename(child, f".moved-{os.getpid()}-{moved}", src_dir_fd=fd, dst_dir_fd=top)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=top)
    return moved
