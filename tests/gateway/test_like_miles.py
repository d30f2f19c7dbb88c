"""`--like miles`: what the Miles gateway refuses, forgets and closes, and how the installed SDK fares with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from raw_tinker import LORA, RawTinker

from console.gateway.embedded.strict import SDK_0_26, complaint
from console.gateway.embedded.wire import CreateModel, OptimStep, Sample

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.conftest import Served


@pytest.fixture(scope="module")
def miles(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway like Miles, with room for more than one model."""
    from tests.gateway.conftest import serve

    yield from serve(tiny_model, tmp_path_factory.mktemp("miles"), "--like", "miles", "--max-models", "40")


@pytest.fixture
def raw(miles: Served) -> RawTinker:
    return RawTinker(miles.url, "tml-miles", "tiny")


def test_the_table_has_what_the_installed_sdk_had_then() -> None:
    """Nothing in it is unknown to the installed SDK, and what that one has beside it is what came later."""
    from tinker import types
    from tinker.types.create_sampling_session_request import CreateSamplingSessionRequest
    from tinker.types.save_weights_request import SaveWeightsRequest

    models = {
        "CreateModel": types.CreateModelRequest,
        "CreateSamplingSession": CreateSamplingSessionRequest,
        "Sample": types.SampleRequest,
        "SaveWeights": SaveWeightsRequest,
        "SaveWeightsForSampler": types.SaveWeightsForSamplerRequest,
        "LoadWeights": types.LoadWeightsRequest,
    }
    later = {}
    for kind, rules in SDK_0_26.items():
        if kind is not OptimStep:
            known, now = {*rules.required, *rules.optional}, set(models[kind.__name__].model_fields)
            assert known <= now, kind
            later[kind.__name__] = now - known
    assert later == {
        "CreateModel": {"optimizer_config"},
        "CreateSamplingSession": set(),
        "Sample": {"topk_sample_logprobs", "prompt_alt_tokens_k", "target_prompt_logprobs", "prompt_logprobs_last_n"},
        "SaveWeights": {"user_metadata"},
        "SaveWeightsForSampler": {"kind", "user_metadata"},
        "LoadWeights": {"optimizer_config"},
    }


def test_complaints_are_in_the_models_words() -> None:
    body = {"session_id": "s", "model_seq_id": 0, "base_model": "m", "lora_config": LORA}
    assert complaint(CreateModel, body) is None
    assert complaint(CreateModel, body | {"lora_config": None}) is None
    assert complaint(CreateModel, body | {"x": 1}) == "x: Extra inputs are not permitted"
    assert complaint(CreateModel, {"session_id": "s", "x": 1}) == "model_seq_id: Field required"
    assert complaint(CreateModel, body | {"lora_config": {}}) == "lora_config.rank: Field required"
    assert complaint(CreateModel, body | {"lora_config": LORA | {"y": 1}}).startswith("lora_config.y: Extra")
    assert complaint(Sample, {"prompt": [], "sampling_params": {}}) == "prompt: Input should be a valid dictionary"
    assert complaint(CreateModel, []) == "request: Input should be a valid dictionary"


def test_the_installed_sdk_is_refused_untranslated(miles: Served) -> None:
    import tinker
    from tinker import types

    service = tinker.ServiceClient(base_url=miles.url, api_key="tml-sdk")
    (served,) = (
        tinker.RestClient(base_url=miles.url, api_key="tml-sdk").get_server_capabilities().result().supported_models
    )
    assert (served.model_name, served.max_context_length, served.trainable) == ("tiny", None, True)
    with pytest.raises(tinker.BadRequestError, match="optimizer_config: Extra inputs are not permitted"):
        service.create_lora_training_client("tiny", rank=4).result()
    with pytest.raises(tinker.BadRequestError, match="missing command envelope field 'model_id'"):
        service.create_training_client_from_state_with_optimizer("tinker://model-x/weights/y").result()
    sampler = service.create_sampling_client(base_model="tiny").result()
    with pytest.raises(tinker.BadRequestError, match="topk_sample_logprobs: Extra inputs"):
        sampler.sample(types.ModelInput.from_ints([1, 2]), 1, types.SamplingParams(max_tokens=2)).result()
    with pytest.raises(tinker.NotFoundError):
        service.close("success").result()


