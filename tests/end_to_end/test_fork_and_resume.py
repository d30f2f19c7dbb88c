"""A run is resumed only as it began, and forked from any of its checkpoints; both from the command line."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from console.commands.fork import Fork, fork_main
from console.errors import UsageError
from console.journal import events as ev
from console.journal.writer import JournalWriter
from console.launching import recorded_options
from console.records.checkpoint_list import list_checkpoints
from console.records.manifest import Manifest, read_manifest, write_manifest
from console.records.run_dir import RunRecord
from console.training.embedded_store import find_checkpoint, store_of
from console.training.options import RunOptions, parse

ROOT = Path(__file__).resolve().parents[2]


def quarterdeck(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "console", *words],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=ROOT, timeout=150, check=False,
    )  # fmt: skip


def train_words(run_dir: Path, *more: str) -> list[str]:
    return [
        "train", str(ROOT / "configs/demo.toml"), f"config.log_path={run_dir}", "config.max_steps=2",
        "config.save_every=1", "config.dataset_builder.groups_per_batch=1", "config.dataset_builder.group_size=2",
        *more,
    ]  # fmt: skip


def contents(directory: Path) -> dict[str, str]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def adapter(options: RunOptions, path: str) -> dict[str, Any]:
    directory = find_checkpoint(store_of(options), path)
    assert directory is not None
    return load_file(directory / "adapter_model.safetensors")


def meta(options: RunOptions, path: str) -> dict[str, Any]:
    directory = find_checkpoint(store_of(options), path)
    assert directory is not None
    return json.loads((directory / "checkpoint.json").read_text())


def test_a_run_its_resume_and_its_forks(tmp_path):
    parent_dir = tmp_path / "parent"
    done = quarterdeck(*train_words(parent_dir), "--headless")
    assert done.returncode == 0, done.stderr
    parent = recorded_options(parent_dir)
    manifest = read_manifest(parent_dir)
    assert manifest.fingerprints["config.learning_rate"] == "0.002"
    assert sum(name.startswith("task:") for name in manifest.fingerprints) == 16
    first, *_, final = list_checkpoints(parent_dir)
    assert (first.name, first.step, first.kind, first.policy_version) == ("000001", 1, "periodic", 1)
    assert (final.name, final.step, final.kind) == ("final", 2, "final")
    before = contents(parent_dir)

    # What does not match is refused, and nothing has changed.
    refused = quarterdeck(*train_words(parent_dir, "config.learning_rate=1e-3", "config.max_steps=4"), "--headless")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1), refused.stderr
    assert "config.learning_rate: is 0.001, and the run began with 0.002; put it back, or fork: " in refused.stderr
    checked = quarterdeck("train", "--resume", str(parent_dir), "config.max_steps=1", "harbor.train=main", "--check",
                          "--json")  # fmt: skip
    assert checked.returncode == 2
    found = {f["code"]: f for f in json.loads(checked.stdout)["findings"]}
    assert {"resume.from", "resume.max_steps", "resume.option"} <= found.keys()
    assert found["resume.option"]["object"] == "harbor.train"
    assert "resumes from step 2 (checkpoint final, saved " in found["resume.from"]["message"]
    assert contents(parent_dir) == before

    # A fork goes on at the checkpoint, with its optimizer.
    fork_dir = tmp_path / "fork"
    forked = quarterdeck("fork", str(parent_dir), "--at", "1", "config.learning_rate=1e-12", "--headless",
                         f"config.log_path={fork_dir}")  # fmt: skip
    assert forked.returncode == 0, forked.stderr
    assert f"begins at step 1, from checkpoint 000001 of {manifest.run_id}" in forked.stderr
    records = [json.loads(line) for line in forked.stdout.splitlines()]
    assert [r["step"] for r in records if r["type"] == "step"] == [1]
    view = RunRecord(fork_dir).view_at_end()
    assert (view.state.status, view.state.steps_done, view.state.engines) == ("finished", 2, 1)
    (ancestor,) = read_manifest(fork_dir).lineage
    assert (ancestor.run_id, ancestor.checkpoint, ancestor.step) == (manifest.run_id, "000001", 1)
    assert ancestor.path == first.state_path and ancestor.optimizer
    assert read_manifest(fork_dir).run_id != manifest.run_id
    options, (begun_with, *_, last) = recorded_options(fork_dir), list_checkpoints(fork_dir)
    assert (begun_with.kind, begun_with.policy_version, last.policy_version) == ("fork", 1, 2)
    assert (options.value("config.learning_rate"), options.console.name) == (1e-12, None)
    assert meta(options, last.state_path)["optimizer_steps"] == 2
    kept, now = adapter(parent, first.state_path), adapter(options, last.state_path)
    assert max(float(abs(kept[name] - now[name]).max()) for name in kept) < 1e-9
    assert contents(parent_dir) == before

    # One that was made and did not start is begun with --resume; with the weights alone it begins at step 0.
    again_dir = tmp_path / "again"
    words = ["config.max_steps=1", f"config.log_path={again_dir}", "config.learning_rate=1e-12"]
    grandchild = parse([*words, f"config.load_checkpoint_path={last.state_path}"], base=options)
    Fork(fork_dir, options, last, grandchild, optimizer=False).seed()
    begun = quarterdeck("train", "--resume", str(again_dir), "--headless")
    assert begun.returncode == 0, begun.stderr
    assert f"begins at step 0, with the weights alone of checkpoint final of {view.state.run_id}" in begun.stderr
    records = [json.loads(line) for line in begun.stdout.splitlines()]
    assert [r["step"] for r in records if r["type"] == "step"] == [0]
    lineage = read_manifest(again_dir).lineage
    assert [(a.checkpoint, a.optimizer) for a in lineage] == [("000001", True), ("final", False)]
    own = list_checkpoints(again_dir)[-1]
    assert meta(grandchild, own.state_path)["optimizer_steps"] == 1
    mine = adapter(grandchild, own.state_path)
    assert max(float(abs(now[name] - mine[name]).max()) for name in now) < 1e-9


# --- what a fork refuses -------------------------------------------------------------------------------------------


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    """A run with three checkpoints on somebody else's gateway, where they live for an hour."""
    run_dir = tmp_path / "parent"
    run_dir.mkdir()
    words = [
        "config.base_url=http://127.0.0.1:1", "config.model_name=Qwen/Qwen3-8B", "config.learning_rate=1e-3",
        "config.max_tokens=64", "config.loss_fn=ppo", "config.ttl_seconds=3600", f"config.log_path={run_dir}",
        f"config.dataset_builder.tasks_dir={ROOT / 'configs/tasks'}", "config.max_steps=6", "console.name=mine",
        f"harbor.trial_config={ROOT / 'configs/trials/terminal-bwrap.json'}", "config.dataset_builder.epochs=8",
    ]  # fmt: skip
    options = parse(words)
    options.write(run_dir / "options.json")
    write_manifest(run_dir, Manifest(run_id="r1"))
    rows = []
    with JournalWriter(run_dir / "journal") as journal:
        journal.append(ev.RunStarted(run_id="r1"))
        for name, step, kind in (("000002", 2, "periodic"), ("000004", 4, "periodic"), ("final", 6, "final")):
            path = f"tinker://m/weights/{name}"
            rows.append({"name": name, "batch": step, "state_path": path, "sampler_path": f"tinker://m/s/{name}"})
            journal.append(ev.CheckpointSaved(name=name, step=step, path=path, kind=kind))
    (run_dir / "checkpoints.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run_dir


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["config.log_path=NEW", "--at", "9"],
            "--at 9: no such checkpoint; there are 000002 (step 2), 0000",
        ),
        (["config.log_path=NEW"], "config.max_steps: the checkpoint has 6 steps, and the options plan 6 in all"),
        (
            ["config.log_path=NEW", "--at", "4", "config.lora_rank=8"],
            "config.lora_rank: is 8, and the checkpoint",
        ),
        (
            ["config.log_path=NEW", "--at", "4", "config.model_name=Qwen/Qwen3-4B"],
            "config.model_name: is Qwen",
        ),
        (["config.log_path=NEW", "--at", "4", "console.gateway=embedded"], "console.gateway: is embedded"),
        (["config.log_path=TAKEN", "--at", "4"], "exists and is not empty"),
        (["config.log_path=PARENT", "--at", "4"], "lies in the run that is forked"),
        (["config.log_path=PARENT/below", "--at", "4"], "lies in the run that is forked"),
        (["--at", "4"], "config.log_path=NEW is missing"),
        (["config.log_path=NEW", "some.toml"], "some.toml: a fork takes the run's own options"),
        (["config.log_path=NEW", "config.load_checkpoint_path=x"], "name that with --at"),
        (["config.log_path=NEW", "config.lora_rnk=8"], "did you mean config.lora_rank"),
        (["config.log_path=NEW", "--headless", "--detach"], "exclude each other"),
        (["config.log_path=NEW", "--json"], "--json goes with"),
        # all is well but the gateway
        (["config.log_path=NEW", "--at", "4"], "http://127.0.0.1:1"),
        (["config.log_path=NEW", "--at", "final", "--weights-only"], "http://127.0.0.1:1"),
    ],
)
def test_refusals_leave_nothing(parent: Path, words: list[str], said: str) -> None:
    taken = parent.with_name("taken")
    (taken / "something").mkdir(parents=True)
    before = contents(parent.parent)
    places = {"NEW": parent.with_name("new"), "TAKEN": taken, "PARENT": parent}
    given = [f"config.log_path={_place(w, places)}" if w.startswith("config.log_path=") else w for w in words]
    with pytest.raises(UsageError) as refused:
        fork_main([str(parent), *given, *(["--headless"] if "--detach" not in words and "--json" not in words else [])])
    assert said in str(refused.value)
    assert contents(parent.parent) == before
    assert {path.name for path in parent.parent.iterdir()} == {"parent", "taken"}


