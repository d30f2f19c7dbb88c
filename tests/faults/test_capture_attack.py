"""One trial attacks the capture gateway while others work: nothing outside of it changes."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import hostile_client
import httpx
import msgspec
import psutil
import pytest
from call_stage import policy_renderer
from qwen_tokenizer import qwen_tokenizer
from scripted_sampler import Reply, ScriptedSampler

from console.capture import ids
from console.capture.captured import CapturedTrial
from console.capture.journal import CallJournal
from console.capture.server import Capture
from console.capture.settings import CallSettings
from console.records.capture_format import Sealed
from console.records.captured_calls import CapturedTrialFile, find_trial_file
from console.records.token_check import check_tokens
from console.training.trajectories import trajectory

KEYS = ["s0.g0.t0.y0", "s0.g0.t1.y0", "s0.g1.t0.y0"]
ATTACKER, ENDED = "s0.g0.t2.y0", "s0.g0.t3.y0"
TURNS = 40
GROWTH_BYTES = 150 << 20
TOOL = {"type": "function", "function": {"name": "bash", "parameters": {
    "type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}}  # fmt: skip


class Sibling:
    """A trial that works: its conversation goes on until it has had `turns` turns.

    Attributes:
        texts: what it was answered.
    """

    def __init__(self, key: str, route: Any) -> None:
        self.key, self.route, self.texts = key, route, list[str]()

    async def work(self, client: httpx.AsyncClient, turns: int) -> None:
        chance = random.Random(self.key)
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": f"You are {self.key}."}, {"role": "user", "content": "Count the files."}
        ]  # fmt: skip
        for _ in range(turns):
            answer = await client.post(
                self.route.url + "/v1/chat/completions", headers={"Authorization": f"Bearer {self.route.api_key}"},
                json={"model": "policy", "messages": messages, "tools": [TOOL], "temperature": 0.7},
            )  # fmt: skip
            assert answer.status_code == 200, answer.text
            message = answer.json()["choices"][0]["message"]
            self.texts.append(message["content"])
            [call] = message["tool_calls"]
            shown = "".join(chance.choice("abc \n<|im_end|>") for _ in range(chance.randrange(400)))
            messages += [message, {"role": "tool", "tool_call_id": call["id"], "content": shown}]


def sampler_of(key: str) -> ScriptedSampler:
    """What the policy says to a sibling."""
    chance = random.Random(key)
    replies = [
        Reply(
            f"Thought {number}.\n</think>\n\nStep {number} of {key}.\n\n<tool_call>\n<function=bash>\n"
            f"<parameter=command>\nls {'x' * chance.randrange(200)}\n</parameter>\n</function>\n</tool_call>",
            delay=0.05,
        )
        for number in range(TURNS)
    ]
    return ScriptedSampler(qwen_tokenizer(), replies)


class Day:
    """Three trials at work on one gateway, with an attacker or without.

    Attributes:
        captured, files: of the trials by key; tokens: of everybody; turns_meanwhile: what each sibling had when the
            attack was over; told: what the attacker was answered; growth: of this process's memory, in bytes.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.captured: dict[str, CapturedTrial] = {}
        self.files: dict[str, CapturedTrialFile] = {}
        self.tokens: list[str] = []
        self.told: dict[str, Any] = {}
        self.turns_meanwhile: list[int] = []
        self.growth = 0

    async def spend(self, *, attacked: bool) -> Day:
        self.capture = Capture(
            renderer=policy_renderer(), journal=CallJournal(self.directory / "capture"),
            settings=CallSettings(max_tokens=512, window=65_536),
        )  # fmt: skip
        await self.capture.start()
        siblings = [Sibling(key, await self._open(key, sampler_of(key))) for key in KEYS]
        async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
            working = [asyncio.ensure_future(sibling.work(client, TURNS)) for sibling in siblings]
            if attacked:
                await self._attack(siblings, working)
            await asyncio.gather(*working)
        for sibling in siblings:
            self.captured[sibling.key] = await sibling.route.seal()
        await self.capture.close()
        for key in self.captured:
            path = find_trial_file(self.directory, key)
            assert path is not None
            self.files[key] = CapturedTrialFile(path)
            assert self.files[key].refresh() and self.files[key].sealed is not None
        return self

    async def _open(self, key: str, sampler: ScriptedSampler) -> Any:
        route = await self.capture.open_route(key, sampler, lambda report: None, policy_version=3)
        route.start()
        self.tokens.append(route.api_key)
        return route

    async def _attack(self, siblings: list[Sibling], working: list[asyncio.Future[None]]) -> None:
        otherwise = Reply("Hm.\n</think>\n\nYes.", delay=0.05)
        ended = await self._open(ENDED, ScriptedSampler(qwen_tokenizer()))
        self.captured[ENDED] = await ended.seal()
        while not all(sibling.texts for sibling in siblings):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        nodes = [node.name for entry in self.capture._routes.entries() for node in entry.calls._graph.nodes][:3]
        words = [word for n in nodes for word in (ids.tool_call_id(n, 0), ids.signature(n), f"msg_{n}", f"rs_{n}")]
        attacker = await self._open(ATTACKER, ScriptedSampler(qwen_tokenizer(), otherwise=otherwise))
        plan = {
            "url": attacker.url, "token": attacker.api_key, "sealed": ended.api_key, "ids": words,
            "guesses": 200, "flood": 3000, "connections": 400, "megabytes": 100, "levels": 100_000,
        }  # fmt: skip
        memory, before = psutil.Process(), psutil.Process().memory_info().rss
        program = await asyncio.create_subprocess_exec(
            sys.executable, hostile_client.__file__, json.dumps(plan), stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert program.stdin is not None and program.stdout is not None
        reading = asyncio.ensure_future(program.stdout.read())
        try:
            while not reading.done():
                self.growth = max(self.growth, memory.memory_info().rss - before)
                await asyncio.wait([reading], timeout=0.05)
                if all(work.done() for work in working):
                    program.stdin.close()
        finally:
            if program.returncode is None:
                program.kill()
        self.told = json.loads(reading.result())
        self.turns_meanwhile = [len(sibling.texts) for sibling in siblings]
        self.captured[ATTACKER] = await attacker.seal()


@pytest.fixture(scope="module")
def log_lines() -> list[str]:
    return []


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory, log_lines: list[str]) -> tuple[Day, Day]:
    """One with an attack, then the same without."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            log_lines.append(self.format(record))

    lines = Lines(level=logging.INFO)
    logging.getLogger().addHandler(lines)
    try:
        attacked = asyncio.run(Day(tmp_path_factory.mktemp("attacked")).spend(attacked=True))
        quiet = asyncio.run(Day(tmp_path_factory.mktemp("quiet")).spend(attacked=False))
    finally:
        logging.getLogger().removeHandler(lines)
    return attacked, quiet


def plain(file: CapturedTrialFile) -> list[Any]:
    """All that a file holds but for what differs from one time to the next: clocks, and random names."""
    names = {call.intent.node: f"node {call.intent.call}" for call in file}
    found: list[Any] = [msgspec.structs.replace(file.opened, ts=0.0)]
    for call in file:
        intent, outcome = call.intent, call.outcome
        assert outcome is not None
        found.append(msgspec.structs.replace(intent, node="", parent=names.get(intent.parent, intent.parent), ts=0.0))
        found.append(msgspec.structs.replace(outcome, ts=0.0, seconds=0.0))
        found.append((call.delivered, file.prompt(intent.node)))
    sealed: Sealed | None = file.sealed
    assert sealed is not None
    text = msgspec.json.encode(msgspec.structs.replace(sealed, ts=0.0)).decode()
    found += [re.sub(r"n\d+x[0-9a-f]{8}", lambda match: names[match[0]], text), file.refused]
    return found


def trained(captured: CapturedTrial) -> list[Any]:
    from tinker_cookbook.rl.data_processing import trajectory_to_data

    data = trajectory_to_data(trajectory(captured), 1.0)
    return [(d.model_input.to_ints(), {k: v.data for k, v in d.loss_fn_inputs.items()}) for d in data]


def test_what_others_captured_and_train_is_what_it_is_without(days):
    attacked, quiet = days
    for key in KEYS:
        assert check_tokens(attacked.files[key]) == []
        assert plain(attacked.files[key]) == plain(quiet.files[key])
        assert trained(attacked.captured[key]) == trained(quiet.captured[key])
        a, b = attacked.captured[key], quiet.captured[key]
        assert (a.evidence, a.bridged, a.unbridged, a.excluded) == (b.evidence, b.bridged, b.unbridged, b.excluded)
        assert (a.evidence.calls, a.evidence.failed) == (TURNS, 0)


def test_others_get_on_with_their_work_meanwhile(days):
    assert days[0].turns_meanwhile == [TURNS] * len(KEYS)


def test_each_attack_is_answered_and_none_with_a_fault_of_ours(days):
    told = days[0].told
    assert told["oddities"] == []
    attacks = {name: Counter(statuses) for name, statuses in told["attacks"].items()}
    everything = sum(attacks.values(), Counter())
    assert not [status for status in everything if status.startswith("5") or status == "silent"], attacks
    assert set(attacks["guesses"]) == {"401"}
    assert set(attacks["ended"]) == {"410"} and set(attacks["both"]) == {"401"}
    assert set(attacks["values"]) == set(attacks["depth"]) == {"400"} and attacks["sizes"] == {"413": 3, "401": 1}
    assert set(attacks["crowd"]) == {"429"} and attacks["let go"]["200"] > 0


def test_it_costs_little_memory(days):
    assert days[0].growth < GROWTH_BYTES


def test_the_attacker_hurt_only_its_own_trial_and_it_is_whole(days):
    day = days[0]
    assert check_tokens(day.files[ATTACKER]) == []
    assert day.captured[ENDED].evidence.calls == 0
    assert day.captured[ATTACKER].evidence.lost == 0


def test_no_token_is_in_the_log_or_in_a_file(days, log_lines):
    import zstandard

    day = days[0]
    files = [path for path in day.directory.rglob("*") if path.is_file()]
    held = {path: path.read_bytes() for path in files}
    for path in files:
        if path.suffix == ".zst":
            held[path] += zstandard.ZstdDecompressor().stream_reader(held[path], read_across_frames=True).read()
    assert len(held) == len(day.captured)
    for token in day.tokens:
        assert not [path for path, data in held.items() if token.encode() in data]
        assert not [line for line in log_lines if token in line]
    assert not [line for line in log_lines if "Traceback" in line]
