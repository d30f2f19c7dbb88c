"""`quarterdeck export --tokens`: what was trained, of runs that ended, go on, or were killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from capture_files import CallsFile

from console import cli
from console.capture.sealing import seal_file
from console.journal import events as ev
from console.journal.writer import JournalWriter
from console.records.capture_format import KeptMessage, Sealed, SegmentLine


def seal(made: CallsFile) -> Path:
    path = made.path.with_name(made.path.name + ".zst")
    seal_file(made.path, path, made.path.stat().st_size)
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two steps. Step 0: g1/t1 sealed with a side call, g1/t2 in two tries, g2/t1 unsealed and torn."""
    with JournalWriter(tmp_path / "journal", snapshot=lambda: (b"{}", 0)) as journal:
        journal.append(ev.RunStarted(run_id="run-7"))
        for group in (0, 1):
            journal.append(ev.GroupStarted(step=0, group=group, task=f"task {group}", size=2))
        journal.append(ev.TrialFinished(step=0, group=0, trial=0, outcome="completed", reward=0.5))
        journal.append(ev.TrialFinished(step=0, group=0, trial=1, outcome="infrastructure", cause="sandbox"))
        journal.append(ev.TrialFinished(step=0, group=0, trial=1, try_=1, outcome="agent_timeout", reward=0.0))
    first = CallsFile(tmp_path, "s0.g0.t0.y0", policy_version=3, model="m", renderer="qwen3_5")
    side = first.call([KeptMessage(role="user", text="TITLE SECRET")], "t", prompt=[9])
    first.last, first._length = "", 0
    nodes = [
        first.call(prompt=[1, 2], tokens=[5, 6], logprobs=[-0.1, -2.5]),
        first.call(prompt=[3], tokens=[7], logprobs=[0.0], status="length"),
    ]
    failed = first.begin()
    first.end(failed, status="backend", error="gone")
    first.write(
        Sealed(calls=3, failed=1, segments=[SegmentLine(nodes=nodes, reason="first")], excluded={"aux": 1},
               excluded_nodes={"aux": [side]})
    )  # fmt: skip
    seal(first)
    for try_ in (0, 1):
        again = CallsFile(tmp_path, f"s0.g0.t1.y{try_}")
        again.seal([again.call(prompt=[try_])])
    open_ = CallsFile(tmp_path, "s0.g1.t0.y0")
    open_.call(prompt=[1])
    open_.call(prompt=[2])
    open_.begin()
    with open_.path.open("ab") as file:
        file.write(b"\x40\0\0\0torn")
    CallsFile(tmp_path, "s1.g0.t0.y0").call()
    return tmp_path


@pytest.fixture
def export(capfd: pytest.CaptureFixture[str]):
    """Runs the command; (exit code, rows, stderr)."""

    def go(*argv: str | Path) -> tuple[int, list[dict[str, Any]], str]:
        code = cli.run(["export", *map(str, argv)])
        out, err = capfd.readouterr()
        return code, [json.loads(line) for line in out.splitlines()], err

    return go


def test_a_segment_is_a_line(run: Path, export) -> None:
    code, rows, err = export(run, "--tokens", "--step", "0")
    assert code == 0 and [(row["name"], row["try"]) for row in rows] == [("g1/t1", 0), ("g1/t2", 1), ("g2/t1", 0)]
    first = rows[0]
    assert (first["tokens"], first["mask"]) == ([1, 2, 5, 6, 3, 7], [0, 0, 1, 1, 0, 1])
    assert first["logprobs"] == [None, None, -0.1, -2.5, None, 0.0]
    assert (first["run"], first["task"], first["outcome"], first["reward"]) == ("run-7", "task 0", "completed", 0.5)
    assert (first["policy_version"], first["renderer"], first["sealed"], first["reason"]) == (
        3,
        "qwen3_5",
        True,
        "first",
    )
    assert len(first["nodes"]) == 2 and (first["segment"], first["segments"], first["kind"]) == (0, 1, "main")
    assert rows[1]["outcome"] == "agent_timeout" and rows[1]["tokens"][0] == 1
    assert (rows[2]["sealed"], rows[2]["outcome"], rows[2]["tokens"]) == (False, None, [1, 7, 8, 2, 7, 8])
    assert err == (
        "quarterdeck: 3 segments of 3 trials; 5 calls in segments, 9 of 15 tokens sampled; "
        "answered but not trained: 1 aux; 1 call not answered; 1 call without an outcome; "
        "1 trial not sealed: running, or its engine was killed; "
        "3 trials of which it cannot be known whether that trained; 1 file ending within a record\n"
    )


