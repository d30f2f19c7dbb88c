"""Commands with wrong content, for a service that takes every command it can attribute, and fails it in its turn."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from console.gateway.embedded.context import Gateway, promise
from console.gateway.embedded.problems import OperationProblem, RequestProblem
from console.gateway.embedded.proto import TrainRequest

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

COMMANDS = ("forward_backward", "optim_step", "save_weights", "save_weights_for_sampler", "load_weights")
_VITAL = ("forward_backward", "optim_step", "load_weights")
_CONTENT = (400, 403, 404, 422)  # statuses that tell of the content; the others tell of the service


@dataclass
class Late:
    """Wraps the handlers of commands."""

    gateway: Gateway

    def wrap(self, name: str, handler: Handler) -> Handler:
        """A handler that promises a failure where `handler` refuses the content of a command.

        Still refused at once: a body without `model_id` or `seq_id`, and a model that is unknown, unloaded or another
        tenant's.
        """

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestProblem as problem:
                body = getattr(request.state, "body", None)
                if problem.status not in _CONTENT or body is None:
                    raise
                model_id, seq_id, vital = _train(body) if name == "forward_backward" else _envelope(name, body)
                model = self.gateway.registry.model(model_id, self.gateway.tenant(request))
                detail = problem.detail

            def fail() -> None:
                raise OperationProblem(detail)

            future = self.gateway.run_in_order(model, seq_id, name, fail, lambda _: (b"", ""), vital=vital)
            return promise(future, model_id=model.id)

        return handle


def _train(body: bytes) -> tuple[str, int, bool]:
    train = TrainRequest(body)
    return train.model_id, train.seq_id, not train.forward_only


def _envelope(name: str, body: bytes) -> tuple[str, int, bool]:
    """Model, number, and whether the command is vital to the model.

    Raises:
        RequestProblem: 400, the body has no such thing.
    """
    try:
        fields: Any = msgspec.json.decode(body or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RequestProblem(400, "the body is not JSON") from None
    fields = fields if isinstance(fields, dict) else {}
    for field in ("model_id", "seq_id"):
        if field not in fields:
            raise RequestProblem(400, f"missing command envelope field {field!r}")
    if not isinstance(fields["model_id"], str) or not isinstance(fields["seq_id"], int) or fields["seq_id"] < 1:
        raise RequestProblem(400, f"seq_id must be an integer >= 1, got {fields['seq_id']!r}")
    return fields["model_id"], fields["seq_id"], name in _VITAL
