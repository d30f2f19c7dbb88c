"""The endpoint that a job names is asked, and answers are told apart: gone, wrong key, wrong path, wrong model."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from console.bench.running.harbor_view import AgentView, HarborView
from console.bench.running.options import BenchOptions
from console.bench.running.preflight import endpoint
from console.bench.running.preflight.case import Case
from console.findings import Finding

MODELS = {"data": [{"id": "openai/gpt-oss-20b"}]}


class Server:
    """Answers by a table of method and path; keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[tuple[str, str, Mapping[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                outer.asked.append((self.command, self.path, dict(self.headers.items())))
                status, body = outer.answers.get(f"{self.command} {self.path}", (404, {"error": "no"}))
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("location", "/elsewhere")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = _answer

            def log_message(self, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    found = Server()
    yield found
    found.close()


def ask(
    url: str, *, key: str = "secret-1", format: str = "", model: str = "openai/openai/gpt-oss-20b"
) -> list[Finding]:
    view = AgentView(
        name="an-agent", model=model, side="host", endpoint=url, key_name="OPENAI_API_KEY", key=True,
        provider="openai", model_id=model.split("/", 1)[-1], format=format,
    )  # fmt: skip
    job = {"jobs_dir": "/j", "job_name": "n", "agents": [{"kwargs": {"api_base": url}, "env": {}}] * 2}
    case = Case(
        options=BenchOptions(job=job, run_dir="/r", endpoint=url),
        view=HarborView(valid=True, job=job, agents=[view, view]),
        environment={"OPENAI_API_KEY": key},
    )
    found = list(endpoint.endpoint_findings(case))
    assert not any(key in finding.line() for finding in found)
    return found


def codes(found: list[Finding]) -> list[tuple[str, str, str]]:
    return [(finding.code, finding.level, finding.object) for finding in found]


BASE = "agents.0.kwargs.api_base"


def test_a_server_that_is_right_is_asked_once_with_the_key(server: Server) -> None:
    server.answers = {"GET /v1/models": (200, MODELS)}
    assert ask(f"{server.url}/v1/") == []
    assert [(method, path) for method, path, _ in server.asked] == [("GET", "/v1/models")]
    assert server.asked[0][2]["authorization"] == "Bearer secret-1"


def test_nobody_there_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    found = ask(f"http://127.0.0.1:{port}/v1")
    assert codes(found) == [("bench.endpoint", "error", BASE)]
    assert "does not answer" in found[0].message


def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        found = ask(f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
    assert codes(found) == [("bench.endpoint", "error", BASE)]


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_refused_is_told_by_its_name(server: Server, status: int) -> None:
    server.answers = {"GET /v1/models": (status, {})}
    assert codes(ask(f"{server.url}/v1")) == [("bench.key_refused", "error", "OPENAI_API_KEY")]


def test_a_url_without_its_path_is_told_with_the_right_one(server: Server) -> None:
    server.answers = {"GET /v1/models": (200, MODELS)}
    found = ask(server.url)
    assert codes(found) == [("bench.endpoint", "error", BASE)]
    assert found[0].remedy == f"write {server.url}/v1"


@pytest.mark.parametrize(
    ("status", "level", "said"),
    [(404, "warning", "no list of models"), (503, "error", "HTTP 503"), (302, "error", "a key must not follow")],
)
def test_other_answers_are_told_apart(server: Server, status: int, level: str, said: str) -> None:
    server.answers = {"GET /v1/models": (status, b"<html>"), "GET /elsewhere": (200, MODELS)}
    found = ask(f"{server.url}/v1")
    assert codes(found) == [("bench.endpoint", level, BASE)]
    assert said in found[0].message
    assert [path for _, path, _ in server.asked] == ["/v1/models"]  # a redirect is not followed


def test_a_model_that_is_not_served_is_told_and_never_changed(server: Server) -> None:
    server.answers = {"GET /v1/models": (200, MODELS)}
    found = ask(f"{server.url}/v1", model="openai/gpt-oss-20b")
    assert codes(found) == [("bench.model_served", "error", "agents.0.model_name")]
    assert "write openai/openai/gpt-oss-20b" in found[0].remedy
    found = ask(f"{server.url}/v1", model="openai/other")
    assert "write openai/openai/gpt-oss-20b, or serve the model" in found[0].remedy


@pytest.mark.parametrize(
    "body", [b"[", [], {"data": 5}, {"data": [5, {"id": None}, {}]}, {"data": []}, b"x" * 3_000_000]
)
def test_a_strange_list_is_no_reason_to_refuse(server: Server, body: Any) -> None:
    server.answers = {"GET /v1/models": (200, body)}
    found = ask(f"{server.url}/v1")
    assert [finding.level for finding in found if finding.code == "bench.endpoint"] in ([], ["warning"])
    assert {finding.code for finding in found if finding.level == "error"} <= {"bench.model_served"}


@pytest.mark.parametrize("page", [b"<!doctype html><title>Sign in</title>", b"\n <html>"])
def test_a_page_for_a_browser_is_no_endpoint_of_a_model(server: Server, page: bytes) -> None:
    server.answers = {"GET /v1/models": (200, page), "POST /v1/chat/completions": (200, page)}
    found = ask(f"{server.url}/v1")
    assert codes(found) == [("bench.endpoint", "error", BASE)]
    assert "is no endpoint of a model" in found[0].message
    server.answers["POST /v1/chat/completions"] = (400, {"error": "messages is missing"})
    found = ask(f"{server.url}/v1")
    assert codes(found) == [("bench.endpoint", "warning", BASE)]
    assert "has no list of models" in found[0].message
    server.answers = {"GET /models": (200, page), "GET /v1/models": (200, MODELS)}
    found = ask(server.url)
    assert (found[0].level, found[0].remedy) == ("error", f"write {server.url}/v1")
    for format, path in (("anthropic_messages", ""), ("openai_responses", "/v1")):
        server.answers = dict.fromkeys(("GET /v1/models", "POST /v1/messages", "POST /v1/responses"), (200, page))
        assert [one.level for one in ask(f"{server.url}{path}", format=format)] == ["warning", "error"]


def test_a_messages_agent_needs_the_messages_route(server: Server) -> None:
    server.answers = {"GET /v1/models": (200, MODELS)}
    assert codes(ask(server.url, format="anthropic_messages")) == [("bench.messages", "error", BASE)]
    assert server.asked[-1][:2] == ("POST", "/v1/messages")
    assert server.asked[-1][2]["x-api-key"] == "secret-1"
    for status, left in ((400, []), (422, []), (401, ["bench.key_refused"]), (405, ["bench.messages"])):
        server.answers["POST /v1/messages"] = (status, {})
        assert [finding.code for finding in ask(server.url, format="anthropic_messages")] == left


def test_a_responses_agent_needs_that_route(server: Server) -> None:
    server.answers = {"GET /v1/models": (200, MODELS)}
    assert codes(ask(f"{server.url}/v1", format="openai_responses")) == [("bench.responses", "error", BASE)]
    server.answers["POST /v1/responses"] = (400, {})
    assert ask(f"{server.url}/v1", format="openai_responses") == []


@pytest.mark.parametrize("key", ["secret\nline", "sécret-1"])
def test_a_key_that_no_header_can_hold_is_not_sent(server: Server, key: str) -> None:
    assert codes(ask(f"{server.url}/v1", key=key)) == [("bench.key_form", "error", "OPENAI_API_KEY")]
    assert server.asked == []


def test_the_key_of_the_agents_own_table_is_taken(server: Server) -> None:
    view = AgentView(name="a", key_name="OPENAI_API_KEY")
    environment = {"OPENAI_API_KEY": "host", "MINE": "mine"}
    for text, wanted in (("${MINE}", "mine"), ("${NO:-spare}", "spare"), ("EMPTY", "EMPTY"), (None, "host")):
        part = {"env": {} if text is None else {"OPENAI_API_KEY": text}}
        assert endpoint._key(view, part, environment) == wanted
