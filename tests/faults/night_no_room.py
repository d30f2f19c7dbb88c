"""A disk that is full to the last byte: `python night_no_room.py PLAN.json`, in a room with a small disk.

Starts a run as `night_watch` does, and takes all room away while trials are at work. Prints a diary.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from night_operator import started, write
from night_room import fill_up
from night_watch import Plan


def main() -> None:
    """The run, until it ends by itself."""
    plan = Plan.read(sys.argv[1])
    run_dir = Path(plan.disk, "run")
    words = [*plan.words, f"config.base_url={plan.gateway}", f"config.log_path={run_dir}"]
    try:
        with started(words) as operator:
            operator.until("a trial at work", lambda: operator.of("trial.phase", phase="agent"))
            write("cause", name="disk")
            fill_up(Path(plan.disk))
    finally:
        shutil.copytree(run_dir, plan.kept)


if __name__ == "__main__":
    main()
