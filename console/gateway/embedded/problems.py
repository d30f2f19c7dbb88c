"""Refusals of the embedded gateway; the server turns them into HTTP answers or failed futures."""

from __future__ import annotations

from typing import Literal

Category = Literal["user", "server"]


class RequestProblem(Exception):
    """A request that is answered with a status other than 200.

    Attributes:
        status: the HTTP status.
        detail: one line for the caller; it names the field or the object.
        retry_after: seconds, for the header of that name.
    """

    def __init__(self, status: int, detail: str, *, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.retry_after = retry_after


class InvalidBody(RequestProblem):
    """A body that does not fit its route; how that is answered differs between services."""

    def __init__(self, detail: str) -> None:
        super().__init__(400, detail)


class OperationProblem(Exception):
    """An accepted operation that fails later; it settles the operation's future.

    Attributes:
        category: `user` when the request is at fault, `server` when the gateway is.
    """

    def __init__(self, detail: str, category: Category = "user") -> None:
        super().__init__(detail)
        self.detail = detail
        self.category: Category = category
