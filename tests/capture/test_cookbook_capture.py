"""What is captured of an agent's calls, what is refused, and what a failure leaves in the record."""

from __future__ import annotations

import asyncio
import gc
import json
import re
from dataclasses import replace

import httpx
import numpy as np
import pytest
import tinker
from whole_runs import until

from console.capture import cookbook_proxy
from console.capture.base import CapturedCall
from console.errors import CaptureError, UsageError

HARBOR_OVERFLOW = r"prompt is too long: \d+ tokens > \d+ maximum"


async def test_a_call_is_captured_as_it_was_sampled(make_capture, open_agent, renderer, sampler, tmp_path):
    capture = await make_capture()
    capture.begin_step(3)
    agent = await open_agent(capture)
    reply = (await agent.ask()).json()
    await capture.sync()
    captured = await agent.route.seal()
    (call,) = captured.calls
    assert call.prompt_P == renderer.build_generation_prompt([{"role": "user", "content": "List the files."}]).to_ints()
    message, _ = renderer.parse_response(call.tokens_T)
    assert reply["choices"][0]["message"]["content"] == message["content"]
    assert reply["usage"]["completion_tokens"] == len(call.tokens_T) == len(call.logprobs_T)
    again = await sampler.compute_logprobs(tinker.ModelInput.from_ints(call.prompt_P + call.tokens_T))
    assert again[len(call.prompt_P) :] == pytest.approx(call.logprobs_T, abs=1e-3)
    (line,) = (tmp_path / "capture/calls-000003.jsonl").read_text().splitlines()
    written = json.loads(line)
    assert (written["trial"], written["call"]) == ("s0.g0.t0.y0", 0)
    assert (written["prompt_P"], written["tokens_T"]) == (call.prompt_P, call.tokens_T)
    (report,) = agent.reports
    assert report.ok and (report.prompt_tokens, report.sampled_tokens) == (len(call.prompt_P), len(call.tokens_T))


@pytest.mark.parametrize(("body", "limit"), [({}, 6), ({"max_tokens": 3}, 3), ({"max_completion_tokens": 9}, 9)])
async def test_the_agents_token_limit_is_honoured(make_capture, open_agent, body, limit):
    agent = await open_agent(await make_capture())
    replies = [(await agent.ask(f"Say {i}.", temperature=3.0, **body)).json() for i in range(6)]
    lengths = [len(call.tokens_T) for call in (await agent.route.seal()).calls]
    assert max(lengths) == limit
    cut = [reply["choices"][0]["finish_reason"] == "length" for reply in replies]
    assert any(cut) and all(length == limit for length, was_cut in zip(lengths, cut) if was_cut)


async def test_both_dialects_come_through_one_route(make_capture, open_agent):
    agent = await open_agent(await make_capture())
    body = {"max_tokens": 4, "messages": [{"role": "user", "content": "Hello."}]}
    reply = (await agent.post("/v1/messages", body)).json()
    assert reply["type"] == "message"
    assert (await agent.ask()).status_code == 200
    assert len((await agent.route.seal()).calls) == 2


async def test_a_token_opens_only_its_own_route(make_capture, open_agent):
    capture = await make_capture()
    mine, other = await open_agent(capture), await open_agent(capture, "s0.g0.t1.y0")
    assert mine.route.api_key != other.route.api_key and len(mine.route.api_key) >= 43
    for key in ("x", mine.route.api_key[:-1], mine.route.api_key + "x"):
        assert (await other.ask(key=key)).status_code == 401
    await asyncio.gather(mine.ask("One."), mine.ask("Two."), other.ask("Three."))
    assert [len(r.calls) for r in (await mine.route.seal(), await other.route.seal())] == [2, 1]
    assert (len(mine.reports), len(other.reports)) == (2, 1)


async def test_after_its_end_a_trial_gets_no_more_samples(make_capture, open_agent):
    agent = await open_agent(await make_capture())
    assert (await agent.ask()).status_code == 200
    agent.route.stop()
    assert (await agent.ask()).status_code == 410
    first, second = await asyncio.gather(agent.route.seal(), agent.route.seal())
    assert first is second and len(first.calls) == 1
    assert (await agent.ask()).status_code == 410
    assert first.evidence.failed == 0