def _place(word: str, places: dict[str, Path]) -> Path:
    name, _, below = word.removeprefix("config.log_path=").partition("/")
    return places[name] / below


def test_an_expired_checkpoint_is_refused_and_listed_as_that(parent, capsys):
    """The one that was saved last has no lifetime; nor has any where the gateway keeps them for ever."""
    raw = parent / "journal"
    for file in raw.iterdir():
        file.unlink()
    with JournalWriter(raw, clock=lambda: 1000.0) as journal:
        journal.append(ev.RunStarted(run_id="r1"))
        for name, kind in (("000002", "periodic"), ("final", "final")):
            path = f"tinker://m/weights/{name}"
            journal.append(ev.CheckpointSaved(name=name, step=2, path=path, kind=kind))
    with pytest.raises(UsageError, match="checkpoint 000002 expired 1970-01-01 01:16Z"):
        fork_main([str(parent), "--at", "2", f"config.log_path={parent.with_name('new')}"])
    assert fork_main([str(parent), "--list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(r["name"], r["step"], bool(r["gone"])) for r in rows] == [
        ("000002", 2, True), ("000004", 4, False), ("final", 6, False)
    ]  # fmt: skip
    assert fork_main([str(parent), "--list"]) == 0
    assert "000002" in capsys.readouterr().out
    with JournalWriter(raw, clock=lambda: 1000.0) as journal:
        journal.append(ev.GatewayProfiled(profile="miles", expiring=False))
    assert fork_main([str(parent), "--list", "--json"]) == 0
    assert [r["gone"] for r in json.loads(capsys.readouterr().out)] == [None, None, None]


def test_a_run_without_a_checkpoint_cannot_be_forked(parent, capsys):
    (parent / "checkpoints.jsonl").unlink()
    shutil.rmtree(parent / "journal")
    assert fork_main([str(parent), "--list"]) == 0
    assert capsys.readouterr().out.startswith("no checkpoints yet in ")
    with pytest.raises(UsageError, match="has no checkpoint yet"):
        fork_main([str(parent), f"config.log_path={parent.with_name('new')}"])


def keep_rows(run_dir: Path, count: int) -> None:
    """So many rows of the checkpoints are left whole, the next one is torn."""
    path = run_dir / "checkpoints.jsonl"
    rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join(rows[:count]) + rows[count][:30])


