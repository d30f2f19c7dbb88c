"""What the gateway refuses and how: other tenants, bad bodies, repeats, cancellation, full queues, dead sessions."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
import zstandard

from console.gateway.embedded.futures import Futures
from console.gateway.embedded.problems import RequestProblem
from console.gateway.embedded.sessions import OperationQueue

if TYPE_CHECKING:
    from tests.gateway.conftest import Served

_PROMPT = {"chunks": [{"type": "encoded_text", "tokens": list(range(20))}]}
_ADAM = {"learning_rate": 1e-3}


class Raw:
    """The protocol by hand, for one API key."""

    def __init__(self, gateway: Served, key: str) -> None:
        self.http = gateway.http(key)
        self._models = 0

    def post(self, route: str, **body: Any) -> httpx.Response:
        return self.http.post("/" + route, json=body)

    def ok(self, route: str, **body: Any) -> dict[str, Any]:
        response = self.post(route, **body)
        assert response.status_code == 200, response.text
        return response.json()

    def result(self, promise: dict[str, Any]) -> httpx.Response:
        return self.post("retrieve_future", request_id=promise["request_id"])

    def session(self) -> str:
        return self.ok("create_session", tags=[], sdk_version="0.38.0")["session_id"]

    def model(self, session: str, seq: int = 0) -> str:
        promise = self.ok(
            "create_model", session_id=session, model_seq_id=seq, base_model="tiny", lora_config={"rank": 2}
        )
        assert self.result(promise).json()["model_id"] == promise["model_id"] == f"{session}:train:{seq}"
        return promise["model_id"]

    def sampler(self, session: str, seq: int = 0) -> str:
        body = {"session_id": session, "sampling_session_seq_id": seq, "base_model": "tiny"}
        return self.ok("create_sampling_session", **body)["sampling_session_id"]

    def sample(self, sampler: str, seq: int, **more: Any) -> httpx.Response:
        body = {"sampling_session_id": sampler, "seq_id": seq, "prompt": _PROMPT, **more}
        return self.post("asample", **{"sampling_params": {"max_tokens": 4}, **body})


def _until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("it never came true")


def _train_body(model_id: str, seq_id: int, **changes: Any) -> bytes:
    from tinker.proto import tinker_public_pb2 as messages

    message = messages.ForwardBackwardRequest(model_id=model_id, seq_id=seq_id, loss_fn=changes.get("loss", "ppo"))
    arrays = {
        "target_tokens": np.arange(1, 9, dtype=np.int64),
        "logprobs": np.full(8, -2, np.float32),
        "advantages": np.ones(8, np.float32),
    } | changes.get("inputs", {})
    datum = message.data.add()
    datum.model_input.add().encoded_text.tokens = changes.get("ids", np.arange(8, dtype=np.int32)).tobytes()
    for name, array in arrays.items():
        if array is not None:
            dtype = messages.DTYPE_INT64 if array.dtype == np.int64 else messages.DTYPE_FLOAT32
            datum.loss_fn_inputs[name].CopyFrom(messages.Tensor(dense=array.tobytes(), dtype=dtype, shape=array.shape))
    for name, value in changes.get("config", {}).items():
        message.loss_fn_config[name] = value
    for _ in range(changes.get("copies", 0)):
        message.data.add().CopyFrom(datum)
    return message.SerializeToString()


def _train(raw: Raw, body: bytes, **headers: str) -> httpx.Response:
    return raw.http.post(
        "/forward_backward", content=body, headers={"content-type": "application/x-protobuf", **headers}
    )


@pytest.fixture(scope="module")
def one(tiny_gateway: Served) -> Raw:
    return Raw(tiny_gateway, "tml-raw-one")


@pytest.fixture(scope="module")
def own(one: Raw) -> tuple[str, str, str]:
    """A session, a model and a sampler."""
    session = one.session()
    return session, one.model(session), one.sampler(session)


def test_no_key_is_401_and_health_needs_none(tiny_gateway: Served) -> None:
    base = tiny_gateway.url
    assert httpx.get(f"{base}/healthz").json() == httpx.get(f"{base}/api/v1/healthz").json() == {"status": "ok"}
    assert httpx.get(f"{base}/api/v1/get_server_capabilities").status_code == 401
    assert httpx.post(f"{base}/api/v1/create_session", json={"tags": []}).status_code == 401
    bearer = httpx.get(f"{base}/api/v1/get_server_capabilities", headers={"Authorization": "Bearer tml-x"})
    (model,) = bearer.json()["supported_models"]
    assert model == {"model_name": "tiny", "max_context_length": 512, "trainable": True, "sampleable": True}


def test_another_tenant_gets_403(tiny_gateway: Served, one: Raw, own: tuple[str, str, str]) -> None:
    session, model, sampler = own
    promise = one.ok("save_weights", model_id=model, seq_id=1, path="mine")
    path = one.result(promise).json()["path"]
    two = Raw(tiny_gateway, "tml-raw-two")
    mine = two.session()
    answers = [
        two.post("session_heartbeat", session_id=session),
        two.post("create_model", session_id=session, model_seq_id=1, base_model="tiny"),
        two.post("get_info", model_id=model),
        two.post("optim_step", model_id=model, seq_id=1, adam_params=_ADAM),
        _train(two, _train_body(model, 1)),
        two.post("unload_model", model_id=model),
        two.sample(sampler, 1),
        two.http.get(f"/samplers/{sampler}"),
        two.http.get(f"/sessions/{session}"),
        two.post(f"sessions/{session}/finish"),
        two.result(promise),
        two.post("cancel_future", request_id=promise["request_id"]),
        two.post("weights_info", tinker_path=path),
        two.post("load_weights", session_id=mine, model_seq_id=0, path=path, optimizer=True),
        two.post("create_sampling_session", session_id=mine, sampling_session_seq_id=0, model_path=path),
        two.http.get(f"/training_runs/{model}"),
        two.http.delete(f"/training_runs/{model}/checkpoints/weights/mine"),
    ]
    assert [answer.status_code for answer in answers] == [403] * len(answers), [a.text for a in answers]
    assert two.http.get("/checkpoints").json()["checkpoints"] == []
    assert two.http.get("/training_runs").json()["training_runs"] == []
    assert two.http.get("/sessions").json()["sessions"] == [mine]
    # With the other key as access token the checkpoint may be read.
    shared = two.ok("load_weights", session_id=mine, model_seq_id=0, path=path, weights_access_token="tml-raw-one")
    assert two.result(shared).json()["type"] == "load_weights"


def test_bad_bodies_are_told_apart_by_field(one: Raw, own: tuple[str, str, str]) -> None:
    session, model, sampler = own
    good = {"sampling_session_id": sampler, "seq_id": 900, "prompt": _PROMPT}

    def chunk(**body: Any) -> dict[str, Any]:
        return {"prompt": {"chunks": [body]}}

    sample: list[tuple[dict[str, Any], str]] = [
        ({"seq_id": "one"}, "$.seq_id"),
        ({"seq_id": -1}, "$.seq_id"),
        ({"num_samples": 0}, "$.num_samples"),
        ({"num_samples": 1000}, "$.num_samples"),
        ({"prompt": {"chunks": []}}, "prompt has no tokens"),
        (chunk(type="image", data="x"), "prompt.chunks[0] is 'image'"),
        (chunk(tokens=[1, "2"]), "$.prompt.chunks[0].tokens[1]"),
        (chunk(tokens=[300]), "outside the vocabulary of 300"),
        (chunk(tokens=[-1]), "outside the vocabulary"),
        (chunk(tokens=[10**12]), "outside the vocabulary"),
        (chunk(tokens=[1] * 512), "512 prompt tokens + 1 max_tokens > 512"),
        ({"sampling_params": {"max_tokens": 0}}, "$.sampling_params.max_tokens"),
        ({"sampling_params": {"temperature": -1}}, "$.sampling_params.temperature"),
        ({"sampling_params": {"top_p": 0}}, "$.sampling_params.top_p"),
        ({"sampling_params": {"stop": [""]}}, "sampling_params.stop"),
        ({"sampling_params": {"stop": 3}}, "$.sampling_params.stop"),
        ({"sampling_params": {"seed": 1.5}}, "$.sampling_params.seed"),
        ({"prompt_logprobs_last_n": 3}, "prompt_logprobs_last_n"),
        ({"prompt_alt_tokens_k": 3}, "prompt_alt_tokens_k"),
        ({"sampling_session_id": None}, "$.sampling_session_id"),
    ]
    for change, complaint in sample:
        answer = one.post("asample", **(good | change))
        assert answer.status_code == 400 and complaint in answer.json()["detail"], (change, answer.text)
    others: list[tuple[str, dict[str, Any], str]] = [
        ("create_model", {"session_id": session, "model_seq_id": 5}, "base_model"),
        ("create_model", {"session_id": session, "model_seq_id": 5, "base_model": "big"}, "serves 'tiny'"),
        (
            "create_model",
            {"session_id": session, "model_seq_id": 5, "base_model": "tiny", "lora_config": {"rank": 0}},
            "$.lora_config.rank",
        ),
        (
            "create_model",
            {"session_id": session, "model_seq_id": 5, "base_model": "tiny", "optimizer_config": {"type": "dimuon"}},
            "optimizer 'dimuon'",
        ),
        ("optim_step", {"model_id": model, "seq_id": 50}, "adam_params"),
        ("optim_step", {"model_id": model, "seq_id": 50, "adam_params": {"beta1": 1.0}}, "$.adam_params.beta1"),
        ("save_weights", {"model_id": model, "seq_id": 50, "path": "../../etc"}, "not a checkpoint name"),
        ("save_weights", {"model_id": model, "seq_id": 50, "path": ".hidden"}, "not a checkpoint name"),
        ("save_weights_for_sampler", {"model_id": model, "seq_id": 50, "kind": "inflight"}, "kind 'inflight'"),
        ("weights_info", {"tinker_path": "tinker://../weights/x"}, "not a path like"),
        ("load_weights", {"path": "/etc/passwd"}, "not a path like"),
    ]
    for route, body, complaint in others:
        answer = one.post(route, **body)
        assert answer.status_code == 400 and complaint in answer.json()["detail"], (route, body, answer.text)
    for body in (b"", b"{", b"[1,2]", b"\xff\xfe", b'{"a":' * 5000):
        answer = one.http.post("/asample", content=body)
        assert answer.status_code == 400, answer.text
    assert one.http.post("/create_session", content=b" " * 70_000).status_code == 413
    assert one.http.post("/no_such_thing").status_code == 404
    assert one.http.get("/asample").status_code == 405
    assert one.http.get("/training_runs?limit=many").status_code == 400


def test_bad_training_requests(one: Raw, own: tuple[str, str, str]) -> None:
    _, model, _ = own
    cases: list[tuple[dict[str, Any], str]] = [
        ({"loss": "stable_reinforce"}, "loss_fn 'stable_reinforce' is not supported"),
        ({"inputs": {"advantages": None}}, "data[0].loss_fn_inputs.advantages is missing"),
        ({"inputs": {"advantages": np.ones(7, np.float32)}}, "7 values for 8 tokens"),
        ({"inputs": {"advantages": np.array([np.nan] * 8, np.float32)}}, "loss_fn_inputs.advantages has a value"),
        ({"inputs": {"logprobs": np.ones((2, 4), np.float32)}}, "one-dimensional"),
        ({"inputs": {"target_tokens": np.full(8, 300)}}, "target_tokens has a token outside the vocabulary"),
        ({"ids": np.full(8, -1, np.int32)}, "model_input has a token outside"),
        ({"ids": np.zeros(0, np.int32)}, "model_input has 0 tokens"),
        ({"ids": np.zeros(512, np.int32)}, "model_input has 512 tokens"),
        ({"config": {"epsilon": 0.2}}, "loss_fn_config.epsilon is not an option of ppo"),
        ({"config": {"clip_low_threshold": float("nan")}}, "loss_fn_config.clip_low_threshold must be a number"),
        ({"loss": "gspo", "inputs": {"sequence_ratio_mask": np.ones(8, np.float32)}}, "required for gspo"),
        ({"copies": 1024}, "data has 1025 entries"),
    ]
    for changes, complaint in cases:
        answer = _train(one, _train_body(model, 60, **changes))
        assert answer.status_code == 400 and complaint in answer.json()["detail"], (changes, answer.text)
    assert _train(one, b"\xff" * 50).status_code == 400
    assert _train(one, b"not zstd", **{"content-encoding": "zstd"}).status_code == 400
    assert _train(one, b"x", **{"content-encoding": "gzip"}).status_code == 400
    bomb = zstandard.compress(b"\0" * (65 * 2**20))
    assert _train(one, bomb, **{"content-encoding": "zstd"}).status_code == 413
    assert _train(one, _train_body("nobody", 1)).status_code == 404


def test_random_bytes_never_break_it(tiny_gateway: Served, own: tuple[str, str, str]) -> None:
    """Mutated good requests to every route: an answer below 500, and a gateway that still works."""
    raw = Raw(tiny_gateway, "tml-raw-one")
    rng = np.random.default_rng(3)
    session, model, sampler = own
    bodies = [
        b'{"session_id":"%s","model_seq_id":3,"base_model":"tiny","lora_config":{"rank":2}}' % session.encode(),
        b'{"model_id":"%s","seq_id":70,"adam_params":{"learning_rate":0.1},"path":"tinker://a/weights/b"}'
        % model.encode(),
        b'{"sampling_session_id":"%s","seq_id":70,"prompt":{"chunks":[{"tokens":[1,2]}]}}' % sampler.encode(),
        _train_body(model, 71),
    ]
    routes = [
        "create_model",
        "optim_step",
        "load_weights",
        "asample",
        "forward_backward",
        "retrieve_future",
        "get_info",
    ]
    for _ in range(150):
        body = bytearray(bodies[rng.integers(len(bodies))])
        for _ in range(rng.integers(1, 4)):
            body[rng.integers(len(body))] = rng.integers(256)
        answer = raw.http.post("/" + routes[rng.integers(len(routes))], content=bytes(body))
        assert answer.status_code < 500, (bytes(body), answer.text)
    assert tiny_gateway.process.poll() is None


def test_unknown_things(one: Raw) -> None:
    assert one.post("session_heartbeat", session_id="session-x").status_code == 410
    assert one.post("create_model", session_id="session-x", model_seq_id=0, base_model="tiny").status_code == 404
    assert one.sample("session-x:sample:0", 0).status_code == 404
    assert one.post("retrieve_future", request_id="req-x").status_code == 410
    assert one.http.get("/training_runs/session-x:train:0").status_code == 404


def test_a_repeated_request_is_the_same_request(one: Raw, own: tuple[str, str, str]) -> None:
    session, _, sampler = own
    first = one.sample(sampler, 40, num_samples=2).json()
    assert len(first["sample_sequence_ids"]) == 2
    assert one.sample(sampler, 40, num_samples=2).json() == first
    assert one.sample(sampler, 41).json()["request_id"] != first["request_id"]
    body = one.result(first)
    assert body.headers["content-type"] == "application/x-protobuf" and one.result(first).content == body.content
    model = one.model(session, 30)
    again = one.ok("create_model", session_id=session, model_seq_id=30, base_model="tiny", lora_config={"rank": 2})
    assert again["model_id"] == model
    train = [_train(one, _train_body(model, 1)).json() for _ in range(2)]
    assert train[0] == train[1]
    step = [one.ok("optim_step", model_id=model, seq_id=2, adam_params=_ADAM) for _ in range(2)]
    assert step[0] == step[1]
    assert one.result(step[0]).json()["metrics"]["optimizer_steps"] == 1
    zipped = _train(one, zstandard.compress(_train_body(model, 3)), **{"content-encoding": "zstd"})
    assert one.result(zipped.json()).status_code == 200


def test_operations_run_in_the_order_of_their_numbers(one: Raw) -> None:
    model = one.model(one.session())
    step = one.ok("optim_step", model_id=model, seq_id=2, adam_params=_ADAM)
    save = one.ok("save_weights", model_id=model, seq_id=3, path="third")
    train = _train(one, _train_body(model, 1)).json()
    assert one.result(train).status_code == 200
    assert one.result(step).json()["metrics"]["optimizer_steps"] == 1
    assert one.result(save).json()["path"] == f"tinker://{model}/weights/third"
    late = one.post("optim_step", model_id=model, seq_id=0, adam_params=_ADAM)
    assert late.status_code == 400 and "in the past" in late.json()["detail"]


def test_cancel_frees_the_place(tiny_gateway: Served) -> None:
    raw = Raw(tiny_gateway, "tml-raw-cancel")
    sampler = raw.sampler(raw.session())
    promise = raw.sample(sampler, 0, num_samples=40, sampling_params={"max_tokens": 480, "stop": []}).json()

    def running() -> int:
        return raw.http.get("/engine_load").json()["engines"][0]["running_requests"]

    _until(running)
    assert raw.post("cancel_future", request_id=promise["request_id"]).status_code == 200
    assert raw.result(promise).json() == {"error": "cancelled by the client", "category": "user"}
    _until(lambda: running() == 0)
    assert raw.result(raw.sample(sampler, 1).json()).status_code == 200


def test_a_full_queue_answers_429(narrow_gateway: Served) -> None:
    raw = Raw(narrow_gateway, "tml-full")
    session = raw.session()
    sampler = raw.sampler(session)
    long = {"max_tokens": 490, "stop": []}
    accepted = []
    for seq in range(50):
        answer = raw.sample(sampler, seq, num_samples=2, sampling_params=long)
        if answer.status_code == 429:
            assert answer.headers["retry-after"] == "1" and "waiting to be sampled" in answer.json()["detail"]
            break
        accepted.append(answer.json())
    else:
        pytest.fail("the queue was never full")
    for promise in accepted:
        assert raw.result(promise).headers["content-type"] == "application/x-protobuf"
    assert raw.sample(sampler, 99).status_code == 200
    raw.post(f"sessions/{session}/finish")


def test_no_free_slot_until_a_session_finishes_or_dies(narrow_gateway: Served) -> None:
    raw = Raw(narrow_gateway, "tml-slots")
    first = raw.session()
    model = raw.model(first)
    second = raw.session()
    create = {"session_id": second, "model_seq_id": 0, "base_model": "tiny"}
    refused = raw.post("create_model", **create)
    assert refused.status_code == 400 and "no free adapter slots (capacity 1)" in refused.json()["detail"]
    assert raw.post(f"sessions/{first}/finish", reason={"type": "success"}).status_code == 204
    gone = raw.post("get_info", model_id=model)
    assert gone.status_code == 410 and "unloaded" in gone.json()["detail"]
    assert raw.post("session_heartbeat", session_id=first).status_code == 410
    assert raw.post("create_model", **create).status_code == 200
    # The second client dies: it says nothing more, its sampling ends, and its slot is free after the lease.
    sampler = raw.sampler(second)
    raw.post("session_heartbeat", session_id=second)
    long = {"num_samples": 2, "sampling_params": {"max_tokens": 480, "stop": []}}
    promises = [raw.sample(sampler, 0, **long).json()]
    _until(lambda: raw.http.get("/engine_load").json()["engines"][0]["queued_requests"] == 0)  # two may wait, no more
    promises.append(raw.sample(sampler, 1, **long).json())
    third = raw.session()
    fresh = {"session_id": third, "model_seq_id": 0, "base_model": "tiny"}
    _until(lambda: raw.post("create_model", **fresh).status_code == 200)
    dead = raw.post("session_heartbeat", session_id=second)
    assert dead.status_code == 410 and "lease expired" in dead.json()["detail"]
    assert raw.sample(sampler, 5).status_code == 410
    assert all(raw.result(promise).status_code == 200 for promise in promises)  # finished or failed, but settled


def test_a_heartbeat_keeps_a_session_alive(narrow_gateway: Served) -> None:
    raw = Raw(narrow_gateway, "tml-alive")
    session, dead = raw.session(), raw.session()

    def beat_until_other_died() -> bool:
        assert raw.post("session_heartbeat", session_id=session).status_code == 200
        # Asking for the list does not renew a lease.
        return dead not in raw.http.get("/sessions").json()["sessions"]

    _until(beat_until_other_died)


def test_a_stopped_gateway_does_not_take_the_time_from_its_sessions(narrow_gateway: Served) -> None:
    """Stopped for longer than the lease: the clients' heartbeats could not arrive, so nobody is dead."""
    raw = Raw(narrow_gateway, "tml-stopped")
    session = raw.session()
    narrow_gateway.process.send_signal(signal.SIGSTOP)
    time.sleep(2.5)
    narrow_gateway.process.send_signal(signal.SIGCONT)
    time.sleep(0.4)
    assert session in raw.http.get("/sessions").json()["sessions"]


