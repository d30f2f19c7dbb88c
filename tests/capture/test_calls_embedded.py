"""The calls service with a real sampler: the embedded gateway's, and the bundled model's own renderer."""

from __future__ import annotations

import asyncio

import pytest
import tinker
from call_stage import Stage, echo, turns, user

from console.capture.refusals import RefusedError
from console.capture.rendering import PolicyRenderer


@pytest.fixture
async def stage(sampler, renderer, tmp_path):
    policy = PolicyRenderer(renderer, name="qwen3_instruct")
    opened = Stage(tmp_path, sampler=sampler, renderer=policy, window=None, max_tokens=24)
    yield opened
    await opened.close()


async def test_real_samples_are_bridged_and_their_log_probs_are_the_models(stage, sampler):
    history = [user("List the files.")]
    replies = []
    for turn in range(4):
        replies.append(await stage.ask(history, seed=turn))
        history += [echo(replies[-1]), user(f"And then, {turn}?")]
    captured = await stage.calls.seal()
    assert captured.evidence.calls == 4 and captured.evidence.failed == 0 and captured.policy_version == 3
    ended = [reply.stop != "length" for reply in replies[:-1]]
    assert captured.bridged >= sum(ended) and stage.service.renderer.bridges
    kept = stage.file()
    assert not kept.oddities
    for line, segment in zip(kept.segments(), captured.segments, strict=True):
        tokens = kept.segment(line.nodes)
        trained = [token for turn in segment.turns for token in (*turn.prompt_new, *turn.tokens_T)]
        assert tokens.tokens_T.tolist() == trained
        scored = await sampler.compute_logprobs(tinker.ModelInput.from_ints(trained))
        for at, mask in enumerate(tokens.mask_T):
            if mask:
                assert tokens.logprobs_T[at] == pytest.approx(scored[at], abs=2e-3)


async def test_the_real_gateways_overflow_teaches_the_window(stage):
    reply = await stage.ask([user("List the files.")], max_tokens=10**6, stop=("e",))
    window = stage.service.window
    assert window is not None and reply.stop in ("stop", "length")
    with pytest.raises(RefusedError) as caught:
        await stage.ask([user("word " * window)])
    assert caught.value.kind == "overflow" and f"> {window} maximum" in caught.value.message
    captured = await stage.calls.seal()
    assert captured.evidence.overflowed and captured.evidence.last_failure == "overflow"


async def test_a_client_that_goes_away_frees_the_real_sampler(stage):
    asking = [asyncio.ensure_future(stage.ask([user(f"Count to {n}.")], max_tokens=200)) for n in range(6)]
    await turns()
    assert stage.calls.inflight == 6
    await asyncio.sleep(0.02)
    for one in asking[:3]:
        one.cancel()
    await asyncio.wait(asking[:3])
    stage.calls.stop()
    done = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(one, RefusedError | asyncio.CancelledError) or one.text is not None for one in done)
    captured = await stage.calls.seal()
    assert stage.calls.inflight == 0
    answered = sum(call.answered for call in stage.file())
    assert captured.evidence.calls == answered and not stage.file().open_calls()
