"""Calls that have no answer: what the agent is told, what the trial's evidence says, what is written down."""

from __future__ import annotations

import asyncio
import errno
import re
import threading
import time
from collections.abc import Iterator

import pytest
from call_stage import SECRET, Stage, policy_renderer, said, turns, user
from scripted_sampler import Reply, backend_error, overflow_error

from console.capture.chat import ChatRequest
from console.capture.refusals import RefusedError, UnforeseenError
from console.capture.service import CallService
from console.capture.settings import CallSettings
from console.capture.workers import Overloaded, Workers

HARBOR_OVERFLOW = re.compile(r"^prompt is too long: \d+ tokens > \d+ maximum$", re.MULTILINE)
ASK = [user("Which files are there?")]


async def refused(stage: Stage, messages=ASK, **options) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        await stage.ask(messages, **options)
    return caught.value


@pytest.mark.parametrize("fault", ["null", "nan", "inf", "positive", "short", "long", "none_inside"])
async def test_unusable_log_probs_fail_the_call_before_the_reply_leaves(open_stage, fault):
    stage = open_stage([Reply(said("x"), logprobs=fault), said("fine")])
    refusal = await refused(stage)
    assert (refusal.kind, refusal.status) == ("no_logprobs", 503)
    (call,) = stage.file()
    assert call.outcome.status == "no_logprobs" and not call.tokens() and "log-probs" in call.outcome.error
    await stage.ask([user("Again?")])
    captured = await stage.calls.seal()
    evidence = captured.evidence
    assert (evidence.calls, evidence.failed, evidence.no_logprobs, evidence.last_failure) == (1, 1, 1, None)
    assert sum(len(s.turns) for s in captured.segments) == 1 and stage.figures.no_logprobs == 1
    assert [r.status for r in stage.reports] == ["no_logprobs", "stop"]


async def test_log_probs_a_hair_above_zero_are_kept_as_they_are(open_stage):
    stage = open_stage([Reply(said("x"), logprobs="certain")])
    await stage.ask(ASK)
    assert next(iter(stage.file())).logprobs()[-1] == pytest.approx(5e-6)


@pytest.mark.parametrize(
    "error", [backend_error(), backend_error("slow down", 429), OSError("gone"), ValueError("odd")]
)
async def test_backend_failures_are_503_with_a_time_to_try_again(open_stage, error):
    stage = open_stage([error, said("fine")])
    refusal = await refused(stage)
    assert (refusal.kind, refusal.status) == ("backend", 503) and refusal.retry_after
    assert str(error) not in refusal.message and type(error).__name__ in refusal.message
    (call,) = stage.file()
    assert call.outcome.status == "backend" and str(error) in call.outcome.error
    evidence = (await stage.calls.seal()).evidence
    assert (evidence.last_failure, evidence.failed, evidence.calls) == ("backend", 1, 0)
    assert str(error) in evidence.last_failure_text and stage.figures.refusals == {"backend": 1}


async def test_a_failure_shows_no_secrets(open_stage):
    key = "tml-" + "a1b2c3d4" * 4
    stage = open_stage([backend_error(f"bad key {key} for {SECRET}")])
    await refused(stage)
    text = (await stage.calls.seal()).evidence.last_failure_text
    assert "bad key" in text and key not in text and SECRET not in text
    assert key.encode() not in stage.trial_journal.path.read_bytes()


async def test_a_gateway_that_sends_no_sequence_failed(open_stage):
    stage = open_stage([Reply(said("x"), sequences=0), Reply([1, 2, 2**40], stop_reason="stop")])
    assert (await refused(stage)).kind == "backend"
    assert (await refused(stage)).kind == "backend"


async def test_a_sample_that_the_sdk_cancels_is_the_backends_failure(open_stage):
    stage = open_stage([Reply(error=asyncio.CancelledError())])  # type: ignore[arg-type]
    assert (await refused(stage)).kind == "backend"
    assert stage.calls.inflight == 0


async def test_seconds_of_an_outage_are_backend_seconds(open_stage):
    stage = open_stage([Reply(said("late"), delay=0.05)], outage=lambda since: 60.0)
    await stage.ask(ASK)
    evidence = (await stage.calls.seal()).evidence
    assert 0.05 <= evidence.backend_seconds < 60 and evidence.last_failure is None


async def test_calls_side_by_side_in_an_outage_lose_the_time_once(open_stage):
    gate = asyncio.Event()
    stage = open_stage([Reply(error=backend_error(), gate=gate) for _ in range(4)])
    began = time.monotonic()
    asking = [asyncio.ensure_future(refused(stage, [user(str(n))])) for n in range(4)]
    await stage.sampler.until_running(4)
    await asyncio.sleep(0.05)
    gate.set()
    await asyncio.gather(*asking)
    evidence = (await stage.calls.seal()).evidence
    assert 0.05 <= evidence.backend_seconds <= time.monotonic() - began and evidence.failed == 4