def test_a_call_is_a_line(run: Path, export) -> None:
    code, rows, err = export(run, "--tokens", "--calls", "--group", "g1", "--trial", "0", "--step", "0")
    assert code == 0 and [row["use"] for row in rows] == ["aux", "trained", "trained", None]
    assert [row["status"] for row in rows] == ["stop", "stop", "length", "backend"]
    assert rows[2]["parent"] == rows[1]["node"] and rows[2]["prompt_new"] == [3] and rows[2]["prompt_tokens"] == 5
    assert (rows[1]["tokens"], rows[1]["logprobs"], rows[1]["segment"]) == ([5, 6], [-0.1, -2.5], 0)
    assert "calls of 1 trial; 2 calls in segments" in err and "SECRET" not in json.dumps(rows)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ([], ["0 g1/t1 0", "0 g1/t2 1", "0 g2/t1 0", "1 g1/t1 0"]),
        (["--all-tries"], ["0 g1/t1 0", "0 g1/t2 0", "0 g1/t2 1", "0 g2/t1 0", "1 g1/t1 0"]),
        (["--step", "1"], ["1 g1/t1 0"]),
        (["--group", "1"], ["0 g2/t1 0"]),
        (["--group", "g1", "--trial", "t2"], ["0 g1/t2 1"]),
    ],
)
def test_what_is_asked_for_comes(run: Path, export, options, names) -> None:
    code, rows, _ = export(run, "--tokens", *options)
    assert code == 0 and [f"{row['step']} {row['name']} {row['try']}" for row in rows] == names


def test_the_try_of_the_last_engine_counts(run: Path, export) -> None:
    with JournalWriter(run / "journal", snapshot=lambda: (b"{}", 0)) as journal:
        journal.append(ev.RunStarted(run_id="run-7", resumed_from=0))
        journal.append(ev.TrialPhase(step=0, group=0, trial=0, phase="agent"))
        journal.append(ev.TrialFinished(step=0, group=0, trial=1, outcome="completed", reward=1.0))
    rows = export(run, "--tokens", "--group", "g1", "--step", "0")[1]
    assert [(row["try"], row["outcome"], row["reward"]) for row in rows] == [(0, None, None), (0, "completed", 1.0)]


def test_a_broken_file_costs_its_own_rows_and_is_told(run: Path, export, tmp_path: Path) -> None:
    path = run / "capture/step-000000/s0.g0.t0.y0.calls.zst"
    packed = bytearray(path.read_bytes())
    packed[len(packed) // 2] ^= 1
    path.write_bytes(packed)
    other = run / "capture/step-000001/s1.g0.t0.y0.calls"
    data = bytearray(other.read_bytes())
    data[-3] ^= 1
    other.write_bytes(data)
    target = tmp_path / "out.jsonl"
    code, rows, err = export(run, "--tokens", "-o", target)
    lines = err.splitlines()
    assert code == 10 and rows == [] and len(lines) == 3
    assert lines[0].startswith(f"quarterdeck: {path}: a compressed block at byte 0 is damaged")
    assert lines[1].startswith(f"quarterdeck: {other}: damaged at byte ")
    exported = [json.loads(line) for line in target.read_text().splitlines()]
    assert [(row["step"], row["name"]) for row in exported] == [(0, "g1/t2"), (0, "g2/t1"), (1, "g1/t1")]


def test_a_segment_that_cannot_be_is_told(run: Path, export) -> None:
    made = CallsFile(run, "s2.g0.t0.y0")
    made.seal([made.call(), "n9x00000000"])
    code, rows, err = export(run, "--tokens", "--step", "2")
    assert code == 10 and rows == [] and f"{made.path}: there is no call n9x00000000" in err


def test_a_file_is_there_whole_or_not_at_all(run: Path, export, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    assert export(run, "--tokens", "-o", target, "--step", "9")[0] == 2 and not target.exists()
    assert export(run, "--tokens", "-o", target)[0] == 0 and len(target.read_text().splitlines()) == 4
    assert "--force overwrites" in export(run, "--tokens", "-o", target)[2]
    plain = tmp_path / "calls"  # a name that tells nothing: tokens have one format
    assert export(run, "--tokens", "--calls", "-o", plain)[0] == 0 and len(plain.read_text().splitlines()) > 4
    assert "add --format" in export(run, "-o", tmp_path / "steps")[2]
    assert [name for name in os.listdir(tmp_path) if "out" in name] == ["out.jsonl"]


def test_a_run_without_a_readable_journal_has_its_tokens(run: Path, export) -> None:
    for path in (run / "journal").iterdir():
        path.unlink()
    (run / "journal").rmdir()
    code, rows, err = export(run, "--tokens", "--step", "0")
    assert code == 0 and len(rows) == 3 and rows[0]["outcome"] is None and "without outcome and reward" in err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--step", "1"], "--step is for --tokens"),
        (["--trained"], "--trained is for --tokens"),
        (["--all-tries"], "--all-tries is for --tokens"),
        (["--tokens", "--format", "csv"], "--tokens is written as JSON lines"),
        (["--tokens", "-o", "x.svg"], "--tokens is written as JSON lines"),
        (["--tokens", "--at", "s1"], "--at does not go with --tokens"),
        (["--tokens", "--what", "events"], "--what does not go with --tokens"),
        (["--tokens", "--speed", "2"], "--speed is for --format cast"),
        (["--tokens", "--step", "x"], "--step x: give a number from 0"),
        (["--tokens", "--group", "g0"], "--group g0: give g1 and up as on the screen, or an index from 0"),
        (["--tokens", "--trial", "-1"], "--trial -1: give t1 and up"),
        (["--tokens", "--trial", "g1"], "--trial g1: give t1 and up"),
        (["--tokens", "--step", "4"], "there are steps 0 to 1"),
    ],
)
def test_mistakes_are_one_line(run: Path, export, options, says) -> None:
    code, rows, err = export(run, *options)
    assert code == 2 and rows == [] and says in err and "Traceback" not in err


