"""Conformance over HTTP: every request of the dialects' tables as a real POST, and every error that a client can get.

What a row comes to when it is parsed is tested beside the dialects; here it is what a client sees.
"""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import AsyncIterator, Callable
from itertools import batched
from pathlib import Path
from typing import Any

import capture_bench
import conformance_chat
import conformance_messages
import conformance_responses
import httpx
import pytest
from capture_bench import CHAT, COUNT, MESSAGES, MODEL, RESPONSES, Bench, said, text_of
from conformance_replies import SCRIPT, prompt_and_sampled, read_reply, read_stream
from conformance_wire import (
    CALLS,
    CANARY,
    NOT_JSON,
    POSTS,
    RANGES,
    TOLD,
    before_parsing,
    body_problems,
    checked,
    encoded,
    refusal_problems,
    with_canary,
)
from qwen_tokenizer import qwen_renderer, qwen_tokenizer
from scripted_sampler import Reply, backend_error

from console.capture import bodies, exchange, journal, peers, routes
from console.capture.rendering import PolicyRenderer
from console.capture.settings import Budgets

TABLES = {CHAT: conformance_chat, RESPONSES: conformance_responses, MESSAGES: conformance_messages}
JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """With a policy that thinks, a large window, and no waiting."""
    thinking = PolicyRenderer(qwen_renderer("qwen3_5"), name="qwen3_5")
    monkeypatch.setattr(capture_bench, "policy_renderer", lambda: thinking)
    monkeypatch.setattr(peers, "DELAY_SECONDS", 0.0)
    monkeypatch.setattr(routes, "EARLY_SECONDS", 0.02)
    async with Bench(tmp_path, settings={"max_tokens": 256, "window": 32768}) as made:
        yield made


def good_rows(path: str) -> list[tuple[Any, str, Any]]:
    """Those that are taken: values out of range get through parsing only."""
    out_of_range = [added for added, *_ in RANGES]
    return [row for row in TABLES[path].GOOD if row[0] not in out_of_range]


# --- good ones ------------------------------------------------------------------------------------------------------


def whole(body: dict[str, Any], path: str) -> bool:
    """Whether the agent named no strings at which a reply is cut."""
    return not body.get("stop_sequences" if path == MESSAGES else "stop")


def exact(body: dict[str, Any], path: str) -> bool:
    """Whether a reply is the script's, not cut by what the agent asked for, and of the usual form."""
    limits = [body.get(key) for key in ("max_tokens", "max_completion_tokens", "max_output_tokens")]
    compaction = any(
        isinstance(item, dict) and item.get("type") == "compaction_trigger" for item in body.get("input", ())
    )
    return whole(body, path) and all(limit is None or limit >= 64 for limit in limits) and not compaction


def sampling_problems(asked: Any, path: str, expected: Any) -> list[str]:
    """Whether what the agent asked for is what the policy's gateway was asked for."""
    name = path.removeprefix("sampling.")
    if name not in ("max_tokens", "temperature", "top_p", "top_k") or expected is None:
        return []
    got, limit = getattr(asked.params, name), 32768 - len(asked.prompt)
    return [] if got == (min(expected, limit) if name == "max_tokens" else expected) else [f"{name} was {got}"]