def test_the_older_sdks_bodies_train_save_sample_and_resume(raw: RawTinker) -> None:
    session = raw.session()
    model = raw.create(session)
    assert model.startswith("model-") and session not in model  # a client cannot compute it
    assert isinstance(raw.result(raw.train(model, 1)), bytes)
    assert raw.result(raw.step(model, 2))["metrics"]["optimizer_steps"] == 1
    snapshot = raw.ok("save_weights_for_sampler", model_id=model, seq_id=3, sampling_session_seq_id=0)
    sampler = raw.result(snapshot)["sampling_session_id"]
    promise = raw.ok("asample", **raw.sample_body(sampler, 0, num_samples=2))
    assert len(promise["sample_sequence_ids"]) == 2 and isinstance(raw.result(promise), bytes)
    saved = raw.result(raw.ok("save_weights", model_id=model, seq_id=4, path="half", overwrite=False))["path"]
    info = raw.ok("weights_info", tinker_path=saved)
    assert info == {"base_model": "tiny", "is_lora": True, "lora_rank": 4} | {
        f"train_{layer}": True for layer in ("attn", "mlp", "unembed")
    }
    second = raw.create(session, 1)
    loaded = raw.ok("load_weights", model_id=second, seq_id=1, path=saved, optimizer=True, type="load_weights")
    assert raw.result(loaded)["path"] == saved
    raw.result(raw.train(second, 2))
    assert raw.result(raw.step(second, 3))["metrics"]["optimizer_steps"] == 2
    repeated = raw.ok("create_model", **raw.create_body(session, 1))
    assert repeated["model_id"] == second


def test_a_model_is_refused_by_what_the_server_trains(raw: RawTinker) -> None:
    session = raw.session()

    def create(**lora: Any) -> str:
        return raw.refused("create_model", 400, **raw.create_body(session, **lora))

    assert create(rank=17) == "lora_config.rank must be an integer in [1, 16], got 17"
    assert create(seed=1).startswith("lora_config.seed is not supported")
    assert "train_mlp=False conflicts with this gateway's adapter layout" in create(train_mlp=False)
    body = raw.create_body(session) | {"base_model": "big"}
    assert raw.refused("create_model", 400, **body) == "this gateway serves 'tiny', not 'big'"
    assert raw.refused("create_model", 400, **raw.create_body("session-x")).startswith("session 'session-x' is unknown")
    # An unknown session with a field that is too new: the field is what it complains of.
    newer = raw.create_body("session-x") | {"optimizer_config": {"type": "adamw"}}
    assert raw.refused("create_model", 400, **newer) == "optimizer_config: Extra inputs are not permitted"


def test_saves_that_it_does_not_offer_fail_in_their_turn_and_leave_the_model(raw: RawTinker) -> None:
    model = raw.create(raw.session())

    def fails(route: str, seq_id: int, **body: Any) -> str:
        problem = raw.result(raw.ok(route, model_id=model, seq_id=seq_id, **body))
        assert problem["category"] == "user"
        return problem["error"]

    why = "ttl_seconds is not supported: checkpoints on this gateway do not expire"
    assert fails("save_weights", 1, path="a", ttl_seconds=60) == why
    assert fails("save_weights_for_sampler", 2, path="a", ttl_seconds=60) == why
    assert fails("save_weights", 3, path="a", user_metadata={}) == "user_metadata: Extra inputs are not permitted"
    assert fails("save_weights_for_sampler", 4, kind="snapshot") == "kind: Extra inputs are not permitted"
    raw.result(raw.ok("save_weights", model_id=model, seq_id=5, path="a"))
    assert "exists" in fails("save_weights", 6, path="a")
    assert raw.result(raw.ok("save_weights", model_id=model, seq_id=7, path="a", overwrite=True))["path"]
    assert raw.refused("save_weights", 400, model_id=model) == "missing command envelope field 'seq_id'"