async def test_the_end_cancels_a_sample_that_is_under_way(make_capture, open_agent, latch):
    capture = await make_capture()
    agent = await open_agent(capture, inner=latch)
    asking = asyncio.ensure_future(agent.ask())
    await until(lambda: capture.inflight == 1)
    agent.route.stop()
    latch.opened.set()
    assert (await asking).status_code == 410
    captured = await agent.route.seal()
    assert (captured.calls, capture.inflight, latch.cancelled) == ([], 0, 1)
    assert [r.status for r in agent.reports] == ["client"]


async def test_an_answer_that_meets_the_end_is_not_captured(make_capture, open_agent, sampler):
    answer = await sampler.sample(tinker.ModelInput.from_ints([1, 2]), 1, tinker.SamplingParams(max_tokens=2))
    waiting: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    class Waiting:
        def sample(self, **_: object) -> asyncio.Future[object]:
            return waiting

    capture = await make_capture()
    agent = await open_agent(capture, inner=Waiting())
    asking = asyncio.ensure_future(agent.ask())
    await until(lambda: capture.inflight == 1)
    waiting.set_result(answer)
    agent.route.stop()
    assert (await asking).status_code == 410
    assert (await agent.route.seal()).calls == []


async def test_a_client_that_goes_away_cancels_its_sample(make_capture, open_agent, embedded_gateway):
    capture = await make_capture(default_max_tokens=700)
    agent = await open_agent(capture)
    answered = 0
    while True:  # a sample may draw the end token at once; then ask again
        asking = asyncio.ensure_future(agent.ask("Count.", temperature=8.0))
        await until(lambda asking=asking: capture.inflight == 1 or asking.done())
        if not asking.done():
            break
        answered += 1
    asking.cancel()
    await until(lambda: capture.inflight == 0)
    captured = await agent.route.seal()
    assert (len(captured.calls), captured.evidence.last_failure) == (answered, "client")

    def running() -> int:
        load = httpx.get(f"{embedded_gateway}/api/v1/engine_load", headers={"X-API-Key": "tml-tests"}).json()
        return sum(engine["running_requests"] for engine in load["engines"])

    await until(lambda: running() == 0, 20)


async def test_a_call_that_cannot_be_written_fails_and_is_lost(make_capture, open_agent, tmp_path):
    capture = await make_capture()
    (tmp_path / "capture/calls-000000.jsonl").symlink_to("/dev/full")
    agent = await open_agent(capture)
    assert (await agent.ask()).status_code == 500
    with pytest.raises(CaptureError):
        await capture.sync()
    captured = await agent.route.seal()
    assert (captured.calls, captured.evidence.lost, captured.evidence.last_failure) == ([], 1, "capture")


async def test_an_overflow_is_told_in_harbors_words(make_capture, open_agent):
    capture = await make_capture(context_window=80)
    agent = await open_agent(capture)
    for path, body in (("/v1/chat/completions", {}), ("/v1/messages", {"max_tokens": 6})):
        reply = await agent.post(path, {"messages": [{"role": "user", "content": "word " * 80}]} | body)
        assert reply.status_code == 400
        assert re.search(HARBOR_OVERFLOW, reply.json()["error"]["message"])
    captured = await agent.route.seal()
    assert captured.evidence.overflowed and captured.evidence.last_failure == "overflow"
    assert [r.status for r in agent.reports] == ["overflow", "overflow"]


async def test_the_gateways_own_overflow_is_told_the_same_way(make_capture, open_agent):
    agent = await open_agent(await make_capture(default_max_tokens=100_000))
    reply = await agent.ask()
    assert reply.status_code == 400 and re.search(HARBOR_OVERFLOW, reply.json()["error"]["message"])
    assert (await agent.route.seal()).evidence.overflowed