# --- the window ---


async def test_a_prompt_that_fills_the_window_is_an_overflow(open_stage):
    stage = open_stage(window=200)
    refusal = await refused(stage, [user("word " * 400)])
    assert (refusal.kind, refusal.status, refusal.param) == ("overflow", 400, "messages")
    assert HARBOR_OVERFLOW.search(refusal.message) and "maximum context length is 200" in refusal.message
    assert not stage.sampler.asked and stage.file().refused == {"overflow": 1}
    evidence = (await stage.calls.seal()).evidence
    assert evidence.overflowed and evidence.last_failure == "overflow" and stage.reports[0].status == "overflow"


async def test_the_last_token_of_the_window_can_be_sampled(open_stage):
    stage = open_stage(window=4096)
    pending = await stage.begin(ASK)
    room = 4096 - pending.prompt_tokens
    await pending.reply()
    assert stage.sampler.asked[0].params.max_tokens == room < 8192  # the default is clamped too
    for window, kind in ((pending.prompt_tokens + 1, ""), (pending.prompt_tokens, "overflow")):
        tight = open_stage([Reply("ok", end=False)], window=window)
        if kind:
            assert (await refused(tight)).kind == kind
        else:
            assert (await tight.ask(ASK)).stop == "length" and tight.sampler.asked[0].params.max_tokens == 1


async def test_max_tokens_is_clamped_and_a_smaller_one_respected(open_stage):
    stage = open_stage(window=4096, max_tokens=100)
    await stage.ask(ASK, max_tokens=64_000)
    await stage.ask([user("b")], max_tokens=7)
    await stage.ask([user("c")])
    given = [asked.params.max_tokens for asked in stage.sampler.asked]
    assert given == [4096 - len(stage.sampler.asked[0].prompt), 7, 100]
    assert [call.intent.max_tokens for call in stage.file()] == given


async def test_a_text_far_beyond_the_window_is_not_even_encoded(open_stage, monkeypatch):
    stage = open_stage(window=1000)
    monkeypatch.setattr(stage.service.renderer, "render", lambda *a: pytest.fail("it was rendered"))
    assert HARBOR_OVERFLOW.search((await refused(stage, [user("9" * 16_001)])).message)


@pytest.mark.parametrize("through", [False, True])
async def test_an_overflow_that_the_gateway_reports_is_told_in_words_that_harbor_knows(open_stage, through):
    error = overflow_error(400, 8192, 300, through_the_future=through)
    stage = open_stage([error], window=None)
    refusal = await refused(stage, [user("word " * 400)])
    assert refusal.kind == "overflow" and len(stage.sampler.asked) == 1
    prompt = len(stage.sampler.asked[0].prompt)
    assert f"prompt is too long: {prompt} tokens > 300 maximum" in refusal.message.splitlines()
    (call,) = stage.file()
    assert call.outcome.status == "overflow" and "Prompt length plus max_tokens" in call.outcome.error
    evidence = (await stage.calls.seal()).evidence
    assert evidence.overflowed and evidence.last_failure == "overflow"


@pytest.mark.parametrize("through", [False, True])
async def test_the_window_is_learned_from_the_gateway_and_the_call_is_sampled_again(open_stage, through):
    error = overflow_error(20, 64_000, 4096, through_the_future=through)
    stage = open_stage([error, said("fits")], window=None)
    reply = await stage.ask(ASK, max_tokens=64_000)
    assert reply.text == "fits" and stage.service.window == 4096
    first, second = stage.sampler.asked
    assert first.params.max_tokens == 64_000 and second.params.max_tokens == 4096 - len(second.prompt)
    (call,) = stage.file()
    assert f"max_tokens {second.params.max_tokens}" in call.outcome.error and not stage.file().oddities
    assert (await stage.calls.seal()).evidence.failed == 0
    later = open_stage(service=stage.service)
    await later.ask(ASK, max_tokens=64_000)
    assert later.sampler.asked[0].params.max_tokens == second.params.max_tokens


async def test_an_overflow_without_numbers_still_has_harbors_words(open_stage):
    stage = open_stage([backend_error("prompt is too long", 500)], window=None)
    refusal = await refused(stage)
    assert refusal.kind == "overflow" and HARBOR_OVERFLOW.search(refusal.message)
    assert (await stage.calls.seal()).evidence.last_failure == "overflow"


# --- requests that are refused ---


