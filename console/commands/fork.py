"""`quarterdeck fork`: a new run from a checkpoint of another one."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from console.commands.look import add_look, look_of
from console.commands.options_file import run_dir_of
from console.commands.parsing import Parser, say, table
from console.commands.start import planned_steps, preflight_findings, start, warn
from console.commands.train import split_flags, tell
from console.errors import QuarterdeckError, RecordingError, UsageError
from console.findings import WARNING, Finding, refuse
from console.launching import OPTIONS_FILE, new_run_id, recorded_options, require_engine
from console.records.checkpoint_list import Checkpoint, list_checkpoints
from console.records.manifest import Ancestor, Manifest, read_manifest, write_manifest
from console.records.run_dir import RunRecord
from console.state.sanitize import sanitize
from console.training import fingerprints
from console.training.embedded_store import copy_checkpoint, expiry, find_checkpoint, store_of
from console.training.options import RunOptions, parse
from console.training.resume_check import fork_check
from console.training.resume_losses import lost_to_fork

DESCRIPTION = """\
Starts a new run from a checkpoint of RUN, with RUN's own options and those that you change. The new run goes on at the
checkpoint's step with its optimizer; with --weights-only it begins at step 0 with a fresh one. RUN stays as it is.
Model, rank and kind of gateway cannot change: the weights belong to them.
"""
EPILOG = """\
examples:  quarterdeck fork RUN --list
           quarterdeck fork RUN config.learning_rate=5e-4 config.log_path=runs/slower
           quarterdeck fork RUN --at 20 --headless harbor.train=main config.log_path=runs/main-only
           quarterdeck fork RUN --at final --weights-only config.dataset_builder.tasks_dir=harder \\
               config.log_path=runs/harder
