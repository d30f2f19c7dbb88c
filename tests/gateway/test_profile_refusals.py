"""What the real SDK raises when a gateway refuses, as one line about an option with its remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import tinker
from tinker import types

from console.gateway.profiles import PROFILES
from console.gateway.refusals import explain
from console.gateway.translation import installed

if TYPE_CHECKING:
    from tests.gateway.conftest import Served

KEY = "tml-refused"


@pytest.fixture(scope="module")
def service(miles_gateway: Served) -> Iterator[Any]:
    """The real SDK, translated, at a gateway like Miles."""
    with installed(PROFILES["miles"]):
        client = tinker.ServiceClient(base_url=miles_gateway.url, api_key=KEY)
        yield client
        client.holder.close()


@pytest.fixture(scope="module")
def model(service: Any) -> Any:
    """A model on it."""
    return service.create_lora_training_client("tiny", rank=4).result()


def _train_gspo(service: Any) -> None:
    values = {"target_tokens": [2, 3], "logprobs": [-1.0, -1.0], "advantages": [1.0, 1.0]}
    kinds = {"target_tokens": "int64", "logprobs": "float32", "advantages": "float32"}
    datum = types.Datum(
        model_input=types.ModelInput.from_ints([1, 2]),
        loss_fn_inputs={n: types.TensorData(data=v, dtype=kinds[n], shape=[2]) for n, v in values.items()},  # type: ignore[arg-type]
    )
    service.create_lora_training_client("tiny", rank=4).result().forward_backward([datum], "gspo").result()


@pytest.mark.parametrize(
    ("act", "line"),
    [
        (
            lambda service, model: service.create_lora_training_client("tiny", rank=32).result(),
            "config.lora_rank=32: this gateway's adapters have a rank of 16 at most; set config.lora_rank=16, or start "
            "the gateway with a larger --lora-rank",
        ),
        (
            lambda service, model: service.create_lora_training_client("tiny", rank=4, train_unembed=False).result(),
            "lora_config.train_unembed: this gateway trains other layers than the cookbook, which asks for attn, mlp "
            "and unembed; start it with --target-modules attn,mlp,unembed",
        ),
        (
            lambda service, model: service.create_lora_training_client("big", rank=4).result(),
            "config.model_name=big: this gateway serves tiny; set that, or start it for the other",
        ),
        (
            lambda service, model: model.save_state("kept", ttl_seconds=3600).result(),
            "config.ttl_seconds: checkpoints of this gateway do not expire; set config.ttl_seconds=None",
        ),
        (
            lambda service, model: _train_gspo(service),
            "config.loss_fn=gspo: this gateway does not train it; it knows ",
        ),
        (
            lambda service, model: service.create_lora_training_client("tiny", rank=4, seed=1).result(),
            "lora seed: this gateway takes none; leave it out",
        ),
    ],
)
def test_what_is_refused_is_said_with_the_remedy(
    service: Any, model: Any, act: Callable[[Any, Any], object], line: str
) -> None:
    with pytest.raises(tinker.TinkerError) as caught:
        act(service, model)
    said = explain(caught.value)
    assert said is not None and said.exit_code == 2
    assert str(said).startswith(line) and "\n" not in str(said) and KEY not in str(said)
    wrapped = RuntimeError("training failed")
    wrapped.__cause__ = caught.value
    assert str(explain(wrapped)) == str(said)


def test_weights_that_are_there_already(model: Any) -> None:
    model.save_weights_for_sampler("once").result()
    model.save_state("once").result()
    for again in (model.save_weights_for_sampler, model.save_state):
        with pytest.raises(tinker.TinkerError) as caught:
            again("once").result()
        assert str(explain(caught.value)).startswith("config.log_path: the gateway has weights of that name already")


def test_somebody_elses_checkpoint(service: Any, model: Any, miles_gateway: Served) -> None:
    path = model.save_state("mine").result().path
    other = tinker.ServiceClient(base_url=miles_gateway.url, api_key="tml-somebody-else")
    with pytest.raises(tinker.TinkerError) as caught:
        other.create_training_client_from_state(path).result()
    other.holder.close()
    assert str(explain(caught.value)).startswith("TINKER_API_KEY: the checkpoint or model belongs to another key")


@pytest.mark.parametrize(
    ("refusal", "line"),
    [
        ("this gateway serves 'a/b', not 'c/d'", "config.model_name=c/d: this gateway serves a/b;"),
        ("sampler weights '000004' already exist; save under a new name", "config.log_path: "),
        ("checkpoint '000004' already exists; pass overwrite=True to replace it", "config.log_path: "),
        ("checkpoint 'tinker://m/weights/a' does not belong to this tenant", "TINKER_API_KEY: "),
        ("missing API key: send it in the X-API-Key header", "TINKER_API_KEY: "),
        ("missing command envelope field 'model_id'", "console.gateway_profile: "),
        ("optimizer_config: Extra inputs are not permitted", "console.gateway_profile: "),
        ("('optimizer_config',): Extra inputs are not permitted", "console.gateway_profile: "),
        ("user_metadata is not supported by this gateway", "console.gateway_profile: "),
        ("datum 3: 70000 tokens exceeds 65536", "console.context_window: "),
        (
            "checkpoint 'tinker://m/weights/a' was saved with lora_rank=8; this model expects lora_rank=16",
            "config.lora_rank: the checkpoint was saved with lora_rank=8, and the gateway now has 16;",
        ),
    ],
)
def test_the_words_of_miles(refusal: str, line: str) -> None:
    said = str(explain(tinker.TinkerError(f"Error code: 400 - {{'error': \"{refusal}\"}}")))
    assert said.startswith(line) and "\n" not in said


def test_a_key_that_the_sdk_refuses_itself(miles_gateway: Served) -> None:
    with pytest.raises(tinker.TinkerError) as caught:
        tinker.ServiceClient(base_url=miles_gateway.url, api_key="sk-secret").holder  # noqa: B018
    said = str(explain(caught.value))
    assert said.startswith("TINKER_API_KEY: ") and "sk-secret" not in said


def test_what_is_no_refusal_is_not_explained() -> None:
    assert explain(ValueError("ttl_seconds is not supported")) is None, "not the SDK's"
    assert explain(tinker.TinkerError("the moon is full")) is None
    assert explain(tinker.TinkerError("rank " * 100_000 + "lora_config.rank must be an integer in [1, 1]")) is None
    loop = tinker.TinkerError("round")
    loop.__cause__ = other = RuntimeError("and round")
    other.__cause__ = loop
    assert explain(loop) is None


def test_a_hostile_refusal_stays_one_short_line() -> None:
    text = f"this gateway serves '\x1b]0;owned\x07{'x' * 180}', not 'a\nb'"
    said = str(explain(tinker.TinkerError(text)))
    assert said.startswith("config.model_name=a") and "\x1b" not in said and "\n" not in said and len(said) < 300
