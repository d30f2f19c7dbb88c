"""`quarterdeck bench resume-check`: what `harbor job resume` would do with a job's directory, before it is typed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from console.commands.parsing import Parser
from console.errors import UsageError

_EPILOG = """\
`harbor job resume -p DIR` is less harmless than it looks. It deletes trials by their exception (CancelledError when
none is named) before it knows whether it can go on; then every directory without result.json, half-written trials and
your own notes alike; and it runs all trials that are missing, not only those that were filtered. It refuses when any
trial's configuration or the lock differs from what is planned now: an endpoint that was edited in config.json, a task
whose files changed, another n_concurrent_trials, a lock of another schema (Harbor up to 0.16, 0.17 to 0.20, from 0.21).
The lock also holds the exceptions that are not tried again, whose defaults changed with 0.16, 0.19, 0.25 and 0.26: a
job whose configuration leaves them out is refused after such an upgrade.

Before 0.25 the directory given is not the one that counts: config.json names it, seen from the working directory. A job
that was moved, renamed, or resumed from elsewhere runs again as a whole, in a new directory, while the filter deletes
in the old one. Nothing warns.

So this tells, for the version that wrote the job and the one installed here: what would be kept, deleted and run, why
it would refuse, and where results would go. Harbor itself is asked when the version is the installed one; else the
files are read by the rules of that version. Nothing is written, downloaded or started.

fates of a directory
  kept      its result counts, and it is not run again
  deleted   removed with all it holds: filtered, half-written, or no trial at all
  left      stays where it is and does not count

When the endpoint changed, or only faults of the infrastructure are to be run again, `quarterdeck bench mop-up` is the
way: a job of its own, the old directory untouched, merged when it is read. AgentTimeoutError is a result: filter by it
only when you mean to roll such trials again.

examples:
  quarterdeck bench resume-check jobs/a
  quarterdeck bench resume-check jobs/a -f SandboxError -f ReadTimeout
  quarterdeck bench resume-check jobs/a --cwd /data     as if typed there
  quarterdeck bench resume-check jobs/a --harbor 0.22.0 --json
"""


def resume_check_main(argv: Sequence[str]) -> int:
    """Run `bench resume-check`; the exit code: 0 when it answered."""
    parser = Parser(
        "bench resume-check",
        "Tells what `harbor job resume` would keep, delete and run again, without doing it.",
        _EPILOG,
    )
    parser.add_argument("dir", metavar="DIR", help="a job's directory")
    parser.add_argument(
        "-f",
        "--filter-error-type",
        action="append",
        default=None,
        metavar="TYPE",
        help="as for Harbor: trials with this exception are deleted; repeat for more (default: CancelledError)",
    )
    parser.add_argument("--cwd", type=Path, metavar="DIR", help="where the command would be typed (default: here)")
    parser.add_argument("--harbor", metavar="VERSION", help="only this version, like 0.22.0")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    args = parser.parse_args(argv)
    if not args.dir:
        raise UsageError("an empty path was given; write . for the working directory")
    from console.bench.resume import DEFAULT_FILTER, predict
    from console.bench.resume.versions import installed_version, numbers
    from console.commands import bench_resume_check_text as answer
    from console.records.harbor.job_files import harbor_version

    if args.harbor is not None and not numbers(args.harbor):
        raise UsageError(f"--harbor {args.harbor}: a version like 0.22.0 is expected")
    job = Path(args.dir)
    types = DEFAULT_FILTER if args.filter_error_type is None else tuple(args.filter_error_type)
    wrote, installed = harbor_version(job), installed_version()
    versions = [args.harbor] if args.harbor else list(dict.fromkeys(each for each in (wrote, installed) if each))
    predictions = [predict(job, version=version, filter_types=types, cwd=args.cwd) for version in versions or [None]]
    if args.json:
        sys.stdout.write(json.dumps(answer.as_json(predictions, wrote, installed, types)) + "\n")
        return 0
    for line in answer.as_text(predictions, wrote, installed, types):
        sys.stdout.write(line + "\n")
    return 0
