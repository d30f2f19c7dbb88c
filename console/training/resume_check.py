"""Whether a run may go on with these options: key by key what differs from how it began, and what to do about it."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from console.errors import RecordingError, UsageError
from console.findings import ERROR, NOTE, WARNING, Finding
from console.journal.reader import Journal
from console.launching import OPTIONS_FILE, recorded_options
from console.records.cookbook import checkpoint_rows
from console.records.manifest import MANIFEST, Manifest, read_manifest
from console.records.run_dir import RunRecord
from console.records.sandbox_ledger import LEDGER
from console.state.reduce import RunView
from console.training import fingerprints
from console.training.embedded_store import find_checkpoint, store_of
from console.training.foreseen import foresee
from console.training.options import REDACTED, RunOptions
from console.training.preflight_capture import finding_of
from console.training.resume_losses import losses, lost_checkpoint
from console.training.schema import load_schema

_NAMED = 4
"""Tasks or keys that a finding names; of more it says how many."""
_ANEW = "config.model_name", "config.lora_rank", "console.gateway"
"""What no fork can change either: the weights belong to it."""


class Standing(msgspec.Struct, kw_only=True, frozen=True):
    """Where a run stands that is to go on.

    Attributes:
        run_id: its name; checkpoint: name of the last checkpoint, empty for none; step: where a resume goes on.
        saved: Unix seconds, None when not known; again: steps that were trained since, and are trained again from what
            was captured; anew: those of which too much is lost for that; lost: why, of the first of these, one line.
        trained: steps that were trained, in the checkpoint or since.
        origin: the checkpoint of another run that it was forked from; began: whether an engine has run since.
    """

    run_id: str
    checkpoint: str = ""
    step: int = 0
    saved: float | None = None
    again: tuple[int, ...] = ()
    anew: tuple[int, ...] = ()
    lost: str = ""
    trained: int = 0
    origin: str = ""
    began: bool = True

    def line(self, now: float | None = None) -> str:
        """One sentence: from where the run goes on, and what is applied again."""
        if not self.began:
            how = "from" if self.checkpoint else "with the weights alone of"
            where = f"run {self.run_id} begins at step {self.step}, {how} {self.origin or 'a checkpoint'}"
        elif not self.checkpoint:
            where = f"run {self.run_id} begins anew: it has no checkpoint yet"
        else:
            age = "" if self.saved is None else f", saved {_age((now or time.time()) - self.saved)} ago"
            where = f"run {self.run_id} resumes from step {self.step} (checkpoint {self.checkpoint}{age})"
        if self.again:
            where += f"; {_steps_are(self.again)} applied again from what was captured"
        if self.anew:
            where += f"; {_steps_are(self.anew)} begun again"
        return where


class _Held(NamedTuple):
    """What a run's directory holds: the cookbook's rows of checkpoints, and the other two where there are any.

    `damaged`: whether something of its journal is known not to be readable; a line that a kill has torn counts too.
    """

    view: RunView | None
    rows: list[dict[str, Any]]
    manifest: Manifest | None
    damaged: bool = False


def standing(run_dir: Path) -> Standing | None:
    """Where the run of a directory stands; None when there is no run in it.

    Reads the journal since the last checkpoint, and a few MiB of what was captured since. Raises RecordingError.
    """
    return _standing(run_dir, _held(run_dir))


def _standing(run_dir: Path, held: _Held) -> Standing | None:
    view, rows, manifest = held.view, held.rows, held.manifest
    began = view is not None and view.state.engines > 0
    origin = manifest.lineage[-1] if manifest is not None and manifest.lineage else None
    if not rows and not began and origin is None:
        return None
    last = rows[-1] if rows else {}
    step = int(last.get("batch", 0))
    done = [] if view is None else [row.step for row in view.history.rows]
    since = sorted({number for number in done if number >= step})
    ahead = foresee(run_dir, last, since)
    kept = [] if view is None else [c for c in view.state.checkpoints if c.path == last.get("state_path")]
    return Standing(
        run_id=(view.state.run_id if view is not None else "") or (manifest.run_id if manifest else ""),
        checkpoint=str(last.get("name", "")),
        step=step,
        saved=kept[-1].ts if kept else None,
        again=ahead.again,
        anew=ahead.anew,
        lost=ahead.why,
        trained=max([step, *(number + 1 for number in since)]),
        origin="" if origin is None else f"checkpoint {origin.checkpoint} of {origin.run_id or origin.run_dir}",
        began=began,
    )


def check(options: RunOptions, run_dir: Path) -> list[Finding]:
    """What forbids the run in a directory to go on with these options, and where it would go on; nothing for no run.

    Never raises for a user's mistake.
    """
    try:
        held = _held(run_dir)
        at = _standing(run_dir, held)
        lost = losses(run_dir, damaged=held.damaged, lost=at.lost if at is not None else "")
    except RecordingError as error:
        return [Finding(code="resume.unreadable", object=str(run_dir), message=str(error))]
    if at is None:
        return lost
    found = [Finding(code="resume.from", level=NOTE, object="config.log_path", message=at.line())]
    if not at.checkpoint and not at.origin and not at.trained and not (run_dir / LEDGER).exists():
        return found  # no trial ever began, as after a refusal by the gateway: whatever was wrong may be corrected
    found += [*lost, *_steps(options, at)]
    try:
        found += [*_checkpoint(options, run_dir, held), *_compared(options, run_dir, held.manifest)]
    except UsageError as problem:
        found.append(finding_of("resume.unreadable", problem))
    return found


def _steps_are(steps: Sequence[int]) -> str:
    return f"step {steps[0]} is" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]} are"


def fork_check(options: RunOptions, parent: RunOptions, kept: Mapping[str, str]) -> list[Finding]:
    """What of the changed options a fork cannot take along: the weights belong to their model, rank and gateway.

    Args:
        options: of the fork; parent: of the run it is made from; kept: that run's fingerprints.

    Raises:
        UsageError: the embedded gateway's model cannot be read.
    """
    remedy = "leave it out, or train from the beginning with quarterdeck train"
    found = [
        Finding(
            code="fork.option",
            object=key,
            message=f"is {_shown(now)}, and the checkpoint is of a run with {_shown(was)}",
            remedy=remedy,
        )
        for key in _ANEW
        if (now := fingerprints.of_option(options, key)) != (was := fingerprints.of_option(parent, key))
    ]
    return [*found, *_model(fingerprints.of_model(options), kept, remedy)]


def _steps(options: RunOptions, at: Standing) -> Iterator[Finding]:
    limit = options.value("config.max_steps")
    if limit is not None and limit < at.trained:
        yield Finding(
            code="resume.max_steps",
            object="config.max_steps",
            message=f"is {limit}, and {at.trained} steps of the run are trained",
            remedy=f"raise it, or start a new run from an earlier checkpoint: {_fork(options)}",
        )


def _checkpoint(options: RunOptions, run_dir: Path, held: _Held) -> Iterator[Finding]:
    """Whether the last checkpoint is known, and whether an embedded gateway will find it; another one is not asked."""
    rows = held.rows
    lost = lost_checkpoint(run_dir, held.view.state.checkpoints if held.view is not None else [], rows)
    if lost is not None:
        yield lost
        return
    if not options.embedded or not rows:
        return
    path, store = str(rows[-1]["state_path"]), store_of(options)
    if find_checkpoint(store, path) is None:
        yield Finding(
            code="resume.checkpoint",
            object="console.embedded_checkpoints",
            message=f"{store} holds no checkpoint {path}",
            remedy="name the directory in which the run's gateway kept its checkpoints",
        )


def _compared(options: RunOptions, run_dir: Path, manifest: Manifest | None) -> Iterator[Finding]:
    kept = manifest.fingerprints if manifest is not None else {}
    now = fingerprints.of(options)
    if not kept:
        why = "is missing or damaged" if manifest is None else "was written before fingerprints were kept"
        try:
            before = recorded_options(run_dir)
        except UsageError:
            before = None
        yield Finding(
            code="resume.unchecked",
            level=WARNING if before is not None else ERROR,
            object=str(run_dir / MANIFEST),
            message=f"{why}, so it cannot be checked that tasks, trial file and model are those that the run began with"
            + ("" if before is not None else f"; {OPTIONS_FILE} cannot be read, so neither can the options"),
            remedy="make sure that they are" if before is not None else "put one of the two back from a copy",
        )
        if before is not None:
            yield from _options(options, now, fingerprints.of(before))
        return
    yield from _options(options, now, kept)
    yield from _trial(options, now, kept)
    yield from _tasks(options, now, kept)
    yield from _model(now, kept, "name the model that the run began with, or train from the beginning")


def _options(options: RunOptions, now: Mapping[str, str], kept: Mapping[str, str]) -> Iterator[Finding]:
    for key in fingerprints.KEPT:
        was = kept.get(key, fingerprints.of_default(key))
        if now[key] == was:
            continue
        anew = "start a new run with another config.log_path" if key in _ANEW else f"fork: {_fork(options, key)}"
        yield Finding(
            code="resume.option",
            object=key,
            message=f"is {_shown(now[key])}, and the run began with {_shown(was)}",
            remedy=f"put it back, or {anew}",
        )
    for key in fingerprints.GROWING:
        was_count = kept.get(key, now[key])
        if not was_count.isdigit() or int(now[key]) < int(was_count):
            yield Finding(
                code="resume.option",
                object=key,
                message=f"is {now[key]}, and the run has {kept[key]}; it may only grow",
                remedy="put it back, and end the run earlier with config.max_steps",
            )


def _trial(options: RunOptions, now: Mapping[str, str], kept: Mapping[str, str]) -> Iterator[Finding]:
    start = fingerprints.TRIAL
    names = sorted(name for name in {*now, *kept} if name.startswith(start) and now.get(name) != kept.get(name))
    for name in names[:_NAMED]:
        yield Finding(
            code="resume.trial",
            object=f"harbor.trial_config={options.harbor.trial_config}",
            message=f"{name.removeprefix(start)} is {_shown(now.get(name))}, and the run began with "
            f"{_shown(kept.get(name))}",
            remedy=f"put it back, or fork: {_fork(options)}",
        )
    if len(names) > _NAMED:
        yield Finding(
            code="resume.trial",
            object=f"harbor.trial_config={options.harbor.trial_config}",
            message=f"{len(names) - _NAMED} more of its keys differ",
            remedy="put the file back",
        )


def _tasks(options: RunOptions, now: Mapping[str, str], kept: Mapping[str, str]) -> Iterator[Finding]:
    new, old = _named(now, fingerprints.TASK), _named(kept, fingerprints.TASK)
    changed = [name for name in new if name in old and new[name] != old[name]]
    for names, what in (
        ([name for name in new if name not in old], "added"),
        ([name for name in old if name not in new], "removed"),
        (changed, "changed"),
    ):
        if names:
            yield Finding(
                code="resume.tasks",
                object="config.dataset_builder.tasks_dir",
                message=f"{_listed(names)} {'was' if len(names) == 1 else 'were'} {what} since the run began",
                remedy=f"put {'it' if len(names) == 1 else 'them'} back, or fork: {_fork(options)}",
            )


def _model(now: Mapping[str, str], kept: Mapping[str, str], remedy: str) -> Iterator[Finding]:
    new, old = _named(now, fingerprints.MODEL), _named(kept, fingerprints.MODEL)
    names = sorted(name for name in {*new, *old} if new.get(name) != old.get(name))
    if new and old and names:
        verb = "differs" if len(names) == 1 else "differ"
        yield Finding(
            code="resume.model",
            object="console.embedded_model",
            message=f"is another model than that of the run: {_listed(names)} {verb}",
            remedy=remedy,
        )


def _named(found: Mapping[str, str], start: str) -> dict[str, str]:
    return {name.removeprefix(start): value for name, value in found.items() if name.startswith(start)}


def _listed(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more


def _shown(value: str | None) -> str:
    """A fingerprint as a person writes the value."""
    if value is None:
        return "not set"
    if value.startswith("sha256:"):
        return f"another ({value[7:15]})"
    try:
        decoded = json.loads(value)
    except ValueError:  # edited by hand
        return value
    return (decoded or '""') if isinstance(decoded, str) else str(decoded) if decoded is None else value


def _fork(options: RunOptions, key: str | None = None) -> str:
    """The command that makes a new run with these options. A fork begins with the run's own: the others are named."""
    words = [f"{name}={_given(options.value(name))}" for name in _changed(options, key)]
    place = shlex.quote(str(options.log_path))
    return " ".join(["quarterdeck fork", place, *map(shlex.quote, words), "config.log_path=NEW"])


def _changed(options: RunOptions, key: str | None) -> list[str]:
    """The options that the run's last engine did not have, and `key`; none that no fork takes or nobody may see."""
    keys = [] if key is None else [key]
    try:
        before = recorded_options(options.log_path)
    except UsageError:  # then the run cannot be forked either
        return keys
    shown = options.overrides()
    for name in (*before.given, *options.given):
        if name == "config.log_path" or name in _ANEW or load_schema().get(name) is None:
            continue
        if options.value(name) != before.value(name) and REDACTED not in str(shown.get(name)):
            keys.append(name)
    return list(dict.fromkeys(keys))


def _given(value: object) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def _age(seconds: float) -> str:
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _held(run_dir: Path) -> _Held:
    """Raises `RecordingError`; a manifest that cannot be read is none."""
    record = RunRecord(run_dir) if (run_dir / "journal").is_dir() else None
    view = record.view_at_end() if record is not None else None
    damaged = record is not None and (bool(record.damage) or Journal(record.path / "journal").end_lost)
    held = _Held(view, checkpoint_rows(run_dir), None, damaged)
    try:
        return held._replace(manifest=read_manifest(run_dir))
    except RecordingError:
        return held