"""
LAST = "last"
_SHOWN = 8
"""Checkpoints that a refusal lists."""


def fork_main(argv: Sequence[str]) -> int:
    """Run `fork`; the exit code. Raises `QuarterdeckError` for what is one line on stderr."""
    parser = Parser("fork", DESCRIPTION, EPILOG)
    parser.add_argument("run", metavar="RUN", help="id, name or directory of the run")
    parser.add_argument(
        "options", nargs="*", metavar="key=value", help="options that change; config.log_path is needed"
    )
    parser.add_argument("--at", default=LAST, metavar="CHECKPOINT", help="its name, its step, or last (default)")
    parser.add_argument("--weights-only", action="store_true", help="step 0 and a fresh optimizer, on these weights")
    parser.add_argument("--list", action="store_true", help="list the checkpoints of RUN and start nothing")
    parser.add_argument("--check", action="store_true", help="make every check, print all findings, start nothing")
    parser.add_argument("--json", action="store_true", help="with --list and --check: JSON")
    parser.add_argument("--headless", action="store_true", help="no console: JSON lines on stdout")
    parser.add_argument("--plain", action="store_true", help="no console: one readable line a change")
    parser.add_argument("--detach", action="store_true", help="start the run in the background and return")
    add_look(parser)
    args = parser.parse_intermixed_args(list(argv))
    if args.json and not (args.list or args.check):
        raise UsageError("--json goes with --list or --check; a headless run prints JSON lines anyway")
    watch, *_ = split_flags([f"--{name}" for name in ("headless", "plain", "detach") if getattr(args, name)])
    run_dir = run_dir_of(args.run)
    parent = recorded_options(run_dir)
    listed = list_checkpoints(run_dir)
    lost = lost_to_fork(run_dir)
    if args.list:
        return _list(listed, parent, run_dir, lost, args.json)
    chosen = _chosen(listed, args.at, parent, run_dir, lost)
    options = _options(parent, args.options, chosen, args.weights_only)
    _refuse_place(options.log_path, run_dir)
    fork = Fork(run_dir, parent, chosen, options, optimizer=not args.weights_only)
    require_engine()
    found = [*_of_lost(lost, args.at), *fork.findings()]
    if args.check:
        return tell([*found, *preflight_findings(options, os.environ, whole=True)], args.json)
    refuse(found)
    warn(found)
    try:
        return start(options, watch, look_of(args), before=fork.seed)
    except QuarterdeckError as error:
        if fork.seeded and not _began(options.log_path):
            where = shlex.quote(str(options.log_path))
            sys.stderr.write(f"quarterdeck: the fork is made, and begins with: quarterdeck train --resume {where}\n")
        raise error


class Fork:
    """A new run that descends from a checkpoint.

    Attributes:
        seeded: whether its directory has been made.

    Args:
        run_dir: of the run with the checkpoint; parent: its options; options: the new run's.
        optimizer: whether training goes on at the checkpoint's step, or begins with its weights alone.
    """

    def __init__(
        self, run_dir: Path, parent: RunOptions, chosen: Checkpoint, options: RunOptions, *, optimizer: bool
    ) -> None:
        self._run_dir, self._parent, self._chosen, self._options = run_dir, parent, chosen, options
        self._optimizer = optimizer
        self._manifest = _manifest_of(run_dir)
        self.seeded = False

    def findings(self) -> list[Finding]:
        """What forbids the fork, beyond what forbids any run."""
        kept = self._manifest.fingerprints if self._manifest is not None else {}
        found = fork_check(self._options, self._parent, kept)
        planned = _planned(self._options)
        if self._optimizer and planned is not None and self._chosen.step >= planned:
            found.append(
                Finding(
                    code="fork.steps",
                    object="config.max_steps",
                    message=f"the checkpoint has {self._chosen.step} steps, and the options plan {planned} in all",
                    remedy="raise it, or config.dataset_builder.epochs, or begin anew with --weights-only",
                )
            )
        return found

    def seed(self) -> None:
        """Make the run's directory, whole or not at all: manifest, options, and the checkpoint as if it were its own.

        Raises:
            UsageError: it cannot be written, or the checkpoint is gone.
        """
        target = self._options.log_path
        made = target.with_name(f".{target.name}.fork-{secrets.token_hex(4)}")
        try:
            try:
                made.mkdir(parents=True, mode=0o700)
                self._write(made)
                made.rename(target)
            finally:
                shutil.rmtree(made, ignore_errors=True)
        except OSError as error:
            raise UsageError(
                f"config.log_path={target}: cannot be written ({error.strerror or error}); choose another directory"
            ) from None
        self.seeded = True

    def _write(self, made: Path) -> None:
        chosen, options = self._chosen, self._options
        ancestor = Ancestor(
            run_id=self._manifest.run_id if self._manifest is not None else "",
            run_dir=str(self._run_dir),
            checkpoint=chosen.name,
            path=chosen.state_path,
            step=chosen.step,
            optimizer=self._optimizer,
            policy_version=chosen.policy_version,
            weights=chosen.weights,
        )
        before = self._manifest.lineage if self._manifest is not None else []
        manifest = Manifest(
            run_id=new_run_id(),
            name=options.console.name or options.log_path.name,
            created=time.time(),
            config=options.overrides(),
            fingerprints=fingerprints.of(options),
            lineage=[*before, ancestor],
        )
        write_manifest(made, manifest)
        options.write(made / OPTIONS_FILE)
        if options.embedded and store_of(options) != store_of(self._parent):
            self._copy(made)
        if self._optimizer:
            (made / "checkpoints.jsonl").write_text(json.dumps(self._row()) + "\n")

    def _copy(self, made: Path) -> None:
        """Take the checkpoint along: two gateways must not share a directory, and the parent's may be removed."""
        source, target = store_of(self._parent), store_of(self._options)
        if target.is_relative_to(self._options.log_path):
            target = made / target.relative_to(self._options.log_path)
        chosen = self._chosen
        for path in (chosen.state_path, chosen.sampler_path):
            if path is None or find_checkpoint(target, path) is not None:
                continue
            if not copy_checkpoint(source, path, target) and path == chosen.state_path:
                raise UsageError(f"checkpoint {chosen.name}: {path} is no longer in {source}; name another one")

    def _row(self) -> dict[str, Any]:
        """The cookbook's row of the checkpoint."""
        chosen = self._chosen
        row: dict[str, Any] = {"name": chosen.name, "batch": chosen.step, "state_path": chosen.state_path}
        return row if chosen.sampler_path is None else row | {"sampler_path": chosen.sampler_path}


def _options(parent: RunOptions, words: list[str], chosen: Checkpoint, weights_only: bool) -> RunOptions:
    """The parent's options with what changes. Raises `UsageError`."""
    if not any(word.startswith("config.log_path=") for word in words):
        raise UsageError("config.log_path=NEW is missing: name a new directory for the fork")
    for word in words:
        if word.endswith(".toml") and "=" not in word:
            raise UsageError(f"{word}: a fork takes the run's own options; give what changes as key=value")
        if word.startswith("config.load_checkpoint_path="):
            raise UsageError(f"{word}: the fork begins with a checkpoint of its run; name that with --at")
    # The name is the parent's; two runs of one name could not be told apart.
    base = msgspec.structs.replace(parent, given=tuple(key for key in parent.given if key != "console.name"))
    options = parse(words, base=base)
    if not weights_only:
        return options
    key = "config.load_checkpoint_path"
    given = tuple(dict.fromkeys([*options.given, key]))
    config = options.config | {"load_checkpoint_path": chosen.state_path}
    return msgspec.structs.replace(options, config=config, given=given)