def prompt_problems(asked: Any, path: str, expected: Any) -> list[str]:
    """Whether the policy saw a message's text."""
    if re.fullmatch(r"messages\.\d+\.text", path) is None or expected.strip() in qwen_tokenizer().decode(asked.prompt):
        return []
    return [f"the prompt lacks {expected!r}"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("path", CALLS)
async def test_good_requests_get_a_reply_of_their_dialects_form(bench: Bench, path: str, stream: bool) -> None:
    agent, problems = await bench.open(), []
    rows = good_rows(path)
    for number, (added, where, expected) in enumerate(rows):
        body = TABLES[path].body_of(added)
        if stream:
            body["stream"] = True
            if path == CHAT and number % 2:
                body.setdefault("stream_options", {"include_usage": True})
        streamed = bool(body.get("stream"))
        scripted, script_says = SCRIPT[number % len(SCRIPT)]
        bench.sampler.script(scripted)
        reply = await agent.post(path, content=encoded(body), headers=JSON)
        found: list[str] = []
        if reply.status_code != 200:
            problems.append(f"{number} {added}: {reply.status_code} {reply.text}")
            bench.sampler._replies.clear()
            continue
        asked = bench.sampler.asked[-1]
        try:
            says, usage = (read_stream if streamed else read_reply)(path, reply)
            counts = len(asked.prompt), len(asked.tokens)
            if usage is not None and prompt_and_sampled(path, usage) != counts and whole(body, path):
                found.append(f"usage {usage} of {counts} tokens")
        except Exception as error:
            problems.append(f"{number} {added}: {type(error).__name__} {error}: {reply.text[-1000:]}")
            continue
        if (
            path == CHAT
            and streamed
            and (usage is not None) is not bool((body.get("stream_options") or {}).get("include_usage"))
        ):
            found.append("usage is there or not")
        if (body.get("thinking") or {}).get("type") == "disabled" and path == MESSAGES:
            script_says = script_says._replace(thoughts="")
        if exact(body, path) and says != script_says:
            found.append(f"it says {says} and not {script_says}")
        found += sampling_problems(asked, where, expected) + prompt_problems(asked, where, expected)
        problems += [f"{number} {added}: {problem}" for problem in found]
    assert not problems, "\n".join(problems)
    evidence = (await agent.seal()).evidence
    assert (evidence.calls, evidence.failed, evidence.lost) == (len(rows), 0, 0)


async def test_prompts_of_good_requests_are_counted_as_they_are_sampled_from(bench: Bench) -> None:
    agent, problems = await bench.open(), []
    rows = good_rows(MESSAGES)
    for number, (added, *_) in enumerate(rows):
        body = conformance_messages.body_of(added)
        counted = await agent.post(COUNT, content=encoded(body), headers=JSON)
        sampled = await agent.post(MESSAGES, content=encoded(body), headers=JSON)
        wanted = {"input_tokens": len(bench.sampler.asked[-1].prompt)}
        if (counted.status_code, counted.json(), sampled.status_code) != (200, wanted, 200):
            problems.append(f"{number} {added}: {counted.status_code} {counted.text} {sampled.status_code} {wanted}")
    assert not problems, "\n".join(problems)
    assert (await agent.seal()).evidence.calls == len(rows)


@pytest.mark.parametrize("path", CALLS)
async def test_the_policy_has_any_name_that_an_agent_gives_it(bench: Bench, path: str) -> None:
    agent = await bench.open()
    for model in ("gpt-5", "claude-sonnet-4-5", "openai/Qwen/Qwen3:free@x", "", "../..", "é\n\x00", None):
        reply = await agent.ask(path, model=model)
        assert reply.status_code == 200
        assert reply.json()["model"] == (model or MODEL if path == MESSAGES else MODEL)


# --- bad ones -------------------------------------------------------------------------------------------------------


def bad_rows(path: str) -> list[tuple[bytes, Any, str | None, str]]:
    """Body as it is sent and as it was made, the field at fault, words of the error."""
    table = TABLES[MESSAGES if path == COUNT else path]
    rows = []
    for added, param, words in (*table.BAD, *(() if path == COUNT else RANGES)):
        body = with_canary(table.body_of(added))
        early = before_parsing(body)
        rows.append((encoded(body), body, None if early else param, early or words))
    return rows + [(data, None, None, words) for data, words in NOT_JSON]


SAMPLED_ONLY = {
    "max_tokens: Field required", "forced", "'auto' or 'none'", "prefill is not supported", "prefill",
    "must end with a user's",
}  # fmt: skip
"""Words of the errors of what has no meaning where tokens are only counted."""


@pytest.mark.parametrize("path", POSTS)
async def test_bad_requests_are_told_what_is_wrong_with_them(bench: Bench, path: str) -> None:
    agent, problems = await bench.open(), []
    rows = bad_rows(path)

    async def send(data: bytes, body: Any, param: str | None, words: str) -> None:
        reply = await agent.post(path, content=data, headers=JSON | {"x-canary": CANARY})
        if path == COUNT and words in SAMPLED_ONLY and reply.status_code == 200:
            return
        found = refusal_problems(path, reply, told=TOLD["request"], param=param, words=words, sent=body)
        problems.extend(f"{data[:200]!r}: {problem}" for problem in found)

    served = 0
    for few in batched(rows, 8):
        await asyncio.gather(*(send(*row) for row in few))
        # and each connection serves what comes next
        again = await asyncio.gather(*(agent.ask(path, f"{served + number}") for number in range(2)))
        problems.extend(f"after it: {reply.status_code}" for reply in again if reply.status_code != 200)
        served += len(again)
    assert not problems, "\n".join(problems)
    assert len(bench.sampler.asked) == (0 if path == COUNT else served), "nothing bad is sampled"
    evidence = (await agent.seal()).evidence
    assert evidence.lost == 0 and (path == COUNT or evidence.failed == len(rows))


@pytest.mark.parametrize("path", CALLS)
async def test_good_and_bad_ones_take_turns_on_one_connection(bench: Bench, path: str) -> None:
    agent = await bench.open()
    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=1), trust_env=False, timeout=30) as client:
        bench.client, aside = client, bench.client
        opened = len(bench.capture._listener._server.connections)
        for number, (data, *_) in enumerate(bad_rows(path)[::4]):
            assert (await agent.post(path, content=data, headers=JSON)).status_code == 400
            reply = await agent.ask(path, f"{number}", stream=bool(number % 2))
            assert reply.status_code == 200 and "Done." in reply.text
        assert len(bench.capture._listener._server.connections) == opened + 1
        bench.client = aside


