"""The model's endpoint: is it there, does it take the key, does it serve the model, does it speak the agent's API.

Only what the job names is asked, with the key that the job names. Nothing is sampled: models are listed, and a request
without a body tells whether a route exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import httpx

from console.bench.running.harbor_view import AgentView
from console.bench.running.preflight.agents import endpoint_place
from console.bench.running.preflight.case import Case
from console.findings import NOTE, WARNING, Finding

SECONDS = 10.0
_MOST_BYTES = 2_000_000
_LISTED = 4
_TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")
_MESSAGES, _RESPONSES = "anthropic_messages", "openai_responses"
_REFUSED = (401, 403)
_NO_ROUTE = (404, 405, 501)


class _Answer(NamedTuple):
    """Status, and the JSON of a short body, None for any other; `page`: it is one for a browser; status 0 with
    `problem` for none at all."""

    status: int
    body: Any = None
    problem: str = ""
    page: bool = False


def endpoint_findings(case: Case) -> Iterator[Finding]:
    """Each endpoint that the job names, once for each key and model (up to some seconds where one is slow)."""
    asked: set[tuple[str, str, str, str]] = set()
    for number, view, part in case.agents:
        if not view.endpoint or view.side == "none":
            continue
        key = _key(view, part, case.environment)
        what = (view.endpoint, key, view.model_id, view.format)
        if what not in asked:
            asked.add(what)
            yield from _ask(endpoint_place(number, view, part), number, view, key, key_variable(view, part))


def _key(view: AgentView, part: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """Its value: of the agent's own table, or of the environment; "" for none."""
    table = part.get("env")
    text = table.get(view.key_name) if isinstance(table, Mapping) else None
    if not isinstance(text, str):
        return environment.get(view.key_name, "")
    match = _TEMPLATE.fullmatch(text)
    return text if match is None else environment.get(match.group(1), match.group(2) or "")


def key_variable(view: AgentView, part: Mapping[str, Any]) -> str:
    """The variable of this machine that has the key: the agent's own table may give it another name."""
    table = part.get("env")
    text = table.get(view.key_name) if isinstance(table, Mapping) else None
    match = _TEMPLATE.fullmatch(text) if isinstance(text, str) else None
    return match.group(1) if match is not None else view.key_name


def _ask(where: str, number: int, view: AgentView, key: str, name: str) -> Iterator[Finding]:
    base = view.endpoint.rstrip("/")
    messages = view.format == _MESSAGES
    try:
        headers = _headers(key, messages)
    except ValueError:
        yield Finding(
            code="bench.key_form",
            object=name,
            message="has a character that no HTTP header may have, such as a line break",
            remedy="export it again without",
        )
        return
    with httpx.Client(headers=headers, timeout=SECONDS, follow_redirects=False) as client:
        models = f"{base}/v1/models" if messages else f"{base}/models"
        answer = _get(client, models)
        if answer.status == 0:
            yield _finding(where, f"does not answer: {answer.problem}", "start the server, or correct the URL")
            return
        if answer.status in _REFUSED:
            yield Finding(
                code="bench.key_refused",
                object=name or where,
                message=f"is refused by {base}: HTTP {answer.status} of {models}",
                remedy="export a key that this server takes (for https://JOB--PORT.hf.jobs: a token with read access "
                "to the job's namespace)",
            )
            return
        if (answer.status == 404 or answer.page) and not messages and not base.endswith("/v1"):
            deeper = _get(client, f"{base}/v1/models")
            if deeper.status == 200 and not deeper.page:
                why = "a page for a browser" if answer.page else "HTTP 404"
                yield _finding(where, f"has no /models: {why}; {base}/v1 has", f"write {base}/v1")
                return
        if answer.page and not messages and view.format != _RESPONSES and not _chats(client, base):
            yield _finding(
                where,
                f"is no endpoint of a model: it answers {models} with a page for a browser, and takes no chat",
                "correct the URL; it ends before /chat/completions, mostly in /v1",
            )
            return
        yield from _status(where, models, answer)
        if answer.status == 200:
            yield from _served(number, view, answer.body)
        if answer.status < 500 and messages:
            yield from _route(
                where, view, name, client, f"{base}/v1/messages", "Anthropic's Messages API", "bench.messages"
            )
        if answer.status < 500 and view.format == _RESPONSES:
            yield from _route(
                where, view, name, client, f"{base}/responses", "OpenAI's Responses API", "bench.responses"
            )