def test_a_failed_training_operation_closes_the_model(raw: RawTinker) -> None:
    session = raw.session()
    remedy = "; create a new model and restore from a checkpoint"
    sampler_only = raw.create(session, 0)
    exported = raw.result(raw.ok("save_weights_for_sampler", model_id=sampler_only, seq_id=1, path="x"))["path"]
    small = raw.create(session, 1, rank=2)
    rank_2 = raw.result(raw.ok("save_weights", model_id=small, seq_id=1, path="x"))["path"]
    cases: list[tuple[str, Any]] = [
        ("unknown loss_fn 'gspo'", lambda model: raw.train(model, 1, "gspo")),
        ("data has 1025 entries", lambda model: raw.train(model, 1, copies=1025)),
        ("optim_step has no gradient", lambda model: raw.step(model, 1)),
        ("adam_params: Field required", lambda model: raw.post("optim_step", model_id=model, seq_id=1)),
        (
            "cannot load sampler weights",
            lambda model: raw.post("load_weights", model_id=model, seq_id=1, path=exported, optimizer=False),
        ),
        (
            "saved with lora_rank=2; this model expects lora_rank=4",
            lambda model: raw.post("load_weights", model_id=model, seq_id=1, path=rank_2, optimizer=True),
        ),
        (
            "there is no checkpoint",
            lambda model: raw.post("load_weights", model_id=model, seq_id=1, path=rank_2 + "0", optimizer=True),
        ),
    ]
    for number, (why, act) in enumerate(cases, 2):
        model = raw.create(session, number)
        behind = raw.ok("save_weights", model_id=model, seq_id=3, path="never")  # 2 never comes
        problem = raw.result(act(model))
        assert problem["error"].startswith("model training failed (") and problem["error"].endswith(remedy), problem
        assert why in problem["error"] and problem["category"] == "user"
        assert f"{model} was unloaded: {problem['error']}" in raw.result(behind)["error"]
        gone = raw.refused("get_info", 400, model_id=model)
        assert gone.startswith(f"model {model!r} was unloaded: model training failed (") and gone.endswith(remedy)
        assert raw.train(model, 4).status_code == 400
    alive = raw.create(session, 90)  # the slots of the closed ones are free: there are 40
    assert isinstance(raw.result(raw.train(alive, 1)), bytes)


def test_tenants_keys_and_what_is_not_there(miles: Served, raw: RawTinker) -> None:
    nobody, other = RawTinker(miles.url, "", "tiny"), RawTinker(miles.url, "tml-other", "tiny")
    session = raw.session()
    model, sampler = raw.create(session), raw.sampler(session)
    promise = raw.ok("save_weights", model_id=model, seq_id=1, path="mine")
    path = raw.result(promise)["path"]
    # What it is, it tells anybody; anything else needs a key, and says so with 400.
    for open_route in ("healthz", "get_server_capabilities"):
        assert nobody.http.get("/" + open_route).status_code == 200
    assert nobody.ok("client/config") == nobody.ok("client/dynamic_config") == {}
    assert "API key" in nobody.refused("create_session", 400, tags=[])
    foreign = [
        other.post("session_heartbeat", session_id=session),
        other.post("get_info", model_id=model),
        other.train(model, 2),
        other.post("save_weights", model_id=model, seq_id=2, path="a"),
        other.post("retrieve_future", request_id=promise["request_id"]),
        other.post("asample", **other.sample_body(sampler, 1)),
        other.http.get(f"/samplers/{sampler}"),
        other.post("weights_info", tinker_path=path),
    ]
    assert [answer.status_code for answer in foreign] == [403] * len(foreign), [a.text for a in foreign]
    for route in ("training_runs", f"training_runs/{model}", "checkpoints", "sessions", f"sessions/{session}"):
        assert raw.http.get("/" + route).status_code == 404, route
    for route in (f"sessions/{session}/finish", "unload_model"):
        assert raw.post(route, model_id=model).status_code == 404, route
    assert raw.http.get("/engine_load").status_code == 200
    assert raw.post("retrieve_future", request_id="req-x").status_code == 410
    assert raw.post("session_heartbeat", session_id="session-x").status_code == 410
    limits = {
        "num_samples must be an integer in [1, 64]": {"num_samples": 65},
        "sampling_params.max_tokens is required": {"sampling_params": {"temperature": 1.0}},
        "topk_sample_logprobs: Extra inputs are not permitted": {"topk_sample_logprobs": 1},
    }
    for why, change in limits.items():
        assert raw.refused("asample", 400, **raw.sample_body(sampler, 2, **change)) == why
    assert isinstance(raw.result(raw.ok("asample", **raw.sample_body(sampler, 3, num_samples=64))), bytes)


