"""Clients that go away, trials that end, in the middle of calls: nothing hangs, nothing late is kept."""

from __future__ import annotations

import asyncio

import pytest
from call_stage import said, turns, user
from scripted_sampler import Reply

from console.capture.refusals import RefusedError
from console.errors import CaptureError

ASK = [user("Which files are there?")]


async def kind_of(asking) -> str:
    with pytest.raises(RefusedError) as caught:
        await asking
    return caught.value.kind


async def test_a_client_that_goes_away_cancels_the_sample(open_stage):
    stage = open_stage([Reply(said("never"), gate=asyncio.Event())])
    asking = asyncio.ensure_future(stage.ask(ASK))
    await stage.sampler.until_running(1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await turns()
    assert stage.sampler.cancelled == 1 and stage.calls.inflight == 0
    (call,) = stage.file()
    assert call.outcome.status == "client" and not call.tokens()
    captured = await stage.calls.seal()
    assert captured.segments == [] and captured.evidence.last_failure == "client"
    assert (stage.figures.cancelled, stage.figures.late, stage.figures.inflight) == (1, 0, 0)


async def test_a_client_that_goes_away_before_it_asks_for_the_reply_samples_nothing(open_stage):
    stage = open_stage()
    pending = await stage.begin(ASK)
    pending.abandon()
    pending.abandon()
    await turns()
    assert not stage.sampler.asked and stage.calls.inflight == 0
    assert await kind_of(pending.reply()) == "cancelled"
    assert next(iter(stage.file())).outcome.status == "client"


async def test_a_client_that_goes_away_while_its_prompt_is_rendered(open_stage):
    stage = open_stage()
    beginning = asyncio.ensure_future(stage.begin(ASK))
    await turns(2)
    beginning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await beginning
    await turns()
    assert stage.calls.inflight == 0 and not stage.sampler.asked and len(stage.file()) == 0
    await stage.ask(ASK)
    assert (await stage.calls.seal()).evidence.calls == 1


async def test_a_trial_that_ends_amid_eight_calls_ends_them_all(open_stage):
    stage = open_stage([said("kept"), *(Reply(said("late"), gate=asyncio.Event()) for _ in range(8))])
    await stage.ask(ASK)
    asking = [asyncio.ensure_future(stage.ask([user(str(n))])) for n in range(8)]
    await stage.sampler.until_running(8)
    rendering = [asyncio.ensure_future(stage.begin([user(f"r{n}")])) for n in range(3)]
    await turns(1)
    stage.calls.stop()
    assert [await kind_of(one) for one in (*asking, *rendering)] == ["sealed"] * 11
    captured = await stage.calls.seal()
    assert await stage.calls.seal() is captured
    assert stage.calls.inflight == 0 == stage.figures.inflight and stage.sampler.cancelled == 8
    assert sum(len(s.turns) for s in captured.segments) == 1 and captured.excluded == {"late": 8}
    assert stage.figures.late == 8
    kept = stage.file()
    assert kept.sealed is not None and not kept.oddities and not kept.open_calls()
    assert [call.outcome.status for call in kept] == ["stop", *["sealed"] * 8]
    assert len(kept.sealed.excluded_nodes["late"]) == 8
    assert await kind_of(stage.ask(ASK)) == "sealed"


async def test_a_sample_that_comes_in_the_moment_of_the_end_is_kept_whole_or_not_at_all(open_stage):
    for moment in range(12):
        gate = asyncio.Event()
        stage = open_stage([Reply(said("x"), gate=gate)])
        asking = asyncio.ensure_future(stage.ask(ASK))
        await stage.sampler.until_running(1)
        gate.set()
        await turns(moment)
        captured = await stage.calls.seal()
        await asyncio.wait([asking])
        samples = sum(len(s.turns) for s in captured.segments) + captured.excluded.get("undelivered", 0)
        (call,) = stage.file()
        answered = call.outcome.status == "stop"
        assert samples == captured.evidence.calls == int(answered) == 1 - captured.excluded.get("late", 0)
        assert bool(call.tokens()) is answered and stage.figures.calls == samples


async def test_sealing_goes_on_when_its_caller_is_cancelled(open_stage):
    stage = open_stage()
    await stage.ask(ASK)
    sealing = asyncio.ensure_future(stage.calls.seal())
    await turns(1)
    sealing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sealing
    captured = await stage.calls.seal()
    assert captured.evidence.calls == 1 and stage.file().sealed is not None


async def test_an_unexpected_fault_in_the_gateway_ends_the_call_and_nothing_else(open_stage, monkeypatch):
    stage = open_stage([said("x"), said("y")])
    parse = stage.service.renderer.parse
    monkeypatch.setattr(stage.service.renderer, "parse", lambda *a, **k: 1 / 0)
    assert await kind_of(stage.ask(ASK)) == "backend"
    monkeypatch.setattr(stage.service.renderer, "parse", parse)
    assert (await stage.ask([user("b")])).text == "y"
    captured = await stage.calls.seal()
    assert (captured.evidence.calls, captured.evidence.failed) == (1, 1)
    assert [call.outcome.status for call in stage.file()] == ["backend", "stop"]


async def test_a_second_policy_version_in_one_trial_is_an_error(open_stage):
    stage = open_stage(policy_version=3)
    await stage.ask(ASK)
    stage.calls._parts.policy_version = 4
    assert await kind_of(stage.ask([user("b")])) == "capture"
    assert (await stage.calls.seal()).evidence.lost == 1
    other = open_stage(policy_version=3)
    await other.ask(ASK)
    other.calls._policy_version = 4
    with pytest.raises(CaptureError):
        await other.calls.seal()
