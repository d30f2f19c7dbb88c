"""What `train` and `demo` share: preflight, the choice of how to watch, starting the engine, and watching."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NoReturn

from console.errors import Interrupted, RecordingError, UsageError
from console.findings import WARNING, Finding, errors, refuse
from console.launching import Launch, LaunchedRun, begin, new_run_id, require_engine
from console.records.batches import owes_row
from console.records.cookbook import FINAL, last_checkpoint
from console.records.manifest import read_manifest
from console.records.run_dir import RunRecord
from console.state.sanitize import sanitize
from console.training.options import RunOptions
from console.training.resume_check import check, standing
from console.tui.main import PLAIN_LOOK, Look, attach, check_look, require_terminal

Watch = Literal["console", "headless", "plain", "detach"]


def preflight_findings(
    options: RunOptions, environment: Mapping[str, str], *, whole: bool, live: bool = True
) -> list[Finding]:
    """Everything that can be known before a sandbox exists: options, files, the run that goes on, Harbor, the gateway.

    Args:
        whole: go on after an error; otherwise the later checks, which cost seconds, are left out then.
        live: ask the gateway and load the tokenizer, which may ask a hub.
    """
    from console.training.preflight import preflight, preflight_harbor
    from console.training.preflight_capture import preflight_listening
    from console.training.preflight_gateway import preflight_gateway

    findings = preflight(options, environment)
    if whole or not errors(findings):
        findings += resume_findings(options, told={finding.object for finding in errors(findings)})
    if whole or not errors(findings):
        findings += preflight_harbor(options)
    if live and (whole or not errors(findings)) and not options.embedded:
        findings += asyncio.run(preflight_gateway(options, environment))
    if live and whole:
        findings += _renderer_findings(options)
    if whole:
        findings += asyncio.run(preflight_listening(options))
    return findings


def resume_findings(options: RunOptions, *, told: Collection[str] = ()) -> list[Finding]:
    """What forbids the run in `config.log_path` to go on, if there is one. `told`: objects with an error already."""
    if not options.log_path.is_dir():
        return []
    if _is_live(options.log_path):
        message = f"{options.log_path}: the run is live"
        return [
            Finding(code="run.live", object="config.log_path", message=message, remedy="attach to it, or stop it first")
        ]
    return [finding for finding in check(options, options.log_path) if finding.object not in told]


def refuse_unbound(options: RunOptions) -> None:
    """Raise `UsageError` when the capture gateway cannot listen where it is to."""
    from console.training.preflight_capture import preflight_listening

    refuse(asyncio.run(preflight_listening(options)))


def _is_live(run_dir: Path) -> bool:
    from console.control.runs import run_at

    try:
        return run_at(run_dir).state == "live"
    except RecordingError:
        return False


def _renderer_findings(options: RunOptions) -> list[Finding]:
    """Whether the cookbook has the renderer and the tokenizer; seconds of imports, so only for the whole check."""
    from console.training.setup import make_renderer, register_bundled_tokenizers

    register_bundled_tokenizers()
    try:
        make_renderer(options.value("config.model_name"), options.value("config.renderer_name"))
    except UsageError as error:
        name, _, message = str(error).partition(": ")
        return [Finding(code="option.renderer", object=name, message=message)]
    return []


def start(
    options: RunOptions, watch: Watch, look: Look = PLAIN_LOOK, *, before: Callable[[], None] = lambda: None
) -> int:
    """Check, start the engine, and watch the run as asked; the exit code.

    Args:
        before: called once everything has been checked, before anything is written or started; may raise.

    Raises:
        UsageError: preflight refuses; nothing was started.
    """
    if watch == "console":
        require_terminal("use --headless, --plain or --detach")
        check_look(look)
    require_engine()
    findings = preflight_findings(options, os.environ, whole=False)
    refuse(findings)
    warn(findings)
    checkpoint = last_checkpoint(options.log_path)
    planned = checkpoint is not None and checkpoint["batch"] >= planned_steps(options)
    if checkpoint is not None and planned and not _owes(options.log_path, checkpoint):
        return _already_complete(options, watch, checkpoint["batch"])
    refuse_unbound(options)
    before()
    return watch_run(options, watch, look)


def warn(findings: Iterable[Finding]) -> None:
    """Say on standard error what the operator should know, and what forbids nothing."""
    for finding in findings:
        if finding.level == WARNING:
            sys.stderr.write(f"quarterdeck: warning: {finding.line()}\n")


def _owes(run_dir: Path, checkpoint: dict[str, Any]) -> bool:
    """Whether a run whose steps are all in a checkpoint was killed before it had written everything else.

    Raises RecordingError.
    """
    if not (run_dir / "journal").is_dir():
        return False
    ended = RunRecord(run_dir).view_at_end().state.exit_code is not None
    return not ended or checkpoint.get("name") != FINAL or owes_row(run_dir, int(checkpoint["batch"]))


def planned_steps(options: RunOptions) -> int:
    """How many steps the options ask for; the tasks directory must exist."""
    tasks = sum((path / "task.toml").is_file() for path in options.tasks_dir.iterdir() if path.is_dir())
    epochs = int(options.value("config.dataset_builder.epochs"))
    batches = -(-tasks * epochs // int(options.value("config.dataset_builder.groups_per_batch")))
    limit: int | None = options.value("config.max_steps")
    return batches if limit is None else min(batches, limit)


def _already_complete(options: RunOptions, watch: Watch, step: int) -> int:
    said = (
        f"{options.log_path} is already complete, {step} steps: raise config.max_steps or "
        "config.dataset_builder.epochs to go on, or name another config.log_path"
    )
    return nothing_to_do(said, watch, step)


def nothing_to_do(said: str, watch: Watch, steps: int) -> int:
    """Nothing to do is success; a script that reads JSON lines gets its last one. `said`: why, safe to print."""
    sys.stderr.write(f"quarterdeck: {said}\n")
    if watch == "headless":
        from console.headless.output import Reporter

        Reporter(sys.stdout, sys.stderr, plain=False).done("completed", 0, steps, "already complete")
    return 0


def watch_run(options: RunOptions, watch: Watch, look: Look = PLAIN_LOOK, *, leave_after: float | None = None) -> int:
    """Start the engine and watch it. `leave_after`: seconds after the run's end at which the console closes itself."""
    policy = options.failure_policy(interactive=watch == "console")
    checkpoint = last_checkpoint(options.log_path)
    goes_on = standing(options.log_path) if options.log_path.is_dir() else None
    return watch_engine(
        lambda owned: begin(options, _run_id(options.log_path), on_failure=policy, owned=owned),
        watch,
        look,
        leave_after=leave_after,
        notice="" if goes_on is None else goes_on.line(),
        after_step=checkpoint["batch"] if checkpoint else None,
    )


