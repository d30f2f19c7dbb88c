"""Driving one trial through Harbor's Trial API, from configuration to report."""

from __future__ import annotations

import asyncio
import errno
import importlib
import json
import logging
import math
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from harbor.models.trial.config import TrialConfig
from harbor.models.trial.result import TimingInfo, TrialResult
from harbor.trial.hooks import TrialEvent
from harbor.trial.trial import Trial
from pydantic import ValidationError

from console.outcomes.types import SCOREABLE
from console.trials.custody import Custodian
from console.trials.loggers import forget_loggers
from console.trials.protocol import StartTrial, TrialProgress, TrialReport

log = logging.getLogger(__name__)

_MESSAGE_LIMIT = 2000
_MESSAGE_HEAD = 300
_OUTPUT_LIMIT = 8000
_METADATA_LIMIT = 64 << 10
_DISK_ERRORS = tuple(f"[Errno {n}]" for n in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES))

# Creating a trial hashes its task, synchronously. One at a time, so that sixteen do not stall the loop in one go.
_creation = asyncio.Lock()

_HOOK_PHASES = {
    TrialEvent.ENVIRONMENT_START: "environment",
    TrialEvent.AGENT_START: "agent",
    TrialEvent.VERIFICATION_START: "verify",
}

type Send = Callable[[TrialProgress], None]


class _Watch:
    """Follows one trial: phases, times, and the removal of its sandbox."""

    def __init__(self, key: str, send: Send) -> None:
        self._key, self._send = key, send
        self.phase = "create"
        self.began = time.monotonic()
        self.stop_began: float | None = None
        self.left: list[str] = []
        self.fault_of_verifier: BaseException | None = None
        self._stop: asyncio.Task[None] | None = None

    def enter(self, phase: str) -> None:
        if phase != self.phase or phase == "create":
            self.phase = phase
            self._send(TrialProgress(key=self._key, phase=phase))

    def attach(self, trial: Trial) -> None:
        for event, phase in _HOOK_PHASES.items():
            trial.add_hook(event, self._hook(phase))
        self._wrap_setup(trial)
        self._wrap_stop(trial)
        self._wrap_record(trial)

    def _hook(self, phase: str) -> Callable[[Any], Any]:
        async def hook(_: Any) -> None:
            try:
                self.enter(phase)
            except Exception:  # what a hook raises would become the trial's own exception
                log.exception("progress of %s", self._key)

        return hook

    def _wrap_setup(self, trial: Trial) -> None:
        """Harbor has no hook for the agent's setup."""
        setup = trial.agent.setup

        async def watched(*args: Any, **kwargs: Any) -> None:
            self.enter("setup")
            await setup(*args, **kwargs)

        trial.agent.setup = watched

    def _wrap_record(self, trial: Trial) -> None:
        """Harbor keeps a trial's first exception only: behind an agent's timeout the verifier's would be lost."""
        record = trial._record_exception

        def recorded(error: BaseException) -> None:
            if self.phase == "verify":
                self.fault_of_verifier = error
            record(error)

        trial._record_exception = recorded

    def _wrap_stop(self, trial: Trial) -> None:
        """The removal runs once, to its end, and its failure is reported apart: it would void a good trial."""
        environment = trial.agent_environment
        stop = environment.stop

        async def stop_once(delete: bool) -> None:
            try:
                await stop(delete)
            except Exception as error:
                log.warning("sandbox %s not removed: %s", environment.session_id, error)
                self.left.append(environment.session_id)

        async def watched(delete: bool) -> None:
            if self._stop is None:
                self.stop_began = time.monotonic()
                self.enter("teardown")
                self._stop = asyncio.create_task(stop_once(delete))
            await asyncio.shield(self._stop)

        environment.stop = watched

    async def settle(self) -> None:
        """Wait for the removal, which a second cancellation may have left in the background."""
        while self._stop is not None and not self._stop.done():
            try:
                await asyncio.wait({self._stop})
            except asyncio.CancelledError:
                continue