def test_a_run_without_captured_calls_says_so(run: Path, export) -> None:
    for path in (run / "capture").rglob("*.calls*"):
        path.unlink()
    code, _, err = export(run, "--tokens")
    assert code == 2 and "no model calls were captured" in err


def test_it_needs_none_of_the_engine(run: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'tinker', 'tinker_cookbook', 'harbor', 'aiohttp', 'numpy', 'transformers'):\n"
        "    sys.modules[name] = None\n"
        "from console import cli\n"
        "sys.exit(cli.run(['export', sys.argv[1], '--tokens', '--calls']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(run)], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 9


def test_files_that_are_gone_are_told_of_and_cost_their_own_rows_only(run: Path, export) -> None:
    with JournalWriter(run / "journal", snapshot=lambda: (b"{}", 0)) as journal:
        for trial in range(2, 8):
            journal.append(ev.TrialFinished(step=0, group=0, trial=trial, outcome="completed", reward=1.0, turns=2))
        journal.append(ev.TrialFinished(step=0, group=1, trial=1, outcome="no_samples", cause="no_calls"))
        journal.append(ev.TrialTurn(step=1, group=0, trial=1, turn=1))
    code, rows, err = export(run, "--tokens")
    assert code == 10 and len(rows) == 4
    assert err.splitlines()[0] == (
        f"quarterdeck: {run}/capture: calls were captured whose files are gone: "
        "s0.g0.t2.y0, s0.g0.t3.y0, s0.g0.t4.y0, s0.g0.t5.y0 and 3 more"
    )
    code, _, err = export(run, "--tokens", "--step", "1")
    assert code == 10 and "gone: s1.g0.t1.y0\n" in err
    assert export(run, "--tokens", "--group", "g1", "--trial", "t1")[0] == 0
    with JournalWriter(run / "journal", snapshot=lambda: (b"{}", 0)) as journal:
        journal.append(ev.TrialTurn(step=1, group=0, trial=1, try_=1, turn=1))
    assert "gone: s1.g0.t1.y1\n" in export(run, "--tokens", "--step", "1")[2], "a try that was replaced is not wanted"
    assert "gone: s1.g0.t1.y0, s1.g0.t1.y1\n" in export(run, "--tokens", "--step", "1", "--all-tries")[2]