def watch_engine(
    begins: Callable[[bool], Launch],
    watch: Watch,
    look: Look,
    *,
    leave_after: float | None = None,
    told_after: bool = False,
    notice: str = "",
    after_step: int | None = None,
) -> int:
    """Start an engine of either kind and watch it; the exit code.

    Args:
        begins: starts it; its argument says whether the run ends with this process.
        leave_after, told_after: as `attach` has them; after_step: as `run_headless` has it.
        notice: one line on what the run goes on with, empty for nothing to say.
    """
    owned = watch in ("headless", "plain")
    with _first_interrupt_waits() as interrupted:
        starting = begins(owned)
        if watch != "console":
            starting.wait()
    if interrupted:
        _abandon(starting)
    if watch == "console":
        # The console opens while the engine starts, which takes a second.
        try:
            return attach(
                starting.socket,
                run_dir=starting.run_dir,
                look=look,
                ready=starting.wait,
                leave_after=leave_after,
                run_exit_code=True,
                told_after=told_after,
                notice=notice,
            )
        except KeyboardInterrupt:
            if starting.awaited:  # the console was there; nobody asked for the end of the run
                raise Interrupted(f"the run goes on: quarterdeck attach {starting.run_id}") from None
            _abandon(starting)
    run = starting.run
    assert run is not None
    if notice:
        sys.stderr.write(f"quarterdeck: {sanitize(notice)}\n")
    if owned:
        from console.control.runs import run_at
        from console.headless import run_headless

        return run_headless(run_at(run.run_dir), plain=watch == "plain", owned=True, after_step=after_step)
    return _say_where(run)


@contextmanager
def _first_interrupt_waits() -> Iterator[list[int]]:
    """Within, the first ctrl+c is only noted: an engine that is being started is known first, then stopped."""
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if noted:
            raise KeyboardInterrupt
        noted.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


def _abandon(starting: Launch) -> NoReturn:
    """Ctrl+c before anybody saw the run: it is stopped, as one that could not start. Raises `QuarterdeckError`."""
    sys.stderr.write("quarterdeck: interrupted: the engine that was being started is stopped\n")
    goes_on = f"the run goes on: quarterdeck attach {starting.run_id}"
    try:
        ended = starting.abandon()
    except KeyboardInterrupt:
        raise Interrupted(f"not stopped; {goes_on}") from None
    raise Interrupted(f"the run was stopped before it began; it is kept in {starting.run_dir}" if ended else goes_on)


def _run_id(run_dir: Path) -> str:
    """The id of the run that the directory holds, or a new one: a run that goes on keeps its name."""
    with suppress(RecordingError):
        if run_id := read_manifest(run_dir).run_id:
            return run_id
    with suppress(RecordingError):
        if run_id := RunRecord(run_dir).view_at_end().state.run_id:
            return run_id
    return new_run_id()


def _say_where(run: LaunchedRun) -> int:
    sys.stdout.write(f"{run.run_id}\n")
    sys.stderr.write(
        f"started, pid {run.pid}, in {run.run_dir}\n"
        f"quarterdeck attach {run.run_id}     opens the console\n"
        f"quarterdeck ctl {run.run_id} stop-after-step     ends it in order\n"
    )
    return 0