async def drive(spec: StartTrial, send: Send, custodian: Custodian | None = None) -> TrialReport:
    """Run one trial.

    Args:
        custodian: keeps the ledger of the trial's sandboxes; it must be installed.

    Returns:
        Its report, also when it was cancelled or could not be created. Sent after its sandbox is gone.

    Raises:
        asyncio.CancelledError: cancelled before Harbor had anything of it.
    """
    watch = _Watch(spec.key, send)
    watch.enter("create")
    custody = custodian.trial(spec.key) if custodian is not None else None
    try:
        config = TrialConfig.model_validate(spec.config)
        if config.agent.model_name:
            await asyncio.to_thread(importlib.import_module, "litellm")  # seconds, which Harbor would spend on the loop
        async with _creation:
            trial = await Trial.create(config)
    except Exception as error:
        return TrialReport(
            key=spec.key,
            exception_type="TrialCreateError",
            exception_message=_explain(error, spec.config.get("trials_dir")),
            exception_phase="create",
            seconds={"total": time.monotonic() - watch.began},
        )
    created = time.monotonic()
    watch.attach(trial)
    raised: BaseException | None = None
    try:
        await trial.run()
    except (Exception, asyncio.CancelledError) as error:
        raised = error
    await watch.settle()
    if custody is not None:
        await custody.settle()
        watch.left += custody.left
    ended = time.monotonic()
    seconds = {"create": created - watch.began, "total": ended - watch.began}
    if watch.stop_began is not None:
        seconds["teardown"] = ended - watch.stop_began
    try:
        return _report(spec.key, trial, watch, raised, seconds)
    finally:
        forget_loggers(trial.config.trial_name)


def _explain(error: Exception, trials_dir: object) -> str:
    """One line that names the field, or the directory whose disk refuses."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "trial config"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        return f"{field}: {first['msg']}{more}"[:_MESSAGE_LIMIT]
    where = f" (in {trials_dir})" if isinstance(error, OSError) and error.filename is None else ""
    return " ".join(f"{type(error).__name__}: {error}{where}".split())[:_MESSAGE_LIMIT]


def _report(
    key: str, trial: Trial, watch: _Watch, raised: BaseException | None, seconds: dict[str, float]
) -> TrialReport:
    result: TrialResult | None = getattr(trial, "_result", None)
    kind: str | None = type(raised).__name__ if raised is not None else None
    message = str(raised) if raised is not None else ""
    phase: str | None = watch.phase if raised is not None else None
    rewards = None
    agent: dict[str, Any] = {}
    if result is not None:
        recorded = result.recorded_exceptions()
        if recorded:
            kind, message = recorded[0].exception_type, recorded[0].exception_message
            phase = _phase_at(result, recorded[0].occurred_at) or watch.phase
        if result.verifier_result is not None:
            rewards = _plain_rewards(result.verifier_result.rewards)
        fault = watch.fault_of_verifier
        if fault is not None and rewards is None and kind in SCOREABLE:
            kind, message, phase = type(fault).__name__, f"{fault} (after {kind})", "verify"
        agent = _agent(result)
        seconds = _phase_seconds(result) | seconds
    if _is_refused(kind, message, trial):
        where = "" if "'" in message else f" (the trial's files are in {trial.paths.trial_dir})"
        kind, message = "TrialFilesError", message + where
    return TrialReport(
        key=key,
        trial_name=trial.config.trial_name,
        trial_dir=str(trial.paths.trial_dir),
        exception_type=kind,
        exception_message=_ends_of(message),
        exception_phase=phase,
        rewards=rewards,
        verifier_output=_verifier_output(trial),
        seconds=seconds,
        agent=agent,
        agent_timeout=trial.agent_timeout_sec,
        sandbox_left=watch.left,
    )


def _is_refused(kind: str | None, message: str, trial: Trial) -> bool:
    """Whether this machine refused the trial's own files, whichever code wrote them. A failed write names no file."""
    if kind not in ("OSError", "PermissionError") or not message.startswith(_DISK_ERRORS):
        return False
    return str(trial.paths.trial_dir) in message if "'" in message else kind == "OSError"