def _chats(client: httpx.Client, base: str) -> bool:
    """Whether a chat without messages is refused as one. Nothing is sampled."""
    answer = _get(client, f"{base}/chat/completions", post=True)
    return 400 <= answer.status < 500 and answer.status not in _NO_ROUTE and isinstance(answer.body, dict)


def _headers(key: str, messages: bool) -> dict[str, str]:
    """Raises ValueError for a key that no header can hold."""
    if not key:
        return {}
    if not key.isascii() or not key.isprintable():
        raise ValueError
    both = {"authorization": f"Bearer {key}"}
    return both | {"x-api-key": key, "anthropic-version": "2023-06-01"} if messages else both


def _get(client: httpx.Client, url: str, *, post: bool = False) -> _Answer:
    """Ask once. Never raises for what a server or a network does."""
    try:
        with client.stream("POST" if post else "GET", url, json={} if post else None) as response:
            data = b""
            for chunk in response.iter_bytes():
                data += chunk
                if len(data) > _MOST_BYTES:
                    break
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as problem:
        return _Answer(0, problem=_why(problem))
    try:
        return _Answer(response.status_code, httpx.Response(200, content=data).json())
    except ValueError:
        page = "html" in response.headers.get("content-type", "").lower() or data.lstrip()[:1] == b"<"
        return _Answer(response.status_code, page=page and response.status_code == 200)


def _why(problem: Exception) -> str:
    if isinstance(problem, httpx.TimeoutException):
        return f"nothing within {SECONDS:.0f} s"
    return " ".join(str(problem).split())[:200] or type(problem).__name__


def _status(where: str, url: str, answer: _Answer) -> Iterator[Finding]:
    status = answer.status
    if status == 200:
        if answer.body is None or (isinstance(answer.body, dict) and not isinstance(answer.body.get("data"), list)):
            yield _finding(
                where,
                f"has no list of models: {url} answers with {'a page for a browser' if answer.page else 'other data'}",
                "if this is no server of a model, correct the URL; otherwise go on",
                WARNING,
            )
    elif status >= 500:
        yield _finding(where, f"answers HTTP {status} to {url}", "wait until the server has loaded, or look at its log")
    elif 300 <= status < 400:
        yield _finding(
            where, f"sends {url} elsewhere (HTTP {status}); a key must not follow", "write the URL that it ends at"
        )
    else:
        yield _finding(
            where,
            f"has no list of models: HTTP {status} of {url}",
            "if this is no server of a model, correct the URL; otherwise go on",
            WARNING,
        )


def _served(number: int, view: AgentView, body: Any) -> Iterator[Finding]:
    """Whether the model is in the list. The job's name for it is never changed."""
    data = body.get("data") if isinstance(body, dict) else None
    if not isinstance(data, list):
        return
    names = [str(entry["id"]) for entry in data if isinstance(entry, dict) and "id" in entry]
    wanted = view.model_id or view.model
    if not wanted or wanted in names or not names:
        return
    whole = view.model in names
    yield Finding(
        code="bench.model_served",
        object=f"agents.{number}.model_name",
        message=f"asks {view.endpoint} for {wanted}, which it does not serve; it serves {', '.join(names[:_LISTED])}"
        + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""),
        remedy=f"the first part names the provider: write openai/{view.model}"
        if whole
        else f"write {view.model.split('/', 1)[0]}/{names[0]}, or serve the model"
        if "/" in view.model
        else "name a model that is served",
    )


def _route(
    where: str, view: AgentView, key_name: str, client: httpx.Client, url: str, name: str, code: str
) -> Iterator[Finding]:
    """A request without a body: refused by its content where the route exists."""
    answer = _get(client, url, post=True)
    if answer.status in _NO_ROUTE or answer.page:
        yield Finding(
            code=code,
            object=where,
            message=f"does not speak {name}, which {view.name} needs: HTTP {answer.status} of {url}",
            remedy="put a bridge before it, serve it with a server that has this API, or take an agent that speaks "
            "OpenAI's chat API, such as mini-swe-agent",
        )
    elif answer.status in _REFUSED:
        yield Finding(
            code="bench.key_refused",
            object=key_name or where,
            message=f"is refused: HTTP {answer.status} of {url}",
            remedy="export a key that this server takes",
        )
    elif answer.status == 0:
        yield Finding(code=code, level=NOTE, object=where, message=f"{url} does not answer: {answer.problem}")


def _finding(where: str, message: str, remedy: str, level: str = "error") -> Finding:
    return Finding(code="bench.endpoint", level=level, object=where, message=message, remedy=remedy)
