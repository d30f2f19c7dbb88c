"""What is seen of the real SDK at a real gateway with faults in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import pytest
import tinker
from gateway_faults import FaultyGateway, hang, paused, status
from tinker import types
from tinker._client import AsyncTinker
from tinker.lib.api_future_impl import _APIFuture
from tinker.lib.client_connection_pool_type import ClientConnectionPoolType

from console.errors import UsageError
from console.gateway.health import SdkFigures
from console.gateway.sdk_watch import SdkWatch

if TYPE_CHECKING:
    from tests.gateway.conftest import Served

PROMPT = types.ModelInput.from_ints([5, 6, 7])


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def faulty(tiny_gateway: Served) -> AsyncIterator[FaultyGateway]:
    async with FaultyGateway(tiny_gateway.url) as gateway:
        yield gateway


@pytest.fixture
async def watch() -> AsyncIterator[SdkWatch]:
    watch = SdkWatch(Clock())
    watch.install()
    yield watch
    watch.undo()
    assert "request" not in vars(AsyncTinker)
    assert _APIFuture._result_async.__module__ == "tinker.lib.api_future_impl"
    assert not hasattr(_APIFuture._result_async, "__wrapped__")


@pytest.fixture
async def service(faulty: FaultyGateway, watch: SdkWatch) -> AsyncIterator[Any]:
    client = await asyncio.to_thread(tinker.ServiceClient, base_url=faulty.url, api_key="tml-watched")
    yield client
    faulty.clear()
    client.holder.close()


async def until(seen: Callable[[], bool]) -> None:
    """Wait for something that comes by itself."""
    async with asyncio.timeout(30):
        while not seen():  # noqa: ASYNC110 - no event is there to wait for
            await asyncio.sleep(0.02)


async def test_sampling_and_training_leave_nothing_open(
    service: Any, watch: SdkWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: set[str] = set()
    before = SdkWatch._begin

    def noted(self: SdkWatch, promise: Any) -> int:
        begun.add(promise.kind)
        return before(self, promise)

    monkeypatch.setattr(SdkWatch, "_begin", noted)
    training = await service.create_lora_training_client_async(base_model="tiny", rank=4)
    sampler = await training.save_weights_and_get_sampling_client_async()
    answer = await sampler.sample_async(PROMPT, 1, types.SamplingParams(max_tokens=2))
    assert len(answer.sequences) == 1
    inputs = {"target_tokens": [6, 7, 8], "weights": [1.0, 1.0, 1.0]}
    datum = types.Datum(model_input=PROMPT, loss_fn_inputs=inputs)
    await (await training.forward_backward_async([datum], "cross_entropy")).result_async()
    await (await training.optim_step_async(types.AdamParams(learning_rate=1e-3))).result_async()
    await (await training.save_state_async("kept")).result_async()
    assert begun == {
        "connect", "create_model", "save_weights_for_sampler", "sample", "forward_backward", "optim_step",
        "save_weights",
    }  # fmt: skip
    assert watch.figures() == SdkFigures(contact_age=0.0, heartbeat_age=0.0)


async def test_a_paused_queue_is_told_with_its_reason_and_is_over_with_the_operation(
    service: Any, faulty: FaultyGateway, watch: SdkWatch
) -> None:
    clock: Any = watch._clock
    sampler = await service.create_sampling_client_async(base_model="tiny")
    faulty.set("retrieve_future", paused("no sampler is free" + "!" * 300))
    sampling = asyncio.create_task(sampler.sample_async(PROMPT, 1, types.SamplingParams(max_tokens=2)))
    await until(lambda: watch.figures().queue != "")
    clock.now += 75.0
    figures = watch.figures()
    assert figures.queue == "paused_capacity" and figures.queue_reason.startswith("no sampler is free")
    assert len(figures.queue_reason) == 200
    assert figures.pending == {"sample": 1} and figures.oldest == {"sample": 75.0}
    faulty.clear()
    await sampling
    figures = watch.figures()
    assert figures.queue == "" and figures.queue_reason == "" and figures.pending == {} == figures.oldest


async def test_an_abandoned_operation_is_forgotten(service: Any, faulty: FaultyGateway, watch: SdkWatch) -> None:
    sampler = await service.create_sampling_client_async(base_model="tiny")
    faulty.set("retrieve_future", hang())
    sampling = asyncio.create_task(sampler.sample_async(PROMPT, 1, types.SamplingParams(max_tokens=2)))
    await until(lambda: faulty.faults["retrieve_future"] > 0)
    assert watch.figures().pending == {"sample": 1}
    sampling.cancel()
    await until(lambda: watch.figures().pending == {})


async def test_an_operation_that_the_gateway_does_not_even_take_is_under_way(
    service: Any, faulty: FaultyGateway, watch: SdkWatch
) -> None:
    faulty.set("create_model", hang())
    creating = asyncio.create_task(service.create_lora_training_client_async(base_model="tiny", rank=4))
    await until(lambda: watch.figures().pending == {"create_model": 1})
    faulty.clear()
    await creating
    assert watch.figures().pending == {}


async def test_back_pressure_is_seen_until_the_sdk_sends_as_before(
    service: Any, faulty: FaultyGateway, watch: SdkWatch
) -> None:
    sampler = await service.create_sampling_client_async(base_model="tiny")
    assert watch.figures().backoff is None
    faulty.set("asample", status(429, retry_after=1).only(1))
    await sampler.sample_async(PROMPT, 1, types.SamplingParams(max_tokens=2))
    backoff = watch.figures().backoff
    assert backoff is not None and 0 < backoff <= 11
    service.holder._sample_backoff_until = time.monotonic() - 10
    assert watch.figures().backoff is None


async def test_only_acknowledged_heartbeats_count(service: Any, faulty: FaultyGateway, watch: SdkWatch) -> None:
    clock: Any = watch._clock

    async def beat() -> None:
        async def once() -> None:
            session = service.holder.get_session_id()
            with service.holder.aclient(ClientConnectionPoolType.SESSION) as c:
                await c.service.session_heartbeat(session_id=session, max_retries=0)

        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(once(), service.holder.get_loop()))

    await asyncio.to_thread(lambda: service.holder)
    assert watch.figures().heartbeat_age == 0.0, "a session that was just made is alive"
    clock.now += 40.0
    faulty.set("session_heartbeat", status(500))
    with pytest.raises(tinker.InternalServerError):
        await beat()
    assert watch.figures().heartbeat_age == 40.0 and watch.figures().contact_age == 0.0
    faulty.clear()
    await beat()
    assert watch.figures().heartbeat_age == 0.0 and watch.figures().forgotten == ""
    faulty.set("session_heartbeat", status(404, "not found"))  # of something between us and the gateway
    with pytest.raises(tinker.NotFoundError):
        await beat()
    assert watch.figures().forgotten == ""
    faulty.set("session_heartbeat", status(410, "the session was reaped"))
    with pytest.raises(tinker.APIStatusError):
        await beat()
    assert "the session was reaped" in watch.figures().forgotten


async def test_a_session_that_we_end_is_not_forgotten(service: Any, watch: SdkWatch) -> None:
    """Its loop sends one heartbeat more, maybe, before it ends."""

    async def ends_and_beats() -> None:
        with service.holder.aclient(ClientConnectionPoolType.SESSION) as c:
            body = {"reason": {"type": "success"}, "detail": None}
            await c.post(f"/api/v1/sessions/{session}/finish", body=body, cast_to=type(None))
            await c.service.session_heartbeat(session_id=session, max_retries=0)

    session = await asyncio.to_thread(lambda: service.holder.get_session_id())
    with pytest.raises(tinker.APIStatusError, match="410"):
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(ends_and_beats(), service.holder.get_loop()))
    assert watch.figures().forgotten == ""


async def test_other_wrappers_may_come_and_go_in_any_order(service: Any, watch: SdkWatch) -> None:
    seen: list[str] = []
    ours = AsyncTinker.request
    prepare = AsyncTinker._prepare_options

    async def around(client: Any, cast_to: Any, options: Any, **more: Any) -> Any:
        seen.append(str(options.url))
        return await ours(client, cast_to, options, **more)

    async def changed(client: Any, options: Any) -> Any:
        seen.append("prepared")
        return await prepare(client, options)

    AsyncTinker.request, AsyncTinker._prepare_options = around, changed  # type: ignore[method-assign,assignment]
    try:
        await service.create_sampling_client_async(base_model="tiny")
        assert "prepared" in seen and any(url.endswith("create_sampling_session") for url in seen)
        watch.undo()
        assert AsyncTinker.request is around, "what was put around ours is not ours to take away"
        seen.clear()
        await service.create_sampling_client_async(base_model="tiny")
        assert seen and watch.figures() == SdkFigures()
    finally:
        del AsyncTinker.request  # type: ignore[misc]
        AsyncTinker._prepare_options = prepare  # type: ignore[method-assign]
    watch.install()
    await service.create_sampling_client_async(base_model="tiny")
    assert watch.figures().contact_age == 0.0


def test_an_sdk_without_what_is_watched_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(_APIFuture, "_result_async")
    with pytest.raises(UsageError, match=r"no _APIFuture\._result_async: install a version within"):
        SdkWatch().install()
    assert "request" not in vars(AsyncTinker)