def _timings(result: TrialResult) -> dict[str, list[TimingInfo]]:
    """Phase name to its intervals; a multi-step trial has an agent and a verifier interval for each step."""
    phases: dict[str, list[TimingInfo | None]] = {
        "environment": [result.environment_setup],
        "setup": [result.agent_setup],
        "agent": [result.agent_execution],
        "verify": [result.verifier],
    }
    for step in result.step_results or []:
        phases["agent"].append(step.agent_execution)
        phases["verify"].append(step.verifier)
    return {name: [timing for timing in timings if timing is not None] for name, timings in phases.items()}


def _phase_seconds(result: TrialResult) -> dict[str, float]:
    seconds = {}
    for name, timings in _timings(result).items():
        spans = [(t.finished_at - t.started_at).total_seconds() for t in timings if t.started_at and t.finished_at]
        if spans:
            seconds[name] = sum(spans)
    return seconds


def _phase_at(result: TrialResult, moment: datetime | None) -> str | None:
    """The phase that had begun last when the exception was recorded."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        moment = moment.astimezone()
    begun = [
        (timing.started_at, name)
        for name, timings in _timings(result).items()
        for timing in timings
        if timing.started_at is not None and timing.started_at <= moment
    ]
    return max(begun)[1] if begun else None


def _plain_rewards(rewards: Any) -> dict[str, float | str | bool | None] | None:
    """As written; what JSON cannot carry as text."""
    if not isinstance(rewards, dict):
        return None
    plain: dict[str, float | str | bool | None] = {}
    for name, value in rewards.items():
        if isinstance(value, float) and not math.isfinite(value):
            value = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        elif isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**63 - 1:
            value = float(value) if abs(value) < 10**300 else ("inf" if value > 0 else "-inf")
        elif value is not None and not isinstance(value, (bool, int, float, str)):
            value = str(value)[:200]
        plain[str(name)[:200]] = value
    return plain


def _agent(result: TrialResult) -> dict[str, Any]:
    contexts = [result.agent_result, *(step.agent_result for step in result.step_results or [])]
    agent: dict[str, Any] = {}
    for context in contexts:
        if context is not None and context.metadata:
            agent |= context.metadata
    try:
        text = json.dumps(agent, default=str)
        agent = json.loads(text) if len(text) <= _METADATA_LIMIT else {"metadata_dropped": f"{len(text)} characters"}
    except (TypeError, ValueError, RecursionError) as error:
        agent = {"metadata_dropped": str(error)[:200]}
    inputs, _, outputs, _ = result.compute_token_cost_totals()
    return agent | {"turns": agent.get("turns"), "input_tokens": inputs, "output_tokens": outputs}


def _verifier_output(trial: Trial) -> str:
    """The end of what the tests wrote."""
    parts = []
    for path in (trial.paths.test_stdout_path, trial.paths.test_stderr_path):
        parts.append(_tail(path))
    if not any(parts):
        for path in sorted(trial.paths.steps_dir.glob("*/verifier/test-stdout.txt"))[-1:]:
            parts.append(_tail(path))
    return "\n".join(part for part in parts if part)[-_OUTPUT_LIMIT:]


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4 * _OUTPUT_LIMIT))
            return file.read(4 * _OUTPUT_LIMIT).decode(errors="replace")[-_OUTPUT_LIMIT:]
    except OSError:
        return ""


def _ends_of(message: str) -> str:
    """A long message without its middle: it begins with what failed and ends with the output that says why."""
    if len(message) <= _MESSAGE_LIMIT:
        return message
    gap = "\n...\n"
    return message[:_MESSAGE_HEAD] + gap + message[-(_MESSAGE_LIMIT - _MESSAGE_HEAD - len(gap)) :]