def test_a_gap_fails_only_what_waits_behind_it() -> None:
    futures, operations, started = Futures(), OperationQueue(), []
    running, waiting, next_one = (futures.new("t", "x") for _ in range(3))
    operations.add(1, running, lambda: started.append(1))
    operations.add(3, waiting, lambda: started.append(3))
    operations.give_up_gap(futures, 60.0)
    assert not waiting.settled
    operations.give_up_gap(futures, 0.0)
    assert waiting.settled and waiting.problem is not None and not running.settled
    operations.add(4, next_one, lambda: started.append(4))
    assert started == [1, 4] and operations.known(3) is waiting


def test_results_are_dropped_before_memory_runs_out() -> None:
    futures = Futures()
    made = [futures.new("t", "x") for _ in range(5)]
    for future in made:
        futures.settle(future, bytes(40 * 2**20))
    with pytest.raises(RequestProblem, match="dropped"):
        futures.get(made[0].id, "t")
    assert futures.get(made[4].id, "t").settled


def test_a_number_that_never_comes_does_not_stall_the_model(narrow_gateway: Served) -> None:
    raw = Raw(narrow_gateway, "tml-gap")
    session = raw.session()

    def created() -> bool:
        return raw.post("create_model", session_id=session, model_seq_id=0, base_model="tiny").status_code == 200

    _until(created)  # an earlier test's session may still hold the slot
    model = f"{session}:train:0"
    waiting = raw.ok("save_weights", model_id=model, seq_id=3, path="three")
    failed = raw.result(waiting).json()
    assert "seq_id 1 did not arrive" in failed["error"] and failed["category"] == "user"
    assert raw.post("save_weights", model_id=model, seq_id=1, path="one").status_code == 400
    assert raw.result(raw.ok("save_weights", model_id=model, seq_id=4, path="four")).json()["path"].endswith("/four")
    raw.post(f"sessions/{session}/finish")
