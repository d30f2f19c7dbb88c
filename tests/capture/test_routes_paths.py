"""Which paths and methods there are, however agents write them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from capture_bench import CHAT, COUNT, MESSAGES, MODEL, RESPONSES, Bench, message_of, said, text_of

from console.capture.paths import resolve


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench(tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    ("path", "action", "dialect"),
    [
        ("/", "base", "chat"), ("", "base", "chat"), ("/v1", "base", "chat"), ("/v1/", "base", "chat"),
        ("/v1/v1", "base", "chat"), ("//", "base", "chat"),
        ("/v1/chat/completions", "call", "chat"), ("/chat/completions/", "call", "chat"),
        ("/v1/v1/chat/completions", "call", "chat"), ("//v1//chat//completions", "call", "chat"),
        ("/v1/responses", "call", "responses"), ("/responses", "call", "responses"),
        ("/v1/messages", "call", "messages"), ("/messages/", "call", "messages"),
        ("/v1/v1/messages", "call", "messages"),
        ("/v1/messages/count_tokens", "count", "messages"), ("/messages/count_tokens", "count", "messages"),
        ("/v1/models", "models", "chat"), ("/models/", "models", "chat"), ("/v1/models/a", "model", "chat"),
        ("/v1/models/openai/Qwen/Qwen3:free@x", "model", "chat"),
        ("/v1/responses/resp_1", "none", "responses"), ("/v1/messages/batches", "none", "messages"),
        ("/v1/completions", "none", "chat"), ("/v1/embeddings", "none", "chat"), ("/chat", "none", "chat"),
        ("/v2/chat/completions", "none", "chat"), ("/v1/chat/completions/x", "none", "chat"),
        ("/V1/chat/completions", "none", "chat"), ("/chat/v1/completions", "none", "chat"),
        ("/\x00", "none", "chat"), ("/" + "a/" * 4000, "none", "chat"),
    ],
)  # fmt: skip
def test_where_a_path_leads(path: str, action: str, dialect: str) -> None:
    place = resolve(path, "", {})
    assert (place.action, place.dialect) == (action, dialect)
    assert place.methods == {"call": ("POST",), "count": ("POST",), "none": ()}.get(action, ("GET", "HEAD"))
    assert resolve("/q/r" + path, "/q/r", {}) == place
    assert resolve(path, "/q/r", {}) == place, "a proxy may have taken the prefix off"


def test_a_prefix_is_a_whole_part_of_the_path() -> None:
    assert resolve("/query/v1/messages", "/q", {}).action == "none"
    assert resolve("/q", "/q", {}).action == "base"


def test_who_says_which_version_of_anthropics_api_he_speaks_gets_its_form() -> None:
    headers = {"anthropic-version": "2023-06-01"}
    assert {resolve(path, "", headers).dialect for path in ("/v1/models", "/v1/models/x", "/", "/v1/files")} == {
        "messages"
    }
    assert resolve("/v1/chat/completions", "", headers).dialect == "chat"


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
async def test_every_way_to_write_a_path_is_served(bench: Bench, path: str) -> None:
    agent = await bench.open()
    bare = path.removeprefix("/v1")
    for written in (
        path,
        bare,
        path + "/",
        bare + "/",
        "/v1" + path,
        "/" + path,
        path + "?beta=true&x=%ff",
        bare + "?",
    ):
        reply = await agent.post(written, said(path))
        assert reply.status_code == 200 and text_of(path, reply.json()) == "Done.", written


@pytest.mark.parametrize(
    "path", ["/v1/messages/count_tokens", "/messages/count_tokens?beta=true", "/v1/v1/messages/count_tokens/"]
)
async def test_tokens_are_counted_as_they_would_be_sent(bench: Bench, path: str) -> None:
    agent = await bench.open()
    body = {"model": "m", "messages": [{"role": "user", "content": "How many?"}], "system": "Be brief."}
    counted = (await agent.post(path, body)).json()
    sampled = (await agent.post(MESSAGES, body | {"max_tokens": 5})).json()
    assert sampled["usage"]["input_tokens"] == counted["input_tokens"]
    assert counted == {"input_tokens": len(bench.sampler.asked[0].prompt)}
    assert (await agent.seal()).evidence.calls == 1


async def test_models_have_the_policys_name_whatever_is_asked(bench: Bench) -> None:
    agent = await bench.open()
    for path in ("/v1/models", "/models/", "/v1/v1/models"):
        listed = (await bench.client.get(agent.route.url + path, headers=agent.key)).json()
        assert [model["id"] for model in listed["data"]] == [MODEL] and listed["object"] == "list"
    for name in ("openai/gpt-5", "claude-sonnet-4-5-20250929", "%00", "a%2Fb", "x" * 3000):
        one = (await bench.client.get(f"{agent.route.url}/v1/models/{name}", headers=agent.key)).json()
        assert (one["id"], one["object"]) == (MODEL, "model")
    anthropic = agent.key | {"anthropic-version": "2023-06-01"}
    page = (await bench.client.get(agent.route.url + "/v1/models", headers=anthropic)).json()
    assert page["first_id"] == MODEL and page["data"][0]["type"] == "model"
    assert (await bench.client.get(agent.route.url + "/v1/models/x", headers=anthropic)).json()["type"] == "model"
    head = await bench.client.head(agent.route.url + "/v1/models", headers=agent.key)
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/", "", "/v1", "/v1/", "/?x=1"])
async def test_who_looks_whether_anybody_is_there_is_told_so(bench: Bench, method: str, path: str) -> None:
    reply = await bench.client.request(method, bench.capture.url + path)
    assert (reply.status_code, reply.content) == (200, b"") and bench.capture.refusals == {}


async def test_wrong_methods_name_the_right_ones(bench: Bench) -> None:
    agent = await bench.open()
    cases = [
        (method, path, "POST") for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS")
        for path in (CHAT, RESPONSES, MESSAGES, COUNT)
    ]  # fmt: skip
    cases += [
        (method, path, "GET, HEAD")
        for method in ("POST", "OPTIONS", "DELETE")
        for path in ("/v1/models", "/v1/models/x", "/")
    ]
    for method, path, allowed in cases:
        reply = await bench.client.request(method, agent.route.url + path, headers=agent.key)
        assert (reply.status_code, reply.headers["Allow"]) == (405, allowed), (method, path)
        if method != "HEAD":
            assert message_of(path, reply.json()).startswith("use ")
    assert bench.capture.refusals["method"] == len(cases)
    # What failed last says something about the trial's end.
    evidence = (await agent.seal()).evidence
    assert (evidence.failed, evidence.last_failure) == (len(cases), "request")


async def test_other_paths_are_not_there(bench: Bench) -> None:
    agent = await bench.open()
    for path in (
        "/v1/completions",
        "/v1/embeddings",
        "/v1/responses/r/input_items",
        "/v1/messages/batches",
        "/metrics",
    ):
        for headers in (agent.key, {}, {"x-api-key": "wrong"}):
            reply = await bench.client.post(agent.route.url + path, content=b"x" * 1000, headers=headers)
            assert reply.status_code == 404 and message_of(path, reply.json()) == "there is no such path"
    assert bench.capture.refusals == {"not_found": 15}
    assert (await agent.seal()).evidence.failed == 5


async def test_a_whole_address_with_a_path_is_served_with_it_and_without(tmp_path: Path) -> None:
    async with Bench(tmp_path, advertised_url="https://gw.example/some/path/") as bench:
        agent = await bench.open()
        assert agent.route.url == bench.capture.url == "https://gw.example/some/path"
        base = "http://{}:{}".format(*bench.address)
        for prefix in ("", "/some/path", "/some/path/", "/some/path/v1"):
            reply = await bench.client.post(base + prefix + CHAT, json=said(CHAT), headers=agent.key)
            assert reply.status_code == 200
            assert (await bench.client.head(base + prefix)).status_code == 200
        reply = await bench.client.post(base + "/some/pathological" + CHAT, json=said(CHAT), headers=agent.key)
        assert reply.status_code == 404
