"""What a call is sampled with: the agent's wishes within their ranges, the run's rule, and what room there is."""

from __future__ import annotations

import math

import pytest
from call_stage import Stage, user
from hypothesis import given
from hypothesis import strategies as st

from console.capture.chat import ChatRequest, Sampling
from console.capture.effective import checked, effective
from console.capture.refusals import RefusedError


def made(sampling: Sampling, mode: str = "agent", room: int | None = None):
    checked(sampling)
    return effective(sampling, mode=mode, default_max_tokens=500, room=room)  # type: ignore[arg-type]


def test_nothing_given_is_temperature_one_and_the_default_length():
    values = made(Sampling())
    assert (values.max_tokens, values.temperature, values.top_p, values.top_k, values.seed) == (500, 1.0, 1.0, -1, None)
    assert values.given == () and values.overridden == ()


def test_the_agents_own_values_are_honoured():
    values = made(Sampling(max_tokens=7, temperature=0.0, top_p=0.9, top_k=40, seed=11, stop=("a",)))
    assert (values.max_tokens, values.temperature, values.top_p, values.top_k, values.seed) == (7, 0.0, 0.9, 40, 11)
    assert values.given == ("max_tokens", "temperature", "top_p", "top_k", "seed", "stop") and not values.overridden


def test_force_samples_at_one_and_tells_what_it_replaced():
    values = made(Sampling(max_tokens=7, temperature=0.8, top_p=1.0, top_k=40, seed=3, stop=("a",)), "force")
    assert (values.temperature, values.top_p, values.top_k) == (1.0, 1.0, -1)
    assert values.overridden == ("temperature", "top_k")
    assert (values.max_tokens, values.seed, values.stop) == (7, 3, ("a",))
    assert made(Sampling(temperature=1.0, top_p=1.0, top_k=0), "force").overridden == ()


def test_top_k_can_be_switched_off_in_two_ways():
    assert made(Sampling(top_k=0)).top_k == made(Sampling(top_k=-1)).top_k == -1
    assert made(Sampling(top_k=2**40)).top_k == 2**31 - 1


def test_seeds_are_folded_to_what_gateways_take():
    for seed in (0, 2**31 - 1):
        assert made(Sampling(seed=seed)).seed == seed
    for seed in (-1, -(2**63), 2**63 - 1, 2**31):
        folded = made(Sampling(seed=seed)).seed
        assert folded is not None and 0 <= folded < 2**31 and folded == made(Sampling(seed=seed)).seed


def test_max_tokens_fits_the_room():
    assert made(Sampling(max_tokens=64_000), room=100).max_tokens == 100
    assert made(Sampling(), room=100).max_tokens == 100
    assert made(Sampling(max_tokens=99), room=100).max_tokens == 99


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        (Sampling(temperature=-0.01), "temperature"),
        (Sampling(temperature=2.01), "temperature"),
        (Sampling(temperature=math.inf), "temperature"),
        (Sampling(temperature=math.nan), "temperature"),
        (Sampling(top_p=0.0), "top_p"),
        (Sampling(top_p=1.01), "top_p"),
        (Sampling(top_p=math.nan), "top_p"),
        (Sampling(top_k=-2), "top_k"),
        (Sampling(max_tokens=0), "max_tokens"),
        (Sampling(max_tokens=-5), "max_tokens"),
        (Sampling(seed=2**63), "seed"),
        (Sampling(stop=("ok", "")), "stop"),
        (Sampling(stop=("x" * 1001,)), "stop"),
        (Sampling(stop=("x",) * 65), "stop"),
    ],
)
def test_what_is_out_of_range_is_named(wrong, param):
    with pytest.raises(RefusedError) as caught:
        checked(wrong)
    assert caught.value.kind == "request" and caught.value.param == param and f"'{param}'" in caught.value.message


@given(
    st.builds(
        Sampling,
        max_tokens=st.none() | st.integers(-(2**53), 2**53),
        temperature=st.none() | st.floats(),
        top_p=st.none() | st.floats(),
        top_k=st.none() | st.integers(-(2**53), 2**53),
        seed=st.none() | st.integers(-(2**64), 2**64),
    ),
    st.sampled_from(["agent", "force"]),
    st.none() | st.integers(1, 10**6),
)
def test_whatever_is_asked_is_refused_or_can_be_sampled(sampling, mode, room):
    try:
        values = made(sampling, mode, room)
    except RefusedError:
        return
    assert 1 <= values.max_tokens <= (room or 2**31 - 1) and 0 <= values.temperature <= 2 and 0 < values.top_p <= 1
    assert values.top_k == -1 or 1 <= values.top_k < 2**31
    assert values.seed is None or 0 <= values.seed < 2**31


async def test_each_call_records_what_it_was_sampled_with(tmp_path):
    stage = Stage(tmp_path, sampling="force", max_tokens=50)
    try:
        request = ChatRequest(
            dialect="chat",
            messages=[user("a")],
            sampling=Sampling(temperature=0.7, seed=2**40 + 5),
            neutralised=["user", "metadata"],
        )
        await (await stage.calls.begin(request, b"d")).reply()
        params = stage.sampler.asked[0].params
        assert (params.temperature, params.top_p, params.top_k, params.seed, params.max_tokens) == (1, 1, -1, 5, 50)
        assert params.stop == stage.service.renderer.sampling_stop()
        (call,) = stage.file()
        assert (call.intent.temperature, call.intent.seed, call.intent.max_tokens) == (1.0, 5, 50)
        assert call.intent.neutralised == ["user", "metadata", "temperature"]
        assert call.intent.fields_given == ["temperature", "seed"]
        assert (stage.figures.temperature_low, stage.figures.temperature_high) == (1.0, 1.0)
    finally:
        await stage.close()


async def test_the_range_of_temperatures_is_known(tmp_path):
    stage = Stage(tmp_path)
    try:
        for number, temperature in enumerate((0.8, 1.0, 0.2)):
            await stage.ask([user(str(number))], temperature=temperature)
        assert (stage.figures.temperature_low, stage.figures.temperature_high) == (0.2, 1.0)
    finally:
        await stage.close()
