"""A model slot that a dead session holds is waited for, while everything else goes on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import tinker
from tinker.lib.public_interfaces.service_client import ServiceClient

from console.errors import GatewayLostError
from console.gateway.profiles import PROFILES, GatewayProfile
from console.gateway.slots import MARGIN, waiting
from console.gateway.translation import installed
from tests.gateway.conftest import Served, serve

KEY = "tml-waits"
LEASE = 1.5
PROFILE = msgspec.structs.replace(PROFILES["miles"], lease=LEASE, sweep=0.1, slots=1)


@pytest.fixture(scope="module")
def miles(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway like Miles, with its one slot and a short lease."""
    yield from serve(tiny_model, tmp_path_factory.mktemp("one-slot"), "--like", "miles", "--lease", str(LEASE))


@contextlib.contextmanager
def beating(http: httpx.Client, session: str) -> Iterator[threading.Event]:
    """Sends heartbeats, more of them than the SDK does, until the end of the block or the event."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(0.1):
            http.post("/session_heartbeat", json={"session_id": session})

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield over
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def connected(gateway: Served, profile: GatewayProfile = PROFILE) -> Iterator[Any]:
    """A client of the real SDK, whose session lives as long as the block."""
    with installed(profile), gateway.http(KEY) as http:
        client = tinker.ServiceClient(base_url=gateway.url, api_key=KEY)
        with beating(http, client.holder.get_session_id()):
            yield client
        client.holder.close()


@contextlib.contextmanager
def trained_upon(gateway: Served) -> Iterator[threading.Event]:
    """Somebody else has the slot until the end of the block, or dies with the event, as an engine that crashes."""
    with gateway.http("tml-other") as http:
        while True:
            session = http.post("/create_session", json={"tags": [], "sdk_version": "0.26.2"}).json()["session_id"]
            body = {"session_id": session, "model_seq_id": 0, "base_model": "tiny", "lora_config": {"rank": 4}}
            answer = http.post("/create_model", json=body)
            if answer.status_code == 200:
                break
            assert "no free adapter slots" in answer.text  # of the test before this one
            time.sleep(0.1)
        with beating(http, session) as dead:
            yield dead


@pytest.fixture
def service(miles: Served) -> Iterator[Any]:
    """Such a client."""
    with connected(miles) as client:
        yield client


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it; the test's time limit ends a wait in vain."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


class Told:
    """Keeps what was told of the wait; `dead` is set once it has begun."""

    def __init__(self, dead: threading.Event | None = None) -> None:
        self.said: list[tuple[str, float]] = []
        self._dead = dead or threading.Event()

    def __call__(self, reason: str, until: float) -> None:
        self.said.append((reason, until))
        self._dead.set()


async def test_a_dead_engines_slot_is_waited_for(miles: Served, service: Any) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    before = time.time()
    with trained_upon(miles) as dead:
        told = Told(dead)
        with waiting(PROFILE, slot_wait=60, on_wait=told, last_alive=before - 0.5, every=0.2):
            client = await service.create_lora_training_client_async("tiny", rank=4)
    ticking.cancel()
    reasons, ends = zip(*told.said)
    assert ticks > 10, "the caller's loop goes on"
    assert reasons == (
        "a model slot: the only one is taken, by the engine before this one until its lease ends", "",
    ), "told once, and that it is over"  # fmt: skip
    assert ends[1] == 0.0
    held = LEASE + 0.1 + MARGIN
    assert before - 0.5 + held <= ends[0] <= time.time() + held, "lease, sweep, margin after the last sign of life"
    assert client.get_info().lora_rank == 4


@pytest.mark.parametrize("kind", ["translated", "created by loading"])
async def test_a_resume_waits_as_well(request: pytest.FixtureRequest, kind: str) -> None:
    gateway: Served = request.getfixturevalue("miles" if kind == "translated" else "narrow_gateway")
    profile = PROFILE if kind == "translated" else PROFILES["embedded"]
    with connected(gateway, profile) as service, waiting(profile, slot_wait=60, on_wait=Told(), every=0.1):
        state = service.create_lora_training_client("tiny", rank=4).result().save_state("left").result().path
    with trained_upon(gateway) as dead, connected(gateway, profile) as service:
        told = Told(dead)
        with waiting(profile, slot_wait=60, on_wait=told, every=0.1):
            client = await service.create_training_client_from_state_with_optimizer_async(state)
        assert client.get_info().lora_rank == 4
    assert len(told.said) == 2 and told.said[-1] == ("", 0.0) and "engine" not in told.said[0][0]


async def test_without_a_wait_it_ends_at_once(miles: Served, service: Any) -> None:
    told = Told()
    with trained_upon(miles), waiting(PROFILE, slot_wait=0, on_wait=told):
        with pytest.raises(
            GatewayLostError, match=r"within 0 s .*capacity 1.*console\.slot_wait.*--n-adapters"
        ) as caught:
            await service.create_lora_training_client_async("tiny", rank=4)
    assert caught.value.exit_code == 5 and "\n" not in str(caught.value) and told.said == []


async def test_a_living_one_keeps_its_slot(miles: Served, service: Any) -> None:
    told, profile = Told(), msgspec.structs.replace(PROFILE, lease=0.1, sweep=0.1)
    with trained_upon(miles):
        with waiting(profile, slot_wait=60, on_wait=told, last_alive=time.time() - 100, every=0.1, margin=0.4):
            with pytest.raises(GatewayLostError, match="somebody else trains there"):
                await service.create_lora_training_client_async("tiny", rank=4)
        assert told.said[-1] == ("", 0.0), "the wait is over for those who watch, too"
        with waiting(PROFILE, slot_wait=0.3, on_wait=told, every=0.1):
            with pytest.raises(GatewayLostError, match=r"console\.slot_wait"):
                await service.create_lora_training_client_async("tiny", rank=4)


async def test_other_refusals_are_not_waited_for(miles: Served, service: Any) -> None:
    told = Told()
    before = ServiceClient._create_lora_training_client_submit
    with waiting(PROFILE, slot_wait=60, on_wait=told):
        assert ServiceClient._create_lora_training_client_submit is not before
        with pytest.raises(tinker.BadRequestError, match=r"lora_config\.rank must be"):
            await service.create_lora_training_client_async("tiny", rank=17)
    assert told.said == [] and ServiceClient._create_lora_training_client_submit is before


async def test_a_wait_can_be_given_up(miles: Served, service: Any) -> None:
    told = Told()
    with trained_upon(miles), waiting(PROFILE, slot_wait=60, on_wait=told, every=0.1):
        creating = asyncio.ensure_future(service.create_lora_training_client_async("tiny", rank=4))
        await until(lambda: bool(told.said))
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
    await until(lambda: told.said[-1] == ("", 0.0))
