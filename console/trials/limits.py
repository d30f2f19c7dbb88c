"""What one sandbox may use.

All limits are per process (`ulimit`), except the number of processes, which the kernel counts per user namespace,
that is per sandbox. A sandbox may therefore hold `processes` times `memory_mb` in the worst case; a host that must not
allow that runs the whole engine in a control group. Shared memory is bounded by the size of the sandbox's /dev/shm.
"""

from __future__ import annotations

import itertools
import os
import resource
from dataclasses import dataclass

_MIB = 1 << 20
_OWN_PROCESSES = 2  # bubblewrap itself and process 1 count too
_turn = itertools.count()


@dataclass(frozen=True)
class Limits:
    """Attributes:
    memory_mb: private writable memory of a process, in MiB (RLIMIT_DATA: heap, stacks, anonymous mappings).
    processes: processes and threads in the sandbox at a time.
    file_size_mb: largest file a process may write, in MiB.
    open_files: descriptors of a process.
    cpus: processors it may run on, None for all.
    """

    memory_mb: int = 2048
    processes: int = 512
    file_size_mb: int = 1024
    open_files: int = 65536
    cpus: int | None = None

    def ulimit(self) -> str:
        """Arguments of bash's `ulimit`, none above what this process may grant."""
        values = (
            ("-c", resource.RLIMIT_CORE, 0, 1024),
            ("-d", resource.RLIMIT_DATA, self.memory_mb * _MIB, 1024),
            ("-f", resource.RLIMIT_FSIZE, self.file_size_mb * _MIB, 1024),
            ("-n", resource.RLIMIT_NOFILE, self.open_files, 1),
            ("-u", resource.RLIMIT_NPROC, self.processes + _OWN_PROCESSES, 1),
        )
        arguments = []
        for letter, kind, value, unit in values:
            hard = resource.getrlimit(kind)[1]
            allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
            arguments.append(f"{letter} {allowed // unit}")
        return " ".join(arguments)

    def processors(self) -> list[int]:
        """Numbers of the processors to use, spread over the sandboxes in turn; empty for all."""
        available = sorted(os.sched_getaffinity(0))
        if self.cpus is None or self.cpus >= len(available):
            return []
        first = next(_turn) * self.cpus
        return [available[(first + i) % len(available)] for i in range(self.cpus)]
