"""Who goes first when memory runs out: sandboxes, then runners, then the embedded gateway, the engine last.

The kernel kills by size and by a number that anybody may raise of processes of their own. A sandbox or a runner that
is gone costs trials that run again; an engine costs the run until somebody resumes it. Standard library only.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

GATEWAY, RUNNER, SANDBOX = 200, 300, 500
"""Points of a thousand that are added to the share of memory that a process has."""


def yield_memory(points: int, pid: int | str = "self") -> None:
    """Have the kernel take this process before those with fewer points. Where that cannot be said, nothing happens.

    What was raised already, by a service manager say, is only ever raised more.
    """
    path = Path(f"/proc/{pid}/oom_score_adj")
    with contextlib.suppress(OSError, ValueError):
        if int(path.read_text()) < points:
            path.write_text(str(points))