@pytest.mark.parametrize(
    ("sampling", "param"),
    [
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"top_k": -2}, "top_k"),
        ({"stop": ("",)}, "stop"),
    ],
)
async def test_values_out_of_range_are_refused_by_name(open_stage, sampling, param):
    stage = open_stage()
    refusal = await refused(stage, **sampling)
    assert (refusal.kind, refusal.param) == ("request", param) and not stage.sampler.asked
    evidence = (await stage.calls.seal()).evidence
    assert (evidence.failed, evidence.last_failure) == (1, "request")


async def test_refusals_of_the_server_count_once_each_and_do_not_fill_the_disk(open_stage):
    stage = open_stage()
    once = RefusedError("request", "'n' must be 1", param="n")
    for _ in range(3):
        stage.calls.refused(once, "chat")
    for n in range(150):
        stage.calls.refused(RefusedError("media", f"not JSON {n}"), "chat")
    stage.calls.refused(RefusedError("auth", "who?"), "chat")
    assert stage.figures.refusals == {"request": 1, "media": 150, "auth": 1}
    assert stage.file().refused == {"request": 1, "media": 100, "auth": 1}
    evidence = (await stage.calls.seal()).evidence
    assert (evidence.failed, evidence.last_failure, evidence.last_failure_text) == (151, "request", "not JSON 149")


async def test_what_broke_in_the_server_is_the_gateways_fault_and_loses_nothing(open_stage):
    stage = open_stage()
    await stage.ask(ASK)
    stage.calls.refused(UnforeseenError(), "chat")
    evidence = (await stage.calls.seal()).evidence
    assert (evidence.lost, evidence.failed, evidence.last_failure) == (0, 1, "backend")


async def test_an_answer_takes_the_last_failure_back(open_stage):
    stage = open_stage([backend_error(), said("fine")])
    await refused(stage)
    await stage.ask(ASK)
    evidence = (await stage.calls.seal()).evidence
    assert (evidence.failed, evidence.calls, evidence.last_failure, evidence.last_failure_text) == (1, 1, None, "")


async def test_calls_before_the_start_and_after_the_end_are_refused_and_are_no_failures(open_stage):
    stage = open_stage(started=False)
    assert (await refused(stage)).kind == "early"
    with pytest.raises(RefusedError, match="not started"):
        await stage.calls.count(ChatRequest(dialect="chat", messages=ASK))
    stage.calls.start()
    await stage.ask(ASK)
    evidence = (await stage.calls.seal()).evidence
    assert (await refused(stage)).status == 410
    assert (evidence.failed, evidence.calls) == (0, 1) and stage.figures.refusals == {"early": 2, "sealed": 1}


# --- too much at once ---


async def test_calls_beyond_the_places_wait_and_beyond_that_are_refused(open_stage):
    gate = asyncio.Event()
    stage = open_stage([Reply(said(str(n)), gate=gate) for n in range(5)], inflight=2, waiting=2)
    asking = [asyncio.ensure_future(stage.ask([user(str(n))])) for n in range(4)]
    await stage.sampler.until_running(2)
    await turns()
    refusal = await refused(stage, [user("5")])
    assert (refusal.kind, refusal.status) == ("busy", 429) and refusal.retry_after
    assert stage.sampler.running == 2 and stage.calls.inflight == 4
    gate.set()
    assert sorted([r.text for r in await asyncio.gather(*asking)]) == ["0", "1", "2", "3"]
    assert (await stage.calls.seal()).evidence.failed == 1


async def test_who_waits_too_long_for_a_place_is_refused(open_stage):
    stage = open_stage([Reply(said("x"), gate=asyncio.Event())], inflight=1, wait_seconds=0.02)
    first = asyncio.ensure_future(stage.ask(ASK))
    await stage.sampler.until_running(1)
    assert (await refused(stage, [user("b")])).kind == "busy"
    stage.calls.stop()
    with pytest.raises(RefusedError):
        await first


async def test_an_overloaded_gateway_is_not_the_trials_fault(open_stage):
    stage = open_stage(service=_overloaded())
    assert (await refused(stage)).kind == "busy"
    assert (await stage.calls.seal()).evidence.last_failure == "backend"


def _overloaded() -> CallService:
    class Full(Workers):
        async def run(self, *args, **kwargs):
            raise Overloaded

    return CallService(policy_renderer(), CallSettings(), workers=Full())


# --- the disk ---


class Disk:
    """The trial's journal on a disk that fills up."""

    def __init__(self, journal) -> None:
        self._journal, self.full, self.unsafe = journal, False, False
        self.key, self.path = journal.key, journal.path

    @property
    def size(self) -> int:
        return self._journal.size

    def write(self, record) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._journal.write(record)

    async def durable(self) -> None:
        if self.unsafe:
            raise OSError(errno.EIO, "Input/output error")
        await self._journal.durable()

    async def seal(self, sealed):
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return await self._journal.seal(sealed)


