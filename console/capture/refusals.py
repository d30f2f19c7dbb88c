"""Requests that get an error instead of a reply: one exception, and the words that agents and Harbor recognise."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Literal

RefusalKind = Literal[
    "request",  # 400: the agent's mistake; `param` names the field
    "overflow",  # 400: the prompt does not fit the window
    "budget",  # 400: a budget of the trial is used up; agents try a 429 again for minutes
    "auth",  # 401: unknown or missing token
    "early",  # 409: the trial's agent has not started
    "sealed",  # 410: the trial has ended
    "not_found",  # 404: no such path
    "method",  # 405: the path takes another method
    "too_large",  # 413: the body is larger than allowed
    "media",  # 415: the body is not JSON as it says
    "busy",  # 429: too many calls at once; comes with retry_after
    "backend",  # 503: the policy's gateway failed; comes with retry_after
    "no_logprobs",  # 503: the gateway's sample has no usable log-probs
    "capture",  # 503: the call could not be written down
    "cancelled",  # 499: nobody waits for the answer
]

STATUS: dict[RefusalKind, int] = {
    "request": 400, "overflow": 400, "budget": 400, "auth": 401, "early": 409, "sealed": 410, "not_found": 404,
    "method": 405, "too_large": 413, "media": 415, "busy": 429, "backend": 503, "no_logprobs": 503, "capture": 503,
    "cancelled": 499,
}  # fmt: skip

TRACED = 8
"""Places of an unforeseen error that the log names at most."""

ECHOED_CHARS = 80
"""Characters of a client's text that an error repeats at most."""


class RefusedError(Exception):
    """A request that gets an error.

    Attributes:
        kind: see `RefusalKind`; status: of HTTP; message: for the agent, one line or more, nothing secret in it.
        param: the field that is at fault; retry_after: seconds, None when trying again is of no use.
        noted: it is in the trial's record already.
    """

    noted = False

    def __init__(
        self,
        kind: RefusalKind,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind, self.message, self.param, self.retry_after = kind, message, param, retry_after
        self.status = status if status is not None else STATUS[kind]


class UnforeseenError(RefusedError):
    """Something broke that should not. It is told without a word about what."""

    def __init__(self) -> None:
        super().__init__("capture", "the request could not be served", retry_after=1.0)


def bad_request(param: str, problem: str) -> RefusedError:
    """The agent's mistake. `problem` goes on after the field's name and does not repeat its contents."""
    return RefusedError("request", f"'{param}' {problem}", param=param)


def overflow(prompt_tokens: int, window: int) -> RefusedError:
    """The prompt leaves no room in the window.

    Harbor knows this failure by the second line's words, litellm by either line; agents that wrap their output at 80
    columns keep it whole because it stands on a line of its own.
    """
    return RefusedError("overflow", overflow_text(prompt_tokens, window), param="messages")


def overflow_text(prompt_tokens: int, window: int) -> str:
    """The words of `overflow`; counts in tokens."""
    return (
        f"This model's maximum context length is {window} tokens.\n"
        f"prompt is too long: {prompt_tokens} tokens > {window} maximum"
    )


def shown(word: object) -> str:
    """A client's word as an error may repeat it: short, and printable."""
    text = repr(word if isinstance(word, str) else type(word).__name__)
    return text if len(text) <= ECHOED_CHARS else text[:ECHOED_CHARS] + "...'"


def traced(error: BaseException) -> str:
    """An unforeseen error as the log may have it: what it is and where it was raised.

    Not what it says: that may be anything that an agent, its model or its tools have said.
    """
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
    return " < ".join([type(error).__name__, *reversed(places[-TRACED:])])