def _planned(options: RunOptions) -> int | None:
    """None where the tasks are missing, which preflight tells of."""
    try:
        return planned_steps(options)
    except (OSError, ZeroDivisionError):
        return None


def _refuse_place(target: Path, run_dir: Path) -> None:
    """Raise `UsageError` when the new directory is taken."""
    where = f"config.log_path={target}"
    if target.resolve().is_relative_to(run_dir):
        raise UsageError(f"{where}: lies in the run that is forked; name a new directory")
    try:
        taken = target.exists() and (not target.is_dir() or any(target.iterdir()))
    except OSError as error:
        raise UsageError(f"{where}: {error.strerror or error}; name a new directory") from None
    if taken:
        raise UsageError(f"{where}: exists and is not empty; name a new directory")


def _of_lost(lost: Finding | None, wanted: str) -> list[Finding]:
    """The last checkpoint is not the one that is found: that matters when it is meant."""
    if lost is None:
        return []
    return [lost if wanted == LAST else msgspec.structs.replace(lost, level=WARNING, remedy="")]


def _chosen(
    listed: list[Checkpoint], wanted: str, options: RunOptions, run_dir: Path, lost: Finding | None
) -> Checkpoint:
    """The newest checkpoint of that name, path or step. Raises `UsageError` when there is none, or it is gone."""
    if not listed:
        refuse([] if lost is None else [lost])
        raise UsageError(f"{run_dir}: the run has no checkpoint yet; `quarterdeck ctl RUN checkpoint` saves one")
    fits = listed if wanted == LAST else [c for c in listed if wanted in (c.name, c.state_path)]
    if not fits and wanted.isascii() and wanted.isdigit():
        fits = [c for c in listed if c.step == int(wanted)]
    if not fits:
        names = ", ".join(f"{c.name} (step {c.step})" for c in listed[-_SHOWN:])
        more = "" if lost is None else f"; {lost.line()}"
        raise UsageError(f"--at {wanted}: no such checkpoint; there are {names}: --list shows all{more}")
    gone = _gone(fits[-1], options, _expiring(run_dir))
    if gone:
        raise UsageError(f"--at {wanted}: checkpoint {fits[-1].name} {gone}; --list shows the others")
    return fits[-1]


def _gone(checkpoint: Checkpoint, options: RunOptions, expiring: bool | None) -> str:
    """Why it can no longer be loaded, as far as can be known without the gateway; empty when it can."""
    if options.embedded:
        directory = find_checkpoint(store_of(options), checkpoint.state_path)
        if directory is None:
            return "is no longer there"
        expires = expiry(directory)
    else:
        expires = _expires(checkpoint, options, expiring)
    return f"expired {_when(expires)}" if expires is not None and expires <= time.time() else ""


def _expires(checkpoint: Checkpoint, options: RunOptions, expiring: bool | None) -> float | None:
    """When somebody else's gateway removes it, Unix seconds; the last checkpoint of a finished run has no lifetime."""
    rolling = checkpoint.kind == "rolling"
    seconds = options.value("config.rolling_ttl_seconds" if rolling else "config.ttl_seconds")
    if seconds is None or checkpoint.saved is None or checkpoint.kind == "final" or expiring is False:
        return None
    return checkpoint.saved + float(seconds)


def _expiring(run_dir: Path) -> bool | None:
    """Whether the run's gateway lets checkpoints expire, as it was profiled."""
    try:
        return RunRecord(run_dir).view_at_end().state.gateway.expiring
    except RecordingError:
        return None


def _list(listed: list[Checkpoint], options: RunOptions, run_dir: Path, lost: Finding | None, as_json: bool) -> int:
    warn([] if lost is None else [msgspec.structs.replace(lost, level=WARNING)])
    expiring = _expiring(run_dir)
    if as_json:
        records = [msgspec.to_builtins(c) | {"gone": _gone(c, options, expiring) or None} for c in listed]
        say(json.dumps(records, indent=2))
        return 0
    if not listed:
        say(f"no checkpoints {'yet' if lost is None else 'that can be read'} in {sanitize(str(run_dir))}")
        return 0
    rows = [("CHECKPOINT", "STEP", "KIND", "SAVED", "STATE", "PATH")]
    for c in listed:
        saved = _when(c.saved) if c.saved is not None else "--"
        state = _gone(c, options, expiring) or "ok"
        rows.append((sanitize(c.name, 60), str(c.step), c.kind or "--", saved, state, sanitize(c.state_path, 200)))
    say(table(rows))
    return 0


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%MZ")


def _manifest_of(run_dir: Path) -> Manifest | None:
    try:
        return read_manifest(run_dir)
    except RecordingError:
        return None


def _began(run_dir: Path) -> bool:
    try:
        return RunRecord(run_dir).view_at_end().state.engines > 0
    except RecordingError:
        return False