def test_there_are_as_many_requests_as_there_should_be() -> None:
    for path in CALLS:
        assert len(good_rows(path)) >= 100 and len(bad_rows(path)) >= 150, path


# --- every error, in every dialect ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", POSTS)
async def test_whose_request_it_is(bench: Bench, path: str) -> None:
    early, agent = await bench.open(start=False), await bench.open()
    checked(path, await early.post(path, said(path)), "early", "not started")
    for headers in ({}, {"x-api-key": "sk-" + CANARY}, {"Authorization": f"Bearer {CANARY}"}):
        reply = await bench.client.post(bench.capture.url + path, json=said(path), headers=headers)
        checked(path, reply, "auth", "unknown or missing API key")
    both = agent.key | {"x-api-key": early.route.api_key}
    reply = await bench.client.post(bench.capture.url + path, json=said(path), headers=both)
    checked(path, reply, "auth", "API keys of two trials")
    assert (await agent.post(path, said(path))).status_code == 200
    await agent.seal()
    checked(path, await agent.post(path, said(path)), "sealed", "the trial has ended")


@pytest.mark.parametrize("path", POSTS)
async def test_what_the_headers_say(bench: Bench, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.capture._exchange, "_body_limit", 10_000)
    monkeypatch.setattr(bodies, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(exchange, "DRAINED_SECONDS", 0.05)
    agent = await bench.open()
    reply = await agent.post(path, content=b" " * 10_001, headers=JSON)
    checked(path, reply, "too_large", "the body is larger than 10000 bytes")
    for name, value, words in (
        ("Content-Encoding", "br", "only gzip, x-gzip, deflate, zstd are read"),
        ("Content-Encoding", CANARY, "only gzip"),
        ("Content-Type", "application/json; charset=utf-16", "the charset must be utf-8"),
        ("Content-Type", f"multipart/form-data; boundary={CANARY}", "a JSON body is wanted"),
    ):
        reply = await agent.post(path, content=b"{}", headers={name: value})
        checked(path, reply, "media", words, name)
    reply = await agent.post(path, content=b"\x1f\x8b" + b"x" * 50, headers={"Content-Encoding": "gzip"})
    checked(path, reply, "request", "the body is not what it says", "Content-Encoding")

    async def stuck() -> AsyncIterator[bytes]:
        yield b'{"model'
        await asyncio.sleep(0.5)

    checked(path, await agent.post(path, content=stuck()), "slow", "did not come in time")
    assert (await agent.post(path, said(path))).status_code == 200


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("path", CALLS)
async def test_what_the_window_and_the_budget_allow(
    tmp_path: Path, path: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"window": 64, "budgets": Budgets(calls=1), "terminal_replies": 1}
    async with Bench(tmp_path, settings=settings) as bench:
        agent = await bench.open()
        for words in ("far " * 100, "9" * 2000):
            reply = await agent.ask(path, words, stream=stream)
            # litellm and OpenAI's agents look for the first line, Harbor and Anthropic's for the second
            message = reply.json()["error"]["message"]
            own = r"prompt is too long: \d+ tokens > 64 maximum"
            both = r"This model's maximum context length is 64 tokens\.\n" + own
            assert re.fullmatch(own if path == MESSAGES else both, message)
            checked(path, reply, "overflow", "prompt is too long: ", "input" if path == RESPONSES else "messages")
        assert (await agent.ask(path, stream=stream)).status_code == 200
        last = await agent.ask(path, "More.")
        assert text_of(path, last.json()) == "The budget of this trial is used up."
        checked(path, await agent.ask(path, "And more.", stream=stream), "budget", "budget of this trial is used up")
        assert len(bench.sampler.asked) == 1


@pytest.mark.parametrize("path", CALLS)
async def test_too_much_at_once(tmp_path: Path, path: str) -> None:
    async with Bench(tmp_path, settings={"inflight": 1, "waiting": 0}) as bench:
        agent, gate = await bench.open(), asyncio.Event()
        bench.sampler.script(Reply("Late.", gate=gate))
        first = asyncio.ensure_future(agent.ask(path))
        await bench.sampler.until_running(1)
        checked(path, await agent.ask(path, "Another."), "busy", "too many model calls of this trial at once")
        gate.set()
        assert (await first).status_code == 200
        bench.capture._routes.entries()[0].held.limit = 100
        checked(path, await agent.ask(path, "x" * 200), "busy", "too many bytes are under way")
        bench.capture._routes.entries()[0].held.limit = 10_000
        assert (await agent.ask(path, "Another.")).status_code == 200


class FullDisk:
    """Takes the place of a trial's file."""

    def __call__(self, *_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", f"/{CANARY}")


OURS: dict[str, tuple[Callable[[], Any], str]] = {
    "backend": (lambda: backend_error(f"engine died {CANARY}"), "the policy's gateway failed"),
    "no_logprobs": (lambda: Reply("x", logprobs="nan"), "log-probs"),
    "capture": (lambda: "never", "could not be written down: No space left on device"),
}


@pytest.mark.parametrize("kind", OURS)
@pytest.mark.parametrize("path", CALLS)
async def test_trouble_of_ours(bench: Bench, path: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = await bench.open()
    make, words = OURS[kind]
    with monkeypatch.context() as broken:
        if kind == "capture":
            broken.setattr(journal.TrialJournal, "write", FullDisk())
        bench.sampler.script(make(), make())
        checked(path, await agent.ask(path), kind, words)
        streamed = await agent.ask(path, "Once more.", stream=True)
    bench.sampler._replies.clear()
    if kind == "capture":  # it fails before anything is sent
        checked(path, streamed, kind, words)
    else:
        stream_failure(path, streamed, kind, words)
    assert (await agent.ask(path, "And now?")).status_code == 200


def stream_failure(path: str, reply: httpx.Response, kind: str, words: str) -> None:
    """An error after a stream began is its last event, in the form that the dialect has for it."""
    assert reply.status_code == 200 and CANARY not in reply.text
    if path == CHAT:
        *_, last, done = reply.text.removesuffix("\n\n").split("\n\n")
        assert done == "data: [DONE]"
    else:
        *_, last = reply.text.removesuffix("\n\n").split("\n\n")
        assert last.startswith("event: error\n")
    body = httpx.Response(200, content=last.partition("data: ")[2]).json()
    if path == RESPONSES:
        assert body["type"] == "error" and "event: response.failed\n" in reply.text
        body = {"error": body["error"]}
    assert not list(body_problems(path, body, TOLD[kind], None, words))
