"""Whether a process of this machine works in a job's directory, as far as this user can see.

Harbor leaves no mark of its process. It keeps job.log open while a job runs, and that is what is looked for; a process
of another user, machine or container is not seen.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import psutil

LOOK_SECONDS = 2.0
_WORDS = ("python", "harbor")


class _Writers:
    """Files that processes like Harbor's have open for writing, looked up at most every two seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: frozenset[str] = frozenset()
        self._looked = -LOOK_SECONDS

    def files(self) -> frozenset[str]:
        """Paths of them."""
        with self._lock:
            if time.monotonic() - self._looked >= LOOK_SECONDS:
                self._files = frozenset(_open_files())
                self._looked = time.monotonic()
            return self._files


_WRITERS = _Writers()


def is_running(job_path: Path) -> bool:
    """Whether a process has the job's log open for writing."""
    return os.path.join(os.path.realpath(job_path), "job.log") in _WRITERS.files()


def _open_files() -> set[str]:
    found: set[str] = set()
    for process in psutil.process_iter(["name", "cmdline"]):
        said = " ".join([process.info["name"] or "", *(process.info["cmdline"] or ())[:3]]).lower()
        if process.pid == os.getpid() or not any(word in said for word in _WORDS):
            continue
        try:
            found.update(file.path for file in process.open_files() if getattr(file, "mode", "w") != "r")
        except (psutil.Error, OSError):
            continue
    return found