def test_one_slot_whose_lease_only_heartbeats_renew_and_a_restart_that_forgets(
    tiny_model: Path, tmp_path: Path
) -> None:
    from tests.gateway.conftest import serve

    options = ["--like", "miles", "--lease", "4", "--max-rank", "4", "--train", "attn"]
    attn = {"train_mlp": False, "train_unembed": False}
    first = serve(tiny_model, tmp_path, *options)
    raw = RawTinker(next(first).url, "tml-one", "tiny")
    waiting = raw.session()
    assert "train_mlp=True conflicts" in raw.refused("create_model", 400, **raw.create_body(waiting))
    dead = raw.session()
    model = raw.create(dead, **attn)
    sampler = raw.sampler(dead)
    waiting = raw.session()
    body = raw.create_body(waiting, **attn)
    assert raw.refused("create_model", 400, **body) == "no free adapter slots (capacity 1)"
    deadline = time.monotonic() + 30
    while (answer := raw.post("create_model", **body)).status_code == 400:
        assert answer.json()["error"] == "no free adapter slots (capacity 1)" and time.monotonic() < deadline
        raw.ok("session_heartbeat", session_id=waiting)
        raw.post("get_info", model_id=model)  # renews nothing
        raw.post("asample", **raw.sample_body(sampler, 0))
        time.sleep(0.05)
    assert raw.refused("get_info", 400, model_id=model) == f"model {model!r} was unloaded: lease expired"
    assert raw.post("session_heartbeat", session_id=dead).status_code == 410
    model = raw.result(answer)["model_id"]
    raw.ok("session_heartbeat", session_id=waiting)
    raw.result(raw.train(model, 1))
    raw.result(raw.step(model, 2))
    promise = raw.ok("save_weights", model_id=model, seq_id=3, path="kept")
    path = raw.result(promise)["path"]
    served = first.gi_frame.f_locals["process"]
    served.kill()
    served.wait(10)
    with pytest.raises(httpx.ConnectError):
        raw.session()

    second = serve(tiny_model, tmp_path, *options)
    raw = RawTinker(next(second).url, "tml-one", "tiny")
    assert raw.post("session_heartbeat", session_id=waiting).status_code == 410
    assert raw.post("retrieve_future", request_id=promise["request_id"]).status_code == 410
    assert "unknown" in raw.refused("get_info", 400, model_id=model)
    model = raw.create(raw.session(), **attn)
    raw.result(raw.ok("load_weights", model_id=model, seq_id=1, path=path, optimizer=True))
    raw.result(raw.train(model, 2))
    assert raw.result(raw.step(model, 3))["metrics"]["optimizer_steps"] == 2
    for generator in (first, second):
        generator.close()
