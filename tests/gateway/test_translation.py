"""The installed SDK against gateways made for another one: refused as it is, taken when translated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
import tinker
from tinker import types
from tinker._client import AsyncTinker
from tinker.lib.public_interfaces import sampling_client
from tinker.lib.public_interfaces.service_client import ServiceClient

from console.errors import UsageError
from console.gateway import translation
from console.gateway.embedded.strict import SDK_0_26
from console.gateway.embedded.wire import (
    CreateModel,
    CreateSamplingSession,
    LoadWeights,
    OptimStep,
    Sample,
    SaveWeights,
    SaveWeightsForSampler,
)
from console.gateway.profiles import PROFILES
from console.gateway.refusals import explain
from console.gateway.seam import Seam
from console.gateway.translation import LATER_FIELDS, installed, without_later_fields

if TYPE_CHECKING:
    from tests.gateway.conftest import Served

KEY = "tml-translated"
GREEDY = types.SamplingParams(max_tokens=6, temperature=0.0, stop=[])
ADAM = types.AdamParams(learning_rate=5e-2)
PROMPT = types.ModelInput.from_ints([5, 6, 7, 8])


@pytest.fixture
def connect() -> Iterator[Any]:
    """Makes clients of the real SDK; they are closed afterwards."""
    made: list[tinker.ServiceClient] = []

    def make(gateway: Served) -> tinker.ServiceClient:
        made.append(tinker.ServiceClient(base_url=gateway.url, api_key=KEY))
        return made[-1]

    yield make
    for client in made:
        client.holder.close()


def datum(seed: int) -> types.Datum:
    tokens = [int(token) for token in np.random.default_rng(seed).integers(0, 250, 20)]
    arrays = {
        "target_tokens": np.array(tokens[1:]),
        "logprobs": np.full(19, -3.0, np.float32),
        "advantages": np.ones(19, np.float32),
    }
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={name: types.TensorData.from_numpy(array) for name, array in arrays.items()},
    )


def train(client: Any, steps: int) -> None:
    """PPO steps, as the cookbook takes them."""
    for seed in range(steps):
        future = client.forward_backward([datum(seed)], "ppo")
        client.optim_step(ADAM).result()
        assert np.isfinite(future.result().metrics["loss:sum"])


def greedy(client: Any, sampler: Any = None) -> list[float]:
    """Log-probs of a greedy sample from the client's weights, or of a sampler: they tell weights apart."""
    sampler = client.save_weights_and_get_sampling_client().result() if sampler is None else sampler
    answer = sampler.sample(PROMPT, num_samples=2, sampling_params=GREEDY).result()
    assert [len(one.tokens) for one in answer.sequences] == [6, 6]
    assert len({one.sequence_id for one in answer.sequences} - {""}) == 2
    return [float(value) for value in answer.sequences[0].logprobs]


def test_untranslated_the_first_call_is_refused(miles_gateway: Served, connect: Any) -> None:
    with pytest.raises(tinker.BadRequestError, match="optimizer_config: Extra inputs are not permitted") as caught:
        connect(miles_gateway).create_lora_training_client("tiny", rank=4).result()
    said = explain(caught.value)
    assert said is not None and said.exit_code == 2 and "console.gateway_profile=miles" in str(said)


async def test_translated_it_trains_saves_and_resumes_where_it_was(miles_gateway: Served, connect: Any) -> None:
    with installed(PROFILES["miles"]) as translated:
        assert translated.phrases == [
            translation.FIELDS_PHRASE, translation.METADATA_PHRASE, translation.LOAD_PHRASE,
        ]  # fmt: skip
        client = (
            connect(miles_gateway)
            .create_lora_training_client("tiny", rank=4, user_metadata={"renderer_name": "x"})
            .result()
        )
        fresh = greedy(client)
        train(client, 2)
        state = client.save_state("half", user_metadata={"a": "b"}).result().path
        named = client.save_weights_for_sampler("half").result().path
        half = greedy(client)
        assert half != fresh
        train(client, 1)
        straight = greedy(client)

        # Another engine, another session; the way in which the cookbook resumes.
        service = connect(miles_gateway)
        again = await service.create_training_client_from_state_with_optimizer_async(state, user_metadata={"r": "x"})
        assert greedy(again) == half
        train(again, 1)
        assert greedy(again) == straight, "the optimizer's state came along"

        weights = await service.create_training_client_from_state_async(state)
        assert greedy(weights) == half
        train(weights, 1)
        assert greedy(weights) != straight, "the optimizer began anew"
        assert again.get_info().lora_rank == weights.get_info().lora_rank == 4
        sampler = service.create_sampling_client(model_path=named).result()
        assert greedy(None, sampler) == half


async def test_skyrl_trains_and_resumes(skyrl_gateway: Served, connect: Any) -> None:
    client = connect(skyrl_gateway).create_lora_training_client("tiny", rank=4).result()
    sampler = client.save_weights_and_get_sampling_client().result()
    with pytest.raises(AssertionError, match="sample_sequence_ids"):
        sampler.sample(PROMPT, num_samples=2, sampling_params=GREEDY).result()
    with installed(PROFILES["skyrl"]) as translated:
        assert translated.phrases == [translation.LOAD_PHRASE, translation.SEQUENCES_PHRASE]
        train(client, 1)
        state, half = client.save_state("half").result().path, greedy(client)
        service = connect(skyrl_gateway)
        again = await service.create_training_client_from_state_with_optimizer_async(state)
        assert greedy(again) == half


