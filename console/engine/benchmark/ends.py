"""Why a benchmark run ended, where nobody here ended it."""

from __future__ import annotations

import errno
import signal

from console.engine.cause import Cause, one_line
from console.errors import QuarterdeckError
from console.records.redact import redact
from console.trials.job_plugin_protocol import JobFailed

USAGE = 2


def failed(error: BaseException) -> Cause:
    """What an error of the engine itself stands for."""
    text = str(error) if isinstance(error, QuarterdeckError | OSError) else f"{type(error).__name__}: {error}"
    code = error.exit_code if isinstance(error, QuarterdeckError) else 7
    full = "; make room, then run the job again" if isinstance(error, OSError) and error.errno == errno.ENOSPC else ""
    return Cause(status="failed", exit_code=code, reason=one_line(f"{text}{full}"))


def refused(failed: JobFailed | None, exit_code: int | None) -> Cause:
    """Harbor ended before any trial began."""
    if failed is None:
        return Cause(status="failed", exit_code=7, reason=f"Harbor ended before any trial began: {_exit(exit_code)}")
    said = _said(failed)
    code = USAGE if failed.mistake else 7
    return Cause(status="failed", exit_code=code, reason=one_line(f"Harbor does not start this job: {said}"))


def ended_by_itself(failed: JobFailed | None, exit_code: int | None, left: int, job_dir: str) -> Cause:
    """Harbor ended in the middle of the job."""
    what = _said(failed) if failed is not None else _exit(exit_code)
    trials = f"{left} trial{' has' if left == 1 else 's have'} no result"
    reason = f"Harbor ended in the middle of the job: {what}; {trials}: quarterdeck bench mop-up {job_dir}"
    return Cause(status="failed", exit_code=7, reason=one_line(reason))


def _said(failed: JobFailed) -> str:
    text = " ".join(str(redact(failed.text)).split())
    if failed.kind == "SystemExit":
        return text or "see harbor.log in the run directory"
    return f"{failed.kind}: {text}" if text else failed.kind


def _exit(code: int | None) -> str:
    if code is None:
        return "it was never started"
    if code >= 0:
        return f"exit code {code}, see harbor.log in the run directory"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = " (out of memory, or by hand)" if name == "SIGKILL" else ""
    return f"it was killed by {name}{hint}"