async def test_long_transcripts_pass_and_absurd_ones_do_not(make_capture, open_agent, monkeypatch):
    monkeypatch.setattr(cookbook_proxy, "BODY_LIMIT", 3 << 20)
    agent = await open_agent(await make_capture(context_window=100))
    assert (await agent.ask("x" * (3 << 19))).status_code == 400
    assert agent.reports[-1].status == "overflow"
    reply = await agent.ask("x" * (4 << 20))
    assert reply.status_code == 413 and reply.json()["error"]["type"] == "invalid_request_error"
    assert agent.reports[-1].status == "request"


async def test_refused_requests_are_in_the_record(make_capture, open_agent):
    agent = await open_agent(await make_capture())
    assert (await agent.ask(n=2)).status_code == 400
    broken = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "[1]"}}]
    history = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": broken}]
    assert (await agent.post("/v1/chat/completions", {"messages": history})).status_code in (200, 400)
    assert (await agent.post("/v1/responses", {"input": "x"})).status_code == 404
    evidence = (await agent.route.seal()).evidence
    assert evidence.last_failure == "request" and "404 at /v1/responses" in evidence.last_failure_text


async def test_a_failing_backend_is_told_without_its_words(make_capture, open_agent):
    class Failing:
        async def sample(self, **_: object) -> None:
            raise ConnectionError("secret address")

    agent = await open_agent(await make_capture(), inner=Failing())
    reply = await agent.ask()
    assert reply.status_code == 500 and "secret" not in reply.text
    evidence = (await agent.route.seal()).evidence
    assert (evidence.calls, evidence.failed, evidence.last_failure) == (0, 1, "backend")
    assert "secret address" in evidence.last_failure_text


async def test_waiting_for_an_absent_gateway_counts_as_backend_trouble(make_capture, open_agent, latch):
    capture = await make_capture(outage=lambda since: 1e9)
    agent = await open_agent(capture, inner=latch)
    asking = asyncio.ensure_future(agent.ask())
    await until(lambda: capture.inflight == 1)
    await asyncio.sleep(0.2)
    asking.cancel()
    await until(lambda: bool(agent.reports))
    evidence = (await agent.route.seal()).evidence
    assert evidence.last_failure == "client"
    assert evidence.backend_seconds == pytest.approx(agent.reports[0].seconds) and evidence.backend_seconds >= 0.2


async def test_an_answer_of_no_tokens_is_no_sample(make_capture, open_agent, sampler):
    class Silent:
        async def sample(self, **arguments: object) -> object:
            answer = await sampler.sample(**arguments)
            nothing = replace(answer.sequences[0], tokens_np=np.zeros(0, np.int32), logprobs_np=None)
            return replace(answer, sequences=[nothing])

    agent = await open_agent(await make_capture(), inner=Silent())
    assert (await agent.ask()).status_code == 200
    evidence = (await agent.route.seal()).evidence
    assert (evidence.calls, evidence.failed, evidence.no_logprobs) == (0, 0, 0)


async def test_an_address_of_another_machine_is_refused(make_capture):
    with pytest.raises(UsageError, match=r"harbor\.listen_host=203\.0\.113\.1"):
        await make_capture(listen_host="203.0.113.1")


async def test_sealing_goes_on_when_its_caller_is_cancelled(make_capture, open_agent, latch):
    capture = await make_capture()
    agent = await open_agent(capture, inner=latch)
    asking = asyncio.ensure_future(agent.ask())
    await until(lambda: capture.inflight == 1)
    sealing = asyncio.ensure_future(agent.route.seal())
    await asyncio.sleep(0)
    sealing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sealing
    latch.opened.set()
    assert (await asking).status_code == 410
    assert (await agent.ask()).status_code == 410
    assert (await agent.route.seal()).calls == []


def captured_calls() -> int:
    gc.collect()
    return sum(type(thing) is CapturedCall for thing in gc.get_objects())


async def test_nothing_holds_on_to_what_a_sealed_route_captured(make_capture, open_agent):
    before = captured_calls()
    capture = await make_capture()
    for number in range(3):
        agent = await open_agent(capture, f"s0.g0.t{number}.y0")
        assert (await agent.ask()).status_code == 200
        captured = await agent.route.seal()
        assert len(captured.calls) == 1
    del agent, captured
    assert captured_calls() == before
