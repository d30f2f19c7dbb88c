"""Content of one trial for a recorded run: captured calls, Harbor's files. Its numbers are those of the journal."""

from __future__ import annotations

import json
import re
from pathlib import Path

from console.journal import events as ev
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
    (run_dir / "capture").mkdir()
    calls = run_dir / "capture" / f"calls-{step:06d}.jsonl"
    lines = [json.dumps(_call(turn, turns), separators=(",", ":"), ensure_ascii=False) for turn in turns]
    calls.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for end in mine:
        if isinstance(end, ev.TrialFinished):
            _files(run_dir / "trials" / Path(end.trial_dir or "").name, end)


def _call(turn: ev.TrialTurn, turns: list[ev.TrialTurn]) -> dict[str, object]:
    count = sum(one.try_ == turn.try_ for one in turns)
    number = turn.turn - 1
    # The last turn of a whole try says the last words; a try that broke off has no last words.
    said, _ = _TALK[-1 if turn.try_ and turn.turn == count else number % 3]
    before = _TALK[(number - 1) % 3][1]
    messages = [{"role": "system", "text": _ASKS}, {"role": "user", "text": INSTRUCTION}]
    pieces = _pieces(said, turn.sampled_tokens - 1)
    return {
        "trial": f"s{turn.step}.g{turn.group}.t{turn.trial}.y{turn.try_}",
        "call": number,
        "ts": turn.ts,
        "seconds": turn.seconds,
        "stop_reason": "stop",
        "prompt_P": list(range(300, 300 + turn.prompt_tokens)),
        "tokens_T": [*(1000 + 7 * i for i in range(len(pieces))), 2],
        "logprobs_T": [*(_logprob(turn, i) for i in range(len(pieces))), -0.0004],
        "messages": messages if number == 0 else [{"role": "user", "text": before}],
        "reply": said,
        "pieces": [*pieces, "<|end|>"],
    }


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
