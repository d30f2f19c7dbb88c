"""Files that nobody should open, or only the end of: every command answers, within memory, and nothing waits."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
from pathlib import Path

import pytest
from harbor_jobs import HarborJob, put, tree_hash

GIGABYTE = 1 << 30
PASSED = {"verifier/test-stdout.txt": "== 3 passed in 0.1s ==\n"}
EXITED = ("NonZeroAgentExitCodeError", "Command failed (exit 1)\nstdout: \nstderr: ")
UNREADABLE = ("unreadable", "permission", "result.json")


def sparse(path: Path, size: int, end: str, begin: bytes = b"") -> None:
    """A file of `begin`, zeros and, after `size` bytes, `end`."""
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.write(begin)
        file.truncate(size)
        file.seek(0, os.SEEK_END)
        file.write(end.encode())


@pytest.fixture(scope="module")
def jobs(open_dir: Path) -> Path:
    job = HarborJob(open_dir / "job")
    trial = job.trial("org/log", error=EXITED)
    sparse(trial / "agent" / "agent.txt", 2 * GIGABYTE, "\nopenai.AuthenticationError: Error code: 401\n")
    trial = job.trial("org/line", error=EXITED)  # its first gigabyte is one line
    sparse(trial / "agent" / "agent.txt", GIGABYTE, "\n" + "word\n" * 1000, begin=b"x" * 1000)
    with (trial / "agent" / "agent.txt").open("r+b") as file:
        file.truncate(2 * GIGABYTE)
        file.seek(0, os.SEEK_END)
        file.write(b"\nlitellm.ContextWindowExceededError: too long\n")
    sparse(job.trial("org/no-line", error=EXITED) / "agent" / "agent.txt", 2 * GIGABYTE, "401 Unauthorized")
    trial = job.trial("org/verifier", 0.0)
    sparse(trial / "verifier" / "test-stdout.txt", 2 * GIGABYTE, "\n/tests/test.sh: line 5: uvx: command not found\n")
    for name in ("trial.log", "exception.txt", "agent/trajectory.json"):
        sparse(trial / name, 2 * GIGABYTE, "\nValueError: x\n")
    trial = job.trial("org/cut", error="SandboxError", result=False)
    said = b"Traceback (most recent call last):\n  File x\nSandboxError: it was not found\n"
    sparse(trial / "exception.txt", 2 * GIGABYTE, "the end\n", begin=said)
    sparse(trial / "config.json", 2 * GIGABYTE, "}")
    sparse(job.trial("org/result", 1.0) / "result.json", 2 * GIGABYTE, "}")

    secret = put(open_dir / "secret" / "result.json", '{"task_name": "secret", "trial_name": "secret"}')
    trial = job.trial("org/links", 1.0, files=PASSED)
    (trial / "agent").mkdir()
    (trial / "agent" / "loop").symlink_to("loop")
    (trial / "agent" / "up").symlink_to("../..")
    (trial / "agent" / "out.txt").symlink_to("/etc/passwd")
    trial = job.trial("org/result-link", 1.0)
    (trial / "result.json").unlink()
    (trial / "result.json").symlink_to(secret)
    (job.path / "out__abcdefg").symlink_to(secret.parent)
    (job.path / "loop").symlink_to("loop")
    (job.path / "self").symlink_to(".")

    trial = job.trial("org/fifo", error=EXITED)
    (trial / "agent").mkdir()
    for name in ("agent/agent.txt", "verifier", "agent/trajectory.json", "steps"):
        os.mkfifo(trial / name)
    (trial / "trial.log").unlink()
    os.mkfifo(trial / "trial.log")
    trial = job.trial("org/result-fifo", 1.0)
    (trial / "result.json").unlink()
    os.mkfifo(trial / "result.json")
    os.mkfifo(job.path / "pipe__abcdefg")
    trial = job.trial("org/socket", error=EXITED)
    with socket.socket(socket.AF_UNIX) as listening, tempfile.TemporaryDirectory() as short:
        listening.bind(f"{short}/s")
        (trial / "agent").mkdir()
        os.link(f"{short}/s", trial / "agent" / "agent.log")
    if not os.getuid():
        os.mknod(trial / "agent" / "zero.txt", 0o020666, os.makedev(1, 5))
        trial = job.trial("org/device", 1.0)
        (trial / "result.json").unlink()
        os.mknod(trial / "result.json", 0o020666, os.makedev(1, 5))
    trial = job.trial("org/directory", 1.0)
    (trial / "result.json").unlink()
    (trial / "result.json").mkdir()

    job.trial("org/shut", 1.0).chmod(0o700 if not os.getuid() else 0)
    (job.trial("org/shut-result", 1.0) / "result.json").chmod(0o600 if not os.getuid() else 0)
    shut = job.trial("org/shut-log", error=EXITED, files={"agent/agent.txt": "401 Unauthorized\n"})
    (shut / "agent").chmod(0o700 if not os.getuid() else 0)
    put(job.path / "mine" / "notes.txt", "").parent.chmod(0o700 if not os.getuid() else 0)

    job.trial(
        "org/names", 1.0, name="n\x1b[2J\n\u202e\u2066x__abcdefg", files={**PASSED, "agent/a\x1b[31m\n\u202e.txt": "x"}
    )
    bytes_ = os.fsencode(job.path) + b"/\xff\xfe\xe2\x80__abcdefg"
    shutil.copytree(os.fsencode(job.trials[-1]), bytes_)
    put(
        Path(os.fsdecode(bytes_)) / "result.json",
        (job.trials[-1] / "result.json").read_text().replace("org/names", "org/bytes"),
    )
    job.write()
    (job.path / "lock.json").chmod(0o600 if not os.getuid() else 0)
    (open_dir / "empty").mkdir()
    good = HarborJob(open_dir / "good")
    for name in ("log", "links", "names", "bytes", "fifo", "verifier"):
        good.trial(f"org/{name}", 0.0, files=PASSED)
    good.write()
    return open_dir


def test_what_cannot_be_read_is_told_and_the_rest_is_judged(jobs, bounded):
    job, good = jobs / "job", jobs / "good"
    before = tree_hash(job)
    lines, text, again, tally, shown, compared, as_json = answers = bounded(
        ["triage", job, "--json"],
        ["triage", job, "--trials"],
        ["triage", job, "--trials"],
        ["tally", job, "--json", "--mode", "clean-only"],
        ["tally", job, "--markdown"],
        ["compare", job, good],
        ["compare", job, good, "--json"],
    )
    for answer in answers:
        answer.check()
    rows = lines.rows()
    found = {
        row["task"] or Path(row["trial_dir"]).name[:-9]: (row["class"], row["cause"], row["evidence"]["file"])
        for row in rows
    }
    expected = {
        "org/log": ("configuration", "key", "agent/agent.txt"),
        "org/line": ("agent_failure", "context_overflow", "agent/agent.txt"),
        "org/no-line": ("agent_failure", "crash", "exception.txt"),
        "org/verifier": ("bad_reward", "verifier_fault", "verifier/test-stdout.txt"),
        "org/cut": ("infrastructure", "sandbox", "exception.txt"),
        "org/result": ("unreadable", "too_large", "result.json"),
        "org/links": ("completed", "", "result.json"),
        "org/result-link": UNREADABLE,
        "org/fifo": ("agent_failure", "crash", "exception.txt"),
        "org/result-fifo": UNREADABLE,
        "org/socket": ("agent_failure", "crash", "exception.txt"),
        "org/directory": UNREADABLE,
        "shut": UNREADABLE,
        "org/shut-result": UNREADABLE,
        "org/shut-log": ("agent_failure", "crash", "exception.txt"),
        "org/names": ("completed", "", "result.json"),
        "org/bytes": ("completed", "", "result.json"),
    } | ({} if os.getuid() else {"org/device": UNREADABLE})
    assert {task: found.get(task) for task in expected} == expected
    assert len(rows) == len(expected) and "secret" not in lines.out + text.out.replace(str(jobs), "")
    told = "".join(text.err.split("quarterdeck: "))
    for name in (
        "loop: a link",
        "self: a link",
        "out__abcdefg: a link",
        "mine: cannot be read",
        "lock.json cannot be read",
    ):
        assert name in told
    assert again == text
    (mode,) = (one for one in json.loads(tally.out)["modes"] if one["agent"] == "terminus-2")
    assert (mode["numerator"], mode["denominator"]) == (3, 3)
    assert "permission" in shown.out
    apart = json.loads(as_json.out)
    assert (apart["only_a"], apart["only_b"]) == (3, 0) and apart["excluded"]["A: configuration/key"] == ["log"]
    assert "A is ahead of B" in compared.out
    assert tree_hash(job) == before


def test_what_cannot_be_entered_is_refused_in_one_line(jobs, bounded):
    shut = next(path for path in (jobs / "job").iterdir() if path.name.startswith("shut__"))
    pipe, loop = jobs / "job" / "pipe__abcdefg", jobs / "job" / "loop"
    for answer, said in zip(
        bounded(["triage", shut], ["tally", pipe], ["compare", loop, jobs / "good"], ["triage", jobs / "empty"]),
        ("permission denied", "is no directory", "cannot be read", "holds no trial"),
    ):
        assert answer.code == 2 and answer.out == "" and said in answer.err and answer.err.count("\n") == 1
