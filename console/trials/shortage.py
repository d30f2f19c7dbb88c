"""What a process may run out of: without it every trial that it is handed fails at once, and it is handed the most."""

from __future__ import annotations

import mmap
import os
import threading

_MEMORY_BYTES = 32 << 20
"""Address space that a trial needs at least for its own objects, its threads' stacks and what it reads."""


def shortage() -> str:
    """What this process has none left of: "memory", "threads" or "file descriptors"; "" when it can go on."""
    try:
        mmap.mmap(-1, _MEMORY_BYTES).close()
    except (OSError, MemoryError):
        return "memory"
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return "file descriptors"
    try:
        thread = threading.Thread(target=int, name="shortage")
        thread.start()
        thread.join()
    except (RuntimeError, MemoryError):
        return "threads"
    return ""