LOST = "checkpoints.jsonl: is damaged: it lacks checkpoint final, which was saved after step 6"


@pytest.mark.parametrize(
    ("kept", "at", "said"),
    [
        (2, [], LOST),
        (2, ["--at", "last"], LOST),
        (2, ["--at", "final"], "--at final: no such checkpoint; there are 000002 (step 2), 000004 (step 4): "),
        (2, ["--at", "final"], LOST),
        (0, [], LOST),
        (0, ["--at", "2"], LOST),
    ],
)
def test_no_older_checkpoint_stands_in_for_the_last_one(parent: Path, kept: int, at: list[str], said: str) -> None:
    keep_rows(parent, kept)
    with pytest.raises(UsageError) as refused:
        fork_main([str(parent), *at, f"config.log_path={parent.with_name('new')}", "--headless"])
    assert said in str(refused.value)
    assert 'append the line {"name": "final", "batch": 6, "state_path": "tinker://m/weights/final"}' in str(
        refused.value
    )
    assert not parent.with_name("new").exists()


def test_an_earlier_checkpoint_can_be_forked_and_the_loss_is_told(parent, capsys, monkeypatch):
    keep_rows(parent, 2)
    monkeypatch.setattr("console.commands.fork.start", lambda *_, **__: 0)
    monkeypatch.setattr("console.commands.fork.preflight_findings", lambda *_, **__: [])
    words = [str(parent), f"config.log_path={parent.with_name('new')}", "--headless"]
    assert fork_main([*words, "--at", "4"]) == 0
    assert capsys.readouterr().err == f"quarterdeck: warning: {parent}/{LOST}\n"
    assert fork_main([*words, "--at", "4", "--check"]) == 0
    assert f"warning resume.checkpoint           {parent}/{LOST}\n" == capsys.readouterr().out
    assert fork_main([*words, "--check"]) == 2
    assert capsys.readouterr().out.startswith(f"error   resume.checkpoint           {parent}/{LOST}; ")