def whether_trained(rows: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    return [(row["name"], row["try"], row["earlier"], row["trained"], row["group_kept"]) for row in rows]


def test_rows_say_whether_the_trial_trained(run: Path, export) -> None:
    with JournalWriter(run / "journal", snapshot=lambda: (b"{}", 0)) as journal:
        journal.append(ev.TrialFinished(step=0, group=1, trial=0, outcome="completed", reward=1.0))
        journal.append(ev.GroupFinished(step=0, group=0, kept=True))
    step = ("--tokens", "--step", "0", "--all-tries")
    before = [("g1/t1", 0, 0, None, True), ("g1/t2", 0, 0, False, True), ("g1/t2", 1, 0, None, True)]
    assert whether_trained(export(run, *step)[1]) == [*before, ("g2/t1", 0, 0, None, None)]
    with JournalWriter(run / "journal", snapshot=lambda: (b"{}", 0)) as journal:
        journal.append(ev.GroupFinished(step=0, group=1, kept=False))
        journal.append(ev.StepFinished(step=0))
    code, rows, err = export(run, *step)
    after = [("g1/t1", 0, 0, True, True), ("g1/t2", 0, 0, False, True), ("g1/t2", 1, 0, True, True)]
    assert code == 0 and whether_trained(rows) == [*after, ("g2/t1", 0, 0, False, False)]
    assert "2 trials did not train" in err and "cannot be known" not in err
    code, rows, err = export(run, "--tokens", "--trained")
    assert code == 0 and [(row["name"], row["try"]) for row in rows] == [("g1/t1", 0), ("g1/t2", 1)]
    assert "2 trials left out by --trained" in err and "not sealed" not in err
    calls = export(run, "--tokens", "--calls", "--step", "0", "--group", "g1", "--trial", "t1")[1]
    assert [(row["use"], row["trained"]) for row in calls] == [
        ("aux", False), ("trained", True), ("trained", True), (None, False),
    ]  # fmt: skip
    assert len(export(run, "--tokens", "--calls", "--trained", "--trial", "t1")[1]) == 2
    with JournalWriter(run / "journal", snapshot=lambda: (b"{}", 0)) as journal:
        journal.append(ev.RunStarted(run_id="run-7", resumed_from=1))
    assert whether_trained(export(run, *step)[1])[0] == after[0]
    with JournalWriter(run / "journal", snapshot=lambda: (b"{}", 0)) as journal:
        journal.append(ev.RunStarted(run_id="run-7", resumed_from=0))
    assert whether_trained(export(run, *step)[1])[0] == ("g1/t1", 0, 0, None, None), "its weights are no more"
    with JournalWriter(run / "journal", snapshot=lambda: (b"{}", 0)) as journal:
        journal.append(ev.TrialFinished(step=0, group=0, trial=0, outcome="completed", reward=0.5))
        journal.append(ev.GroupFinished(step=0, group=0, kept=True))
    assert whether_trained(export(run, *step)[1])[0] == ("g1/t1", 0, 0, None, True), "the step has not ended again"


def test_a_scored_trial_whose_segments_are_not_known_is_not_said_to_have_trained(run: Path, export) -> None:
    with JournalWriter(run / "journal", snapshot=lambda: (b"{}", 0)) as journal:
        journal.append(ev.TrialFinished(step=0, group=1, trial=0, outcome="completed", reward=1.0))
        journal.append(ev.GroupFinished(step=0, group=1, kept=True))
        journal.append(ev.StepFinished(step=0))
    assert whether_trained(export(run, "--tokens", "--group", "g2")[1]) == [("g2/t1", 0, 0, None, True)]


def test_files_that_a_resumed_run_set_aside_are_tries_too(run: Path, export) -> None:
    with JournalWriter(run / "journal", snapshot=lambda: (b"{}", 0)) as journal:
        journal.append(ev.GroupFinished(step=0, group=0, kept=True))
        journal.append(ev.StepFinished(step=0))
    sealed = run / "capture/step-000000/s0.g0.t0.y0.calls.zst"
    sealed.rename(sealed.with_name("s0.g0.t0.y0.calls.earlier-1.zst"))
    again = CallsFile(run, "s0.g0.t0.y0")
    again.seal([again.call(prompt=[4])])
    one = ("--tokens", "--group", "g1", "--trial", "t1", "--step", "0")
    assert whether_trained(export(run, *one)[1]) == [("g1/t1", 0, 0, True, True)]
    code, rows, _ = export(run, *one, "--all-tries")
    assert code == 0 and whether_trained(rows) == [("g1/t1", 0, 1, False, None), ("g1/t1", 0, 0, True, True)]
    assert (rows[0]["tokens"][0], rows[0]["reward"], rows[1]["tokens"][0], rows[1]["reward"]) == (1, None, 4, 0.5)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
@pytest.mark.parametrize("name", ["s2.g0.t0.y0.calls", "s2.g0.t0.y0.calls.zst"])
def test_what_is_no_file_is_said_to_be_none(run: Path, export, make, name) -> None:
    path = run / "capture/step-000002" / name
    path.parent.mkdir()
    make(path)
    code, rows, err = export(run, "--tokens", "--step", "2")
    assert code == 10 and rows == [] and f"{path}: is not a file\n" in err and "is gone" not in err


def test_a_damaged_sealed_file_is_not_one_of_a_killed_engine(run: Path, export) -> None:
    path = run / "capture/step-000000/s0.g0.t0.y0.calls.zst"
    path.write_bytes(path.read_bytes()[:-5])
    code, _, err = export(run, "--tokens", "--step", "0", "--group", "g1")
    assert code == 10 and "compressed block" in err and "not sealed" not in err
    assert "2 trials not sealed: running, or their engine was killed" in export(run, "--tokens")[2]
