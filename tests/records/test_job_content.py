"""What a viewer is shown of a benchmark's trial: from Harbor's job directory, and from nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from console.control.messages import Ask, Content
from console.journal import events as ev
from console.journal.writer import JournalWriter
from console.records.content import TrialContent

STEPS = [
    {"step_id": 1, "source": "user", "message": "Make an archive.", "timestamp": "2026-09-01T10:00:00Z"},
    {
        "step_id": 2, "source": "agent", "message": "I will.", "reasoning_content": "hm",
        "tool_calls": [{"tool_call_id": "a", "function_name": "bash", "arguments": {"cmd": "tar cf a.tar"}}],
        "observation": {"results": [{"source_call_id": "a", "content": "tar: sk-aaaabbbbccccddddeeee \x1b[2J"}]},
        "metrics": {"prompt_tokens": 120, "completion_tokens": 31},
    },
    {"step_id": 3, "source": "agent", "message": [{"type": "text", "text": "Done."}, {"type": "image"}]},
]  # fmt: skip


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job directory with one trial, and the run beside it."""
    trial = tmp_path / "jobs" / "one" / "archive__abcDEFg"
    for name, text in (
        ("trial.log", "began\nended\n"),
        ("result.json", json.dumps({"task_name": "archive", "config": {"api_key": "secret"}})),
        ("verifier/test-stdout.txt", "1 passed\n"),
        ("agent/trajectory.json", json.dumps({"schema_version": "ATIF-v1.6", "steps": STEPS})),
    ):
        path = trial / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    journal(tmp_path / "jobs" / "one.run", trial.parent, str(trial))
    return tmp_path / "jobs"


def journal(run: Path, job: Path, trial_dir: str | None) -> None:
    with JournalWriter(run / "journal", snapshot=lambda: (b"{}", 0)) as writer:
        writer.append(ev.RunStarted(run_id="b", kind="benchmark"))
        writer.append(ev.BenchPlanned(job_dir=str(job), trials=2))
        writer.append(ev.StepStarted(step=0, groups=1, policy_version=0))
        writer.append(ev.GroupStarted(step=0, group=0, task="archive", size=2))
        if trial_dir is not None:
            writer.append(ev.TrialFinished(step=0, group=0, trial=0, outcome="completed", trial_dir=trial_dir))


def ask(run: Path, kind: str, **fields) -> Content:
    return TrialContent(run).answer(
        Ask(id="1", kind=kind, step=0, group=0, **({"trial": 0, "limit": 100} | fields)))  # fmt: skip


def test_files_are_those_of_the_job(job: Path) -> None:
    run = job / "one.run"
    assert ask(run, "verifier").lines == ["== verifier/test-stdout.txt ==", "1 passed"]
    assert ask(run, "log").lines == ["began", "ended"]
    result = "\n".join(ask(run, "result").lines)
    assert '"task_name": "archive"' in result and "secret" not in result and ask(run, "result").over


def test_the_transcript_is_the_agents_trajectory(job: Path) -> None:
    content = ask(job / "one.run", "transcript")
    assert [turn.role for turn in content.turns] == ["user", "assistant", "tool", "assistant"]
    user, first, tool, last = content.turns
    assert user.text == "Make an archive." and user.ts == 1788256800.0
    assert first.text == '[thought]\nhm\nI will.\n[bash] {"cmd": "tar cf a.tar"}'
    assert (first.prompt_tokens, first.sampled_tokens, first.call, last.call) == (120, 31, 0, 1)
    assert "sk-aaaa" not in tool.text and tool.text.startswith("tar: ") and last.text == "Done.\n[image]"
    assert content.over and content.calls == 2 and not content.note


def test_a_long_transcript_comes_in_pieces(job: Path) -> None:
    path = job / "one" / "archive__abcDEFg" / "agent" / "trajectory.json"
    path.write_text(json.dumps({"steps": [{"source": "agent", "message": f"turn {n}"} for n in range(70)]}))
    seen, cursor = [], 0
    while True:
        content = ask(job / "one.run", "transcript", cursor=cursor, limit=30)
        seen += [turn.text for turn in content.turns]
        cursor = content.cursor
        if not content.more:
            break
        assert not content.over
    assert seen == [f"turn {n}" for n in range(70)] and content.over
    assert ask(job / "one.run", "transcript", cursor=-1, limit=40).turns[0].text == "turn 60"


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (None, "the agent wrote no trajectory"),
        ("{", "the agent's trajectory is not JSON"),
        ("[" * 100_000, "the agent's trajectory is not JSON"),
        ("[]", "the agent's trajectory has no steps"),
        ('{"steps": {}}', "the agent's trajectory has no steps"),
        ('{"steps": [1, null, {"source": 3, "tool_calls": 4, "metrics": [], "observation": "x"}]}', ""),
        ('{"steps": [{"source": "agent", "metrics": {"prompt_tokens": "many"}, "observation": {"results": [1]}}]}', ""),
    ],
)
def test_what_is_no_trajectory_is_said(job: Path, text: str | None, note: str) -> None:
    path = job / "one" / "archive__abcDEFg" / "agent" / "trajectory.json"
    path.unlink() if text is None else path.write_text(text)
    content = ask(job / "one.run", "transcript")
    assert content.note.startswith(note) and bool(content.note) is bool(note)


def test_tokens_are_not_captured_and_a_trial_under_way_says_when(job: Path) -> None:
    assert ask(job / "one.run", "tokens").note == "the tokens of a benchmark are not captured"
    for kind in ("log", "transcript", "verifier", "result"):
        content = ask(job / "one.run", kind, trial=1)
        assert content.note == "where Harbor keeps it is told when the trial ends" and not content.over


def test_a_job_and_its_run_may_be_moved_together(job: Path, tmp_path: Path) -> None:
    moved = job.rename(tmp_path / "elsewhere")
    assert ask(moved / "one.run", "log").lines == ["began", "ended"]


def test_what_harbor_deleted_is_gone(job: Path) -> None:
    (job / "one" / "archive__abcDEFg").rename(job / "one" / "another")
    assert "is gone" in ask(job / "one.run", "log").note


def test_a_trial_of_another_directory_is_not_shown_as_this_jobs(job: Path) -> None:
    journal(job / "two.run", job / "one", "/elsewhere/job/archive__abcDEFg")
    content = ask(job / "two.run", "log")
    assert not content.lines and "/elsewhere/job/archive__abcDEFg" in content.note


@pytest.mark.parametrize("name", ["..", "../..", "", "."])
def test_nothing_outside_the_job_is_read(job: Path, name: str) -> None:
    (job / "trial.log").write_text("not for you\n")
    (job / "one" / "trial.log").write_text("not for you\n")
    run = job / "two.run"
    journal(run, job / "one", f"{job}/one/{name}")
    content = ask(run, "log")
    assert not content.lines and content.note


def test_no_link_is_followed(job: Path) -> None:
    secret = job / "secret"
    secret.write_text("not for you\n")
    log = job / "one" / "archive__abcDEFg" / "trial.log"
    log.unlink()
    log.symlink_to(secret)
    link = job / "one" / "linked__abcDEFg"
    link.symlink_to(job / "one" / "archive__abcDEFg")
    assert not ask(job / "one.run", "log").lines
    journal(job / "two.run", job / "one", str(link))
    assert not ask(job / "two.run", "verifier").lines
