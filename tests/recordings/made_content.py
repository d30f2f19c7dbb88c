"""Content of one trial for a recorded run: captured calls, Harbor's files. Its numbers are those of the journal."""

from __future__ import annotations

import json
import re
from pathlib import Path

from console.journal import events as ev
from console.records.capture_format import (
    Delivered,
    Intent,
    KeptMessage,
    Opened,
    Outcome,
    Record,
    ids_bytes,
    logprobs_bytes,
)
from console.records.capture_frames import PLAIN, encode, header_seed, new_header, step_dir
from console.records.run_dir import RunRecord

INSTRUCTION = "Pack all files below /data that are older than 30 days into /backup/old.tar.gz, remove them there."
_ASKS = "Reply with one command in a ```bash block, or with Done."

_TALK = (
    (
        "I look at what is there first.\n```bash\nfind /data -type f -mtime +30 -ls\n```",
        "exit 0\n   1311     12 -rw-r--r--  1 root  root   11873 Jul 30 10:12 /data/logs/app.1.log\n"
        "   1312      4 -rw-r--r--  1 root  root    2048 Aug  2 09:40 /data/logs/app.2.log\n"
        "   1340      8 -rw-r--r--  1 root  root    6144 Aug  9 23:01 /data/run/überblick 2025.csv",
    ),
    (
        "```bash\nmkdir -p /backup && find /data -type f -mtime +30 -print0 | "
        "tar czf /backup/old.tar.gz --null -T -\n```",
        "exit 0\ntar: Removing leading `/' from member names",
    ),
    (
        "The archive must be whole before anything goes.\n```bash\ntar tzf /backup/old.tar.gz && "
        "find /data -type f -mtime +30 -delete\n```",
        "exit 0\ndata/logs/app.1.log\ndata/logs/app.2.log\ndata/run/überblick 2025.csv",
    ),
    ("Nothing older is left below /data, and the archive has the three files. Done.", ""),
)  # fmt: skip
"""What the policy says in each turn, and what comes of it."""


def write_content(run_dir: Path, step: int, group: int, trial: int) -> None:
    """Calls and files of every try of one trial that the journal has."""
    events = [e for e in RunRecord(run_dir).journal.events() if isinstance(e, ev.TrialTurn | ev.TrialFinished)]
    mine = [e for e in events if (e.step, e.group, e.trial) == (step, group, trial)]
    turns = [e for e in mine if isinstance(e, ev.TrialTurn)]
    for try_ in sorted({turn.try_ for turn in turns}):
        _calls(run_dir, [turn for turn in turns if turn.try_ == try_])
    for end in mine:
        if isinstance(end, ev.TrialFinished):
            _files(run_dir / "trials" / Path(end.trial_dir or "").name, end)


def _calls(run_dir: Path, turns: list[ev.TrialTurn]) -> None:
    """The captured calls of one try, whose prompts are as long as the journal has it."""
    first = turns[0]
    key = f"s{first.step}.g{first.group}.t{first.trial}.y{first.try_}"
    path = step_dir(run_dir, first.step) / (key + PLAIN)
    path.parent.mkdir(parents=True, exist_ok=True)
    header = new_header()
    records: list[Record] = [Opened(key=key, step=first.step)]
    for turn in turns:
        records += _call(turn, last=turn.turn == len(turns))
    path.write_bytes(header + b"".join(encode(record, header_seed(header)) for record in records))


def _call(turn: ev.TrialTurn, last: bool) -> list[Record]:
    number = turn.turn - 1
    # The last turn of a whole try says the last words; a try that broke off has no last words.
    said, _ = _TALK[-1 if turn.try_ and last else number % 3]
    before = _TALK[(number - 1) % 3][1]
    messages = [("system", _ASKS), ("user", INSTRUCTION)] if number == 0 else [("user", before)]
    pieces = _pieces(said, turn.sampled_tokens - 1)
    intent = Intent(
        call=number, node=f"n{number}x00000000", reason="first" if number == 0 else "template", dialect="chat",
        prompt_new=ids_bytes(range(300, 300 + turn.prompt_tokens)), prompt_tokens=turn.prompt_tokens,
        messages=[KeptMessage(role=role, text=text) for role, text in messages],
    )  # fmt: skip
    outcome = Outcome(
        call=number, status="stop", stop_reason="stop", ts=turn.ts, seconds=turn.seconds, reply=said, end="<|end|>",
        tokens=ids_bytes([*(1000 + 7 * i for i in range(len(pieces))), 2]),
        logprobs=logprobs_bytes([*(_logprob(turn, i) for i in range(len(pieces))), -0.0004]),
        pieces=bytes([*map(len, pieces), 0]),
    )  # fmt: skip
    return [intent, outcome, Delivered(call=number, ts=turn.ts)]


def _logprob(turn: ev.TrialTurn, at: int) -> float:
    """Mostly sure, now and then not at all."""
    seed = (7 * turn.turn + 11 * at + 5 * turn.try_) % 23
    return -round(0.002 + {3: 1.9, 11: 4.2, 17: 0.8}.get(seed, seed / 200), 4)


def _pieces(text: str, count: int) -> list[str]:
    """The text in exactly `count` pieces: words at first, then the longest of them halved or the shortest joined."""
    found = re.findall(r"\s?[^\s]+|\s", text)
    while len(found) < count:
        at = max(range(len(found)), key=lambda i: len(found[i]))
        word = found[at]
        found[at : at + 1] = [word[: len(word) // 2], word[len(word) // 2 :]]
    while len(found) > count:
        at = min(range(len(found) - 1), key=lambda i: len(found[i]) + len(found[i + 1]))
        found[at : at + 2] = [found[at] + found[at + 1]]
    return found


def _files(directory: Path, end: ev.TrialFinished) -> None:
    (directory / "verifier").mkdir(parents=True)
    failed = end.exception is not None
    log = ["Agent 'terminal' exposes no native web search or fetch tools for Harbor to disable; continuing."]
    if failed:
        log.append("the sandbox does not answer; no artifacts are collected")
        (directory / "exception.txt").write_text(
            'Traceback (most recent call last):\n  File "harbor/trial/trial.py", line 512, in _execute_agent\n'
            f'  File "console/trials/sandbox.py", line 207, in exec\n{end.evidence}\n'
        )
    else:
        log.append("Collecting main service artifacts")
        (directory / "verifier" / "test-stdout.txt").write_text(
            "test_archive.py::test_it_is_there PASSED\ntest_archive.py::test_it_has_the_old_files PASSED\n"
            "test_archive.py::test_the_originals_are_gone PASSED\n\n3 passed in 0.07s\n"
        )
        (directory / "verifier" / "reward.txt").write_text(f"{end.reward:g}\n")
    (directory / "trial.log").write_text("\n".join(log) + "\n")
    result = {
        "schema_version": 1,
        "task_name": "make-archive",
        "trial_name": directory.name,
        "agent_info": {"name": "terminal", "version": "1"},
        "agent_result": {"n_input_tokens": end.prompt_tokens, "n_output_tokens": end.sampled_tokens},
        "verifier_result": None if failed else {"rewards": {"reward": end.reward}},
        "exception_info": {"exception_type": end.exception, "exception_message": end.evidence} if failed else None,
    }
    (directory / "result.json").write_text(json.dumps(result, indent=2))