def on_disk(stage: Stage) -> Disk:
    disk = Disk(stage.trial_journal)
    stage.calls._records._journal = disk  # type: ignore[assignment]
    return disk


async def test_an_outcome_that_cannot_be_written_fails_the_call(open_stage):
    gate = asyncio.Event()
    stage = open_stage([said("kept"), Reply(said("lost"), gate=gate), said("kept too")])
    disk = on_disk(stage)
    await stage.ask([user("a")])
    asking = asyncio.ensure_future(refused(stage))
    await stage.sampler.until_running(1)
    disk.full = True
    gate.set()
    refusal = await asking
    assert (refusal.kind, refusal.status) == ("capture", 503) and "No space left" in refusal.message
    disk.full = False
    await stage.ask([user("b")])
    captured = await stage.calls.seal()
    assert (captured.evidence.lost, captured.evidence.calls) == (1, 2)
    assert sum(len(s.turns) for s in captured.segments) == 2 and stage.figures.lost == 1
    assert [r.status for r in stage.reports] == ["stop", "capture", "stop"]


async def test_an_intent_that_cannot_be_written_asks_no_sampler(open_stage):
    stage = open_stage()
    on_disk(stage).full = True
    assert (await refused(stage)).kind == "capture" and not stage.sampler.asked
    captured = await stage.calls.seal()  # cannot be written either, and ends all the same
    assert captured.evidence.lost == 2 and captured.segments == []


async def test_what_cannot_be_forced_to_the_disk_is_lost(open_stage):
    stage = open_stage()
    on_disk(stage).unsafe = True
    await stage.ask(ASK)
    captured = await stage.calls.seal()
    assert (captured.evidence.lost, captured.evidence.calls) == (1, 1)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds the worker's thread; opened at the end, or the thread would outlive the test."""
    event = threading.Event()
    yield event
    event.set()


async def test_the_render_worker_takes_trials_in_turn(gate):
    workers = Workers(waiting=8, waiting_each=4)
    order: list[str] = []
    first = asyncio.ensure_future(workers.run("a", gate.wait))
    await turns(2)
    jobs = [asyncio.ensure_future(workers.run("a", order.append, f"a{n}")) for n in range(4)]
    await turns(2)
    with pytest.raises(RefusedError, match="of this trial"):
        await workers.run("a", order.append, "a5")
    jobs += [asyncio.ensure_future(workers.run("b", order.append, f"b{n}")) for n in range(2)]
    await turns(2)
    jobs.append(asyncio.ensure_future(workers.finish("c", order.append, "c")))
    jobs[1].cancel()
    await turns(2)
    assert workers.queued == 6
    gate.set()
    await asyncio.gather(first, *jobs, return_exceptions=True)
    assert order == ["c", "a0", "b0", "a2", "b1", "a3"] and workers.queued == 0
    gate.clear()
    jobs = [asyncio.ensure_future(workers.run(n, gate.wait)) for n in range(10)]
    await turns(2)
    assert [isinstance(job.exception(), Overloaded) for job in jobs if job.done()] == [True]
    gate.set()
    await asyncio.gather(*jobs, return_exceptions=True)
    with pytest.raises(ZeroDivisionError):
        await workers.run("d", lambda: 1 / 0)
    workers.close()


async def test_what_was_refused_is_counted_by_kind(open_stage):
    stage = open_stage([backend_error(), said("fine")])
    await refused(stage)
    await stage.ask(ASK)
    for _ in range(2):
        await refused(stage, temperature=-1.0)
    await refused(stage, [user("word " * 9000)])
    gone = asyncio.create_task(stage.ask([user("Nobody waits for this.")]))
    while not stage.calls.inflight:  # noqa: ASYNC110 - the very moment
        await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    captured = await stage.calls.seal()
    assert captured.refused == {"backend": 1, "request": 2, "overflow": 1}
    assert captured.evidence.failed == 5, "one of them had gone away"


async def test_the_log_has_where_something_broke_and_not_what_was_said(open_stage, caplog, monkeypatch):
    def broken(*_):
        raise RuntimeError("the agent's own words")

    stage = open_stage()
    monkeypatch.setattr(stage.service.renderer, "render", broken)
    with pytest.raises(RefusedError):
        await stage.ask([user("hello")])
    assert "RuntimeError < test_calls_failures.py:" in caplog.text and "prompts.py:" in caplog.text
    assert "own words" not in caplog.text