@pytest.mark.parametrize("kept", [2, 0])
def test_a_list_tells_which_checkpoint_is_lost(parent, capsys, kept):
    keep_rows(parent, kept)
    assert fork_main([str(parent), "--list", "--json"]) == 0
    listed = capsys.readouterr()
    assert len(json.loads(listed.out)) == kept
    assert listed.err.startswith(f"quarterdeck: warning: {parent}/{LOST}; put it back from a copy, ")
    assert fork_main([str(parent), "--list"]) == 0
    listed = capsys.readouterr()
    assert LOST in listed.err
    assert kept or listed.out == f"no checkpoints that can be read in {parent}\n"


def test_a_fork_is_made_whole_or_not_at_all(parent):
    """The embedded gateway's checkpoint is gone: nothing is left of the attempt."""
    new = parent.with_name("new")
    options = parse(["console.gateway=embedded", f"config.log_path={new}"], base=recorded_options(parent))
    chosen = list_checkpoints(parent)[1]
    fork = Fork(parent, recorded_options(parent), chosen, options, optimizer=True)
    with pytest.raises(UsageError, match="is no longer in"):
        fork.seed()
    assert not fork.seeded
    assert {path.name for path in parent.parent.iterdir()} == {"parent"}


def test_resume_takes_no_other_directory(parent):
    for word in ("config.log_path=/elsewhere", "some.toml"):
        refused = quarterdeck("train", "--resume", str(parent), word, "--headless")
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert "--resume" in refused.stderr
