"""The Tinker protocol by hand, with the bodies of SDK 0.26.2, for what the installed SDK cannot say or hides."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np

LORA = {"rank": 4, "train_unembed": True, "train_mlp": True, "train_attn": True}
ADAM = {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-12, "weight_decay": 0.0, "grad_clip_norm": 0.0}


class RawTinker:
    """A client with one API key; an empty one sends none.

    Args:
        url: of the gateway.
        model: the base model.
    """

    def __init__(self, url: str, key: str, model: str) -> None:
        from tinker.proto import tinker_public_pb2  # takes seconds: not while a lease runs

        self._messages: Any = tinker_public_pb2
        headers = {"X-API-Key": key} if key else {}
        self.http = httpx.Client(base_url=url + "/api/v1", headers=headers, timeout=60)
        self.model = model

    def post(self, route: str, **body: Any) -> httpx.Response:
        return self.http.post("/" + route, json=body)

    def ok(self, route: str, **body: Any) -> dict[str, Any]:
        response = self.post(route, **body)
        assert response.status_code == 200, response.text
        return response.json()

    def refused(self, route: str, status: int, **body: Any) -> str:
        """What the gateway says when it refuses with this status."""
        response = self.post(route, **body)
        assert response.status_code == status, response.text
        return next(iter(response.json().values()))

    def result(self, promise: dict[str, Any] | httpx.Response) -> Any:
        """The JSON of a promise's result; bytes when it is protobuf."""
        if isinstance(promise, httpx.Response):
            assert promise.status_code == 200, promise.text
            promise = promise.json()
        response = self.post("retrieve_future", request_id=promise["request_id"])
        assert response.status_code == 200, response.text
        return response.json() if "json" in response.headers["content-type"] else response.content

    def session(self) -> str:
        body = {"tags": [], "user_metadata": None, "sdk_version": "0.26.2", "type": "create_session"}
        return self.ok("create_session", **body)["session_id"]

    def create_body(self, session: str, seq: int = 0, **lora: Any) -> dict[str, Any]:
        body = {"session_id": session, "model_seq_id": seq, "base_model": self.model, "type": "create_model"}
        return body | {"lora_config": LORA | lora}

    def create(self, session: str, seq: int = 0, **lora: Any) -> str:
        """The id of a new model that is ready."""
        promise = self.ok("create_model", **self.create_body(session, seq, **lora))
        return self.result(promise)["model_id"]

    def train(self, model_id: str, seq_id: int, loss: str = "cross_entropy", *, copies: int = 1) -> httpx.Response:
        """A forward_backward of equal data."""
        messages = self._messages
        message = messages.ForwardBackwardRequest(model_id=model_id, seq_id=seq_id, loss_fn=loss)
        for _ in range(copies):
            datum = message.data.add()
            datum.model_input.add().encoded_text.tokens = np.arange(8, dtype=np.int32).tobytes()
            for name, array, dtype in (
                ("target_tokens", np.arange(1, 9, dtype=np.int64), messages.DTYPE_INT64),
                ("weights", np.ones(8, np.float32), messages.DTYPE_FLOAT32),
            ):
                datum.loss_fn_inputs[name].CopyFrom(messages.Tensor(dense=array.tobytes(), dtype=dtype, shape=(8,)))
        headers = {"content-type": "application/x-protobuf"}
        return self.http.post("/forward_backward", content=message.SerializeToString(), headers=headers)

    def step(self, model_id: str, seq_id: int) -> httpx.Response:
        return self.post("optim_step", model_id=model_id, seq_id=seq_id, adam_params=ADAM, type="optim_step")

    def sample_body(self, sampler: str, seq: int, **more: Any) -> dict[str, Any]:
        prompt = {"chunks": [{"type": "encoded_text", "tokens": list(range(12))}]}
        params = {"max_tokens": 4, "temperature": 1.0, "top_k": -1, "top_p": 1.0}
        body = {"sampling_session_id": sampler, "seq_id": seq, "prompt": prompt, "sampling_params": params}
        return body | {"num_samples": 1, "topk_prompt_logprobs": 0, "type": "sample"} | more

    def sampler(self, session: str, seq: int = 0, **source: Any) -> str:
        body = {"session_id": session, "sampling_session_seq_id": seq, "type": "create_sampling_session"}
        return self.ok("create_sampling_session", **body, **(source or {"base_model": self.model}))[
            "sampling_session_id"
        ]
