"""What a trial may use, and how its agent is told that this is all."""

from __future__ import annotations

import pytest
from call_stage import Stage, said, user
from scripted_sampler import backend_error

from console.capture.budgets import USED_UP, Spent
from console.capture.refusals import RefusedError
from console.capture.settings import Budgets
from console.training.harbor_options import HarborOptions


def ask(number: int) -> list:
    return [user(f"question {number}")]


async def used_up(stage: Stage, number: int) -> None:
    """Three replies that say so and are no calls, then errors that are not tried again."""
    asked = len(stage.sampler.asked)
    for again in range(3):
        pending = await stage.begin(ask(number + again))
        reply = await pending.reply()
        pending.delivered()
        assert (reply.text, reply.stop, reply.sampled_tokens) == (USED_UP, "stop", 0) and pending.node == reply.node
    for again in range(2):
        with pytest.raises(RefusedError) as caught:
            await stage.ask(ask(number + 3 + again))
        assert (caught.value.kind, caught.value.status, caught.value.retry_after) == ("budget", 400, None)
    assert len(stage.sampler.asked) == asked


async def test_a_budget_of_calls(open_stage):
    stage = open_stage([said("a"), said("b")], budgets=Budgets(calls=2))
    for number in range(2):
        await stage.ask(ask(number))
    await used_up(stage, 2)
    assert stage.figures.refusals == {"budget": 5} and stage.figures.calls == 2
    captured = await stage.calls.seal()
    evidence = captured.evidence
    assert (evidence.calls, evidence.failed, evidence.last_failure) == (2, 5, "budget")
    assert evidence.last_failure_text == "the trial's budget harbor.max_calls is used up"
    assert len(stage.file()) == 2 and stage.file().refused == {"budget": 5}
    assert sum(len(s.turns) for s in captured.segments) + sum(captured.excluded.values()) == 2


async def test_the_last_answer_of_a_budget_can_be_had_again(open_stage):
    stage = open_stage([said("a")], budgets=Budgets(calls=1))
    first = await stage.ask(ask(0))
    assert await stage.ask(ask(0), retry=True) == first


async def test_a_budget_of_prompt_tokens_refuses_the_prompt_that_exceeds_it(open_stage):
    stage = open_stage(budgets=Budgets(prompt_tokens=60))
    await stage.ask(ask(0))
    pending = await stage.begin([user("word " * 60)])
    assert (await pending.reply()).text == USED_UP and len(stage.sampler.asked) == 1
    assert stage.figures.refusals == {"budget": 1}
    assert stage.calls._evidence.taken().last_failure_text == "the trial's budget harbor.max_prompt_tokens is used up"
    await stage.ask(ask(1))  # a short one still fits, and the agent is taken to go on
    assert stage.calls._parts.terminals == 0


async def test_a_budget_of_sampled_tokens_bounds_the_last_sample(open_stage):
    stage = open_stage([said("a long answer"), said("never")], budgets=Budgets(sampled_tokens=6))
    reply = await stage.ask(ask(0), max_tokens=100)
    assert (reply.stop, reply.sampled_tokens) == ("length", 6)
    await used_up(stage, 1)


async def test_an_outage_uses_up_no_budget(open_stage):
    stage = open_stage([backend_error(), backend_error(), said("a")], budgets=Budgets(calls=1, prompt_tokens=60))
    for _ in range(2):
        with pytest.raises(RefusedError) as caught:
            await stage.ask(ask(0))
        assert caught.value.kind == "backend"
    assert (await stage.ask(ask(0))).text == "a"
    await used_up(stage, 1)


async def test_a_budget_of_bytes(open_stage):
    stage = open_stage(budgets=Budgets(received_bytes=100))
    stage.calls.received(100)
    await stage.ask(ask(0))
    stage.calls.received(1)
    await used_up(stage, 1)


def test_without_limits_nothing_is_ever_used_up():
    spent = Spent(Budgets())
    spent.sent(10**9)
    spent.sampled_tokens = spent.received_bytes = 10**9
    assert spent.exhausted(10**9) == "" and spent.room() is None


def test_each_budget_is_named():
    for name, option in (
        ("calls", "max_calls"),
        ("prompt_tokens", "max_prompt_tokens"),
        ("sampled_tokens", "max_sampled_tokens"),
        ("received_bytes", "max_call_bytes"),
    ):
        assert option in HarborOptions.__struct_fields__
        spent = Spent(Budgets(**{name: 5}))
        assert spent.exhausted() == ""
        setattr(spent, name, 6)
        assert spent.exhausted() == f"harbor.{option}"
    spent = Spent(Budgets(sampled_tokens=5, prompt_tokens=10))
    spent.sampled_tokens = 3
    assert spent.room() == 2 and spent.exhausted(10) == "" and spent.exhausted(11) == "harbor.max_prompt_tokens"
