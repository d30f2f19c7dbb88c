"""A capture gateway that is to be killed: `python capture_doomed.py`.

Reads lines from stdin, each a JSON object with `run_dir`, `seed` and `trials`, and forks a process for each, so that
what is slow to import is imported once. It serves that many trials, whose policy answers after a moment of varying
length, until somebody kills it. One JSON line is printed when it listens (`pid`, `url`, `tokens` by key), and one when
it is gone (`gone`: its exit status).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from call_stage import policy_renderer
from qwen_tokenizer import qwen_tokenizer
from scripted_sampler import Reply, ScriptedSampler

from console.capture.journal import CallJournal
from console.capture.server import Capture
from console.capture.settings import CallSettings


def say(**fields: Any) -> None:
    """A line on stdout."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def policy(seed: int, trial: int) -> ScriptedSampler:
    """Answers each call with other words, some of them many."""
    chance = random.Random(f"{seed} {trial}")

    def answer(prompt: list[int]) -> Reply:
        words = " ".join(f"{chance.getrandbits(40):x}" for _ in range(chance.choice((1, 5, 20, 200))))
        return Reply(f"Thought.\n</think>\n\nRound {seed}, trial {trial}: {words}", delay=chance.random() * 0.06)

    return ScriptedSampler(qwen_tokenizer(), by_prompt=answer)


async def serve(run_dir: str, seed: int, trials: int) -> None:
    """The gateway, for ever."""
    capture = Capture(
        renderer=policy_renderer(),
        journal=CallJournal(Path(run_dir) / "capture"),
        settings=CallSettings(max_tokens=4096, window=131_072),
    )
    await capture.start()
    tokens = {}
    for number in range(trials):
        key = f"s0.g{number // 8}.t{number % 8}.y0"
        sampler = policy(seed, number)
        route = await capture.open_route(key, sampler, lambda report: None, policy_version=seed)
        route.start()
        tokens[key] = route.api_key
    say(pid=os.getpid(), url=capture.url, tokens=tokens)
    await asyncio.Event().wait()


def main() -> None:
    policy_renderer()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            asyncio.run(serve(**json.loads(line)))
        say(gone=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    main()
