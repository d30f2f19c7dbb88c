"""Requests that are sent again: replayed, joined, or sampled anew; and never trained twice."""

from __future__ import annotations

import asyncio

import pytest
from call_stage import BASH, called, echo, result, said, turns, user
from scripted_sampler import Reply, backend_error

from console.capture.chat import ChatReply
from console.capture.refusals import RefusedError
from console.capture.retries import Answered, Replies

ASK = [user("Which files are there?")]


def trained(captured) -> int:
    return sum(len(segment.turns) for segment in captured.segments)


async def test_a_marked_retry_gets_the_reply_that_was_lost_on_the_way(open_stage):
    stage = open_stage([called("ls"), said("ok")])
    pending = await stage.begin(ASK, tools=[BASH])
    lost = await pending.reply()  # and the connection breaks
    again = await stage.ask(ASK, tools=[BASH], retry=True)
    assert again == lost and len(stage.sampler.asked) == 1 and stage.figures.replayed == 1
    await stage.ask([*ASK, echo(again), result(again, "a.txt")], tools=[BASH])
    assert [call.delivered for call in stage.file()] == [1, 1]
    captured = await stage.calls.seal()
    assert trained(captured) == 2 and captured.bridged == 1 and captured.evidence.calls == 2


async def test_a_reply_that_is_replayed_after_it_was_delivered_is_noted_twice(open_stage):
    stage = open_stage()
    first = await stage.ask(ASK)
    assert await stage.ask(ASK, retry=True) == first
    assert next(iter(stage.file())).delivered == 2
    assert trained(await stage.calls.seal()) == 1


async def test_an_unmarked_request_that_is_the_same_is_a_new_call(open_stage):
    stage = open_stage([said("one"), said("two")])
    first, second = await stage.ask(ASK), await stage.ask(ASK)
    assert (first.text, second.text) == ("one", "two") and first.node != second.node
    captured = await stage.calls.seal()
    assert len(stage.file()) == 2 and trained(captured) + captured.excluded["superseded"] == 2


async def test_the_same_request_joins_the_one_under_way_marked_or_not(open_stage):
    gate = asyncio.Event()
    stage = open_stage([Reply(said("one"), gate=gate)])
    asking = [asyncio.ensure_future(stage.ask(ASK, retry=retry)) for retry in (False, False, True)]
    await stage.sampler.until_running(1)
    await turns()
    gate.set()
    replies = await asyncio.gather(*asking)
    assert replies[0] == replies[1] == replies[2] and len(stage.sampler.asked) == 1
    assert stage.figures.joined == 2 and stage.figures.calls == 1
    assert trained(await stage.calls.seal()) == 1


async def test_a_join_keeps_the_sample_alive_when_the_first_client_goes(open_stage):
    gate = asyncio.Event()
    stage = open_stage([Reply(said("one"), gate=gate), said("two")])
    first = asyncio.ensure_future(stage.ask(ASK))
    await stage.sampler.until_running(1)
    second = asyncio.ensure_future(stage.ask(ASK, retry=True))
    await turns()
    first.cancel()
    await asyncio.wait([first])
    await turns()
    assert stage.sampler.running == 1 and stage.sampler.cancelled == 0
    gate.set()
    assert (await second).text == "one" and len(stage.sampler.asked) == 1
    captured = await stage.calls.seal()
    assert trained(captured) == 1 and captured.evidence.failed == 0


async def test_when_all_who_joined_are_gone_the_sample_is_cancelled_and_a_new_one_can_begin(open_stage):
    stage = open_stage([Reply(said("one"), gate=asyncio.Event()), said("two")])
    asking = [asyncio.ensure_future(stage.ask(ASK)) for _ in range(2)]
    await stage.sampler.until_running(1)
    await turns()
    for one in asking:
        one.cancel()
    # At once, before the cancelled call is through: it must not be joined any more.
    await asyncio.wait(asking)
    assert (await stage.ask(ASK, retry=True)).text == "two"
    assert stage.sampler.cancelled == 1 and trained(await stage.calls.seal()) == 1


async def test_a_client_that_times_out_and_retries_twice_trains_one_sample(open_stage):
    stage = open_stage(
        [Reply(said("slow"), gate=asyncio.Event()), Reply(said("slow"), gate=asyncio.Event()), said("x")]
    )

    async def attempt(number: int) -> ChatReply:
        async with asyncio.timeout(0.05 if number < 2 else None):
            return await stage.ask(ASK, retry=number > 0)

    for number in range(2):
        with pytest.raises(TimeoutError):
            await attempt(number)
    assert (await attempt(2)).text == "x"
    await turns()
    assert stage.sampler.cancelled == 2 and len(stage.sampler.asked) == 3
    captured = await stage.calls.seal()
    assert trained(captured) == 1 and captured.evidence.last_failure is None and captured.evidence.calls == 1
    assert [call.outcome.status for call in stage.file()] == ["client", "client", "stop"]


async def test_a_retry_of_a_call_that_failed_samples_again(open_stage):
    stage = open_stage([backend_error(), said("fine")])
    with pytest.raises(RefusedError):
        await stage.ask(ASK)
    assert (await stage.ask(ASK, retry=True)).text == "fine" and stage.figures.replayed == 0


async def test_a_retry_never_gets_the_reply_of_an_earlier_call_that_was_the_same(open_stage):
    stage = open_stage([said("one"), backend_error(), said("two")])
    await stage.ask(ASK)
    with pytest.raises(RefusedError):
        await stage.ask(ASK)
    assert (await stage.ask(ASK, retry=True)).text == "two"


async def test_a_retry_after_a_stop_is_sealed(open_stage):
    stage = open_stage()
    await stage.ask(ASK)
    stage.calls.stop()
    with pytest.raises(RefusedError) as caught:
        await stage.ask(ASK, retry=True)
    assert caught.value.status == 410


def test_the_newest_replies_are_kept():
    replies = Replies(3)
    for number in range(5):
        replies.put(bytes([number]), Answered(call=number, reply=ChatReply(node=str(number))))
    assert [replies.get(bytes([n])) is not None for n in range(5)] == [False, False, True, True, True]
    replies.put(b"\2", Answered(call=9, reply=ChatReply(node="9")))
    replies.put(b"\5", Answered(call=10, reply=ChatReply(node="10")))
    kept = replies.get(b"\2")
    assert kept is not None and kept.call == 9 and replies.get(b"\3") is None
    replies.drop(b"\2")
    assert replies.get(b"\2") is None
    replies.clear()
    assert replies.get(b"\5") is None