def test_nothing_is_translated_for_gateways_of_today() -> None:
    before = (AsyncTinker._prepare_options, sampling_client._attach_sequence_ids)
    for name in ("hosted", "embedded"):
        with installed(PROFILES[name]) as translated:
            assert translated.phrases == []
            assert (AsyncTinker._prepare_options, sampling_client._attach_sequence_ids) == before


def test_what_the_other_generation_cannot_do_is_refused_here() -> None:
    assert without_later_fields("asample", {"num_samples": 2, "topk_sample_logprobs": 0}) == {"num_samples": 2}
    body = {"model_id": "m", "kind": "snapshot", "user_metadata": {"a": "b"}}
    assert without_later_fields("save_weights_for_sampler", body) == {"model_id": "m"}
    assert body["kind"] == "snapshot", "the caller's own is left alone: it is sent again on a retry"
    for route, name, value in [
        ("asample", "topk_sample_logprobs", 5),
        ("asample", "prompt_logprobs_last_n", 0),
        ("create_model", "optimizer_config", {"type": "dimuon", "version": 1}),
        ("save_weights_for_sampler", "kind", "inflight"),
        ("optim_step", "optimizer_params", {"type": "dimuon"}),
    ]:
        with pytest.raises(UsageError, match=rf"^{route}: .* has no {name}=") as caught:
            without_later_fields(route, {name: value})
        assert caught.value.exit_code == 2 and "\n" not in str(caught.value)


def test_a_sample_that_asks_for_more_is_refused_by_the_real_sdk(miles_gateway: Served, connect: Any) -> None:
    with installed(PROFILES["miles"]):
        sampler = connect(miles_gateway).create_sampling_client(base_model="tiny").result()
        with pytest.raises(UsageError, match="topk_sample_logprobs=3"):
            sampler.sample(PROMPT, num_samples=1, sampling_params=GREEDY, topk_sample_logprobs=3).result()


@pytest.mark.parametrize(
    ("route", "kind", "sent"),
    [
        ("create_model", CreateModel, types.CreateModelRequest),
        ("create_sampling_session", CreateSamplingSession, types.CreateSamplingSessionRequest),
        ("asample", Sample, types.SampleRequest),
        ("optim_step", OptimStep, types.OptimStepRequest),
        ("save_weights", SaveWeights, types.SaveWeightsRequest),
        ("save_weights_for_sampler", SaveWeightsForSampler, types.SaveWeightsForSamplerRequest),
        ("load_weights", LoadWeights, types.LoadWeightsRequest),
    ],
)
def test_every_field_of_the_installed_sdk_is_known(route: str, kind: type, sent: Any) -> None:
    """A new version of the SDK with a new field must be looked at before it meets a strict gateway."""
    rules = SDK_0_26[kind]
    names = set(sent.model_fields)
    if route == "optim_step":
        names = names - {"optim_params"} | {"adam_params", "optimizer_params"}
    known = {*rules.required, *rules.optional}
    assert names - known - LATER_FIELDS.get(route, {}).keys() == set()
    assert not LATER_FIELDS.get(route, {}).keys() & known


def test_another_sdk_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    before = AsyncTinker._prepare_options
    monkeypatch.setattr(tinker, "__version__", "0.39.2")
    with pytest.raises(UsageError, match=r"tinker 0\.39\.2 is installed.*install tinker~=0\.38\.0") as caught:
        installed(PROFILES["miles"])
    assert caught.value.exit_code == 2
    installed(PROFILES["embedded"]).undo()
    monkeypatch.undo()
    monkeypatch.delattr(ServiceClient, "_create_training_client_via_load_weights_submit")
    with pytest.raises(UsageError, match="lacks _create_training_client_via_load_weights_submit"):
        installed(PROFILES["miles"])
    assert AsyncTinker._prepare_options is before


class _Base:
    def speak(self, word: str) -> str:
        return word


class _Heir(_Base):
    pass


def _around(mark: str) -> Any:
    return lambda before: lambda self, word: mark + before(self, word) + mark


@pytest.mark.parametrize("order", ["first the outer", "first the inner"])
def test_seams_are_undone_in_any_order(order: str) -> None:
    inner, outer = Seam(), Seam()
    inner.wrap(_Heir, "speak", _around("-"))
    outer.wrap(_Heir, "speak", _around("="))
    assert _Heir().speak("a") == "=-a-="
    first, last = (outer, inner) if order == "first the outer" else (inner, outer)
    first.undo()
    assert _Heir().speak("a") == ("-a-" if first is outer else "=a=")
    first.undo()
    last.undo()
    assert _Heir().speak("a") == "a" and "speak" not in vars(_Heir)
    with pytest.raises(AttributeError):
        inner.wrap(_Heir, "sing", _around("-"))


def test_the_profile_is_an_event() -> None:
    event = msgspec.structs.replace(PROFILES["miles"], max_rank=16, context_window=65529).event("m", ["a"])
    assert (event.profile, event.sdk, event.translated, event.context_window) == ("miles", "0.26", ["a"], 65529)
    assert (event.max_rank, event.expiring, event.lease) == (16, False, 300.0)
