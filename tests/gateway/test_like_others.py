"""`--like hosted` and `--like skyrl`, and the options that go with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from raw_tinker import RawTinker

from console.gateway.embedded.likeness import LIKENESSES
from console.gateway.embedded.serve import main

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.conftest import Served


@pytest.fixture(scope="module")
def skyrl(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    from tests.gateway.conftest import serve

    yield from serve(tiny_model, tmp_path_factory.mktemp("skyrl"), "--like", "skyrl", "--poll", "0.3")


@pytest.fixture(scope="module")
def hosted(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    from tests.gateway.conftest import serve

    yield from serve(tiny_model, tmp_path_factory.mktemp("hosted"), "--like", "hosted", "--max-rank", "8")


def test_hosted_wants_a_key_takes_ttl_and_lists(hosted: Served) -> None:
    import tinker

    nobody, raw = RawTinker(hosted.url, "", "tiny"), RawTinker(hosted.url, "tml-hosted", "tiny")
    assert nobody.http.get("/get_server_capabilities").status_code == 401
    assert nobody.post("client/config").status_code == 401
    (model,) = raw.http.get("/get_server_capabilities").json()["supported_models"]
    assert model["max_context_length"] == 512
    assert raw.http.get("/engine_load").status_code == 404
    assert raw.http.get("/training_runs").status_code == 200
    service = tinker.ServiceClient(base_url=hosted.url, api_key="tml-hosted")
    with pytest.raises(tinker.BadRequestError, match=r"in \[1, 8\], got 32"):
        service.create_lora_training_client("tiny", rank=32).result()
    client = service.create_lora_training_client("tiny", rank=4, seed=3, train_unembed=False).result()
    path = client.save_state("a", ttl_seconds=3600).result().path
    (listed,) = (
        tinker.RestClient(base_url=hosted.url, api_key="tml-hosted").list_user_checkpoints().result().checkpoints
    )
    assert listed.tinker_path == path and listed.expires_at is not None
    resumed = service.create_training_client_from_state_with_optimizer(path).result()
    assert resumed.model_id.startswith("session-")
    service.close("success").result()


def test_skyrl_with_the_installed_sdk(skyrl: Served) -> None:
    """It trains and saves; it can neither sample nor resume."""
    import tinker
    from tinker import types

    service = tinker.ServiceClient(base_url=skyrl.url, api_key="tml-sky")
    client = service.create_lora_training_client("tiny", rank=4).result()
    path = client.save_state("a", ttl_seconds=1).result().path
    rest = tinker.RestClient(base_url=skyrl.url, api_key="tml-sky")
    info = rest.get_weights_info_by_tinker_path(path).result()
    assert info.lora_rank == 4 and info.train_unembed is None
    with pytest.raises(tinker.UnprocessableEntityError, match="model_id"):
        service.create_training_client_from_state_with_optimizer(path).result()
    sampler = client.save_weights_and_get_sampling_client().result()
    with pytest.raises(AssertionError, match="sample_sequence_ids"):
        sampler.sample(types.ModelInput.from_ints([1, 2]), 1, types.SamplingParams(max_tokens=2)).result()
    with pytest.raises(ValueError, match="exists"):  # a failed promise is an HTTP 400 there
        client.save_state("a").result()
    with pytest.raises(tinker.NotFoundError):
        rest.list_user_checkpoints().result()


def test_skyrl_knows_no_tenants_and_says_little(skyrl: Served) -> None:
    nobody = RawTinker(skyrl.url, "", "tiny")
    assert nobody.http.get("/get_server_capabilities").json() == {"supported_models": [{"model_name": "tiny"}]}
    assert nobody.post("client/dynamic_config").status_code == 404
    session = nobody.session()
    model = nobody.create(session)
    saved = nobody.result(nobody.ok("save_weights", model_id=model, seq_id=1, path="a", ttl_seconds=1))["path"]
    other = RawTinker(skyrl.url, "tml-else", "tiny")
    assert other.ok("get_info", model_id=model)["model_id"] == model
    (run,) = [
        run for run in other.http.get("/training_runs").json()["training_runs"] if run["training_run_id"] == model
    ]
    assert run["last_checkpoint"]["tinker_path"] == saved and run["last_checkpoint"]["expires_at"] is None
    (meta,) = skyrl.checkpoints.glob(f"*/{model}/weights/a/adapter_config.json")
    assert "lm_head" not in meta.read_text()
    late = other.refused("load_weights", 400, model_id=model, seq_id=2, path=saved, optimizer=True)
    assert late == "LoadWeights is not permitted with seq_id 2"
    fresh = other.create(other.session())
    other.result(other.ok("load_weights", model_id=fresh, seq_id=1, path=saved, optimizer=True))
    sampler = other.sampler(session)
    assert "max_tokens" in other.refused("asample", 400, **other.sample_body(sampler, 0, sampling_params={}))
    assert other.refused("asample", 422, **other.sample_body(sampler, 0, num_samples="x")).startswith("invalid request")
    assert other.post("retrieve_future", request_id="req-x").status_code == 404
    assert other.post("session_heartbeat", session_id="session_x").status_code == 404
    nobody.ok("unload_model", model_id=model)
    assert "unloaded" in nobody.refused("get_info", 404, model_id=model)
    # What waits for an operation that has not come: the poll ends with 408.
    waiting = nobody.ok("save_weights", model_id=fresh, seq_id=3, path="b")
    assert nobody.post("retrieve_future", request_id=waiting["request_id"]).status_code == 408


@pytest.mark.parametrize(
    "arguments",
    [["--like", "cloud"], ["--train", "attn,head"], ["--max-rank", "0"], ["--poll", "-1"], ["--train", "attn"]],
)
def test_bad_options_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and arguments[0] in err


def test_help_names_every_likeness(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(f"{name}" in text for name in LIKENESSES)
