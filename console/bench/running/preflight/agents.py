"""Agents: who calls the model, from where, with which key and base URL.

An agent of the host's (terminus-2 and its kin) calls the model from Harbor's own process: its key is a variable of the
shell, its base URL the option `api_base`. A program in the sandbox (mini-swe-agent, claude-code, codex and the others)
knows the variables of its own `env` table alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from console.bench.running.harbor_view import AgentView
from console.bench.running.preflight.case import BWRAP, Case
from console.findings import NOTE, WARNING, Finding

_TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")
_LOOPBACK = re.compile(r"^(localhost|127(\.\d+){3}|::1|0\.0\.0\.0)$", re.IGNORECASE)
_CONTAINERS = frozenset({"docker", "podman", "kata", "apple-container", "sbx"})
_MAY_LOG_IN = frozenset({"claude-code", "codex", "gemini-cli", "opencode", "cursor-cli", "copilot-cli", "goose"})
"""Agents that know other ways than a key; Harbor's own preflight refuses where it knows better."""
_BASE_URL = {"anthropic_messages": "ANTHROPIC_BASE_URL"}
_MESSAGES = "anthropic_messages"
_THINKERS = re.compile(
    r"qwen3|qwq|deepseek-r|gpt-oss|glm-4\.[5-9]|kimi-k2-thinking|minimax-m|magistral|nemotron", re.IGNORECASE
)
_PLACEHOLDER = re.compile(r"REPLACE-ME|<[^>]*>|//JOB--|//HOST\b")
_TABLES = ("environment", "verifier")


def thinks(model: str) -> bool:
    """Whether a model of this name may think at length before it answers."""
    return _THINKERS.search(model) is not None


def variable_findings(case: Case) -> Iterator[Finding]:
    """`${NAME}` in a table of variables, and no such variable: Harbor would stop at it."""
    tables = [(f"agents.{number}.env", part.get("env")) for number, _, part in case.agents]
    tables += [(f"{name}.env", case.part(name).get("env")) for name in _TABLES]
    for where, table in tables:
        for name, value in table.items() if isinstance(table, Mapping) else ():
            match = _TEMPLATE.fullmatch(value) if isinstance(value, str) else None
            if match is not None and match.group(2) is None and match.group(1) not in case.environment:
                yield Finding(
                    code="bench.variable",
                    object=f"{where}.{name}",
                    message=f"needs the environment variable {match.group(1)}, which is not set",
                    remedy=f"export {match.group(1)}",
                )
            elif isinstance(value, str) and match is None and "${" in value:
                yield Finding(
                    code="bench.template",
                    object=f"{where}.{name}",
                    message="has ${...} within a longer text, which Harbor passes on as it stands",
                    remedy="let one variable hold the whole value",
                )


def wiring_findings(case: Case) -> Iterator[Finding]:
    """Model, key and base URL of each agent."""
    for number, view, part in case.agents:
        if view.side not in ("host", "sandbox"):
            continue
        where = f"agents.{number}"
        yield from _model(where, view)
        yield from _key(case, where, view, part)
        yield from _base_url(case, where, view, part)


def _model(where: str, view: AgentView) -> Iterator[Finding]:
    if not view.model:
        yield Finding(
            code="bench.model",
            level="error" if view.side == "host" else WARNING,
            object=f"{where}.model_name",
            message=f"is not set: {view.name} {'needs a model' if view.side == 'host' else 'takes one of its own'}",
            remedy="set it, e.g. openai/Qwen/Qwen3.8-27B-FP8 for a server that speaks OpenAI's API",
        )
    elif view.model_id and not view.provider and "/" in view.model and view.format in ("", "openai_chat_completions"):
        yield Finding(
            code="bench.model_provider",
            level=WARNING,
            object=f"{where}.model_name",
            message=f"{view.model} names no provider that LiteLLM knows",
            remedy=f"for a server that speaks OpenAI's API write openai/ before the id that it serves: "
            f"openai/{view.model}",
        )
    if thinks(view.model):
        by = (
            f"{where}.kwargs.reasoning_effort=low"
            if "reasoning_effort" in view.options
            else "an option of the server's"
        )
        yield Finding(
            code="bench.thinking",
            level=NOTE,
            object=f"{where}.model_name",
            message=f"{view.model} may think before it answers; a time-out after a few hundred tokens is thinking that "
            "ran away",
            remedy=f"bound it by {by}, or turn it off at the server (SGLang: --default-chat-template-kwargs "
            "'{\"enable_thinking\": false}'), and see in a first answer that reasoning_content is null and "
            "reasoning_tokens 0",
        )


def _key(case: Case, where: str, view: AgentView, part: Mapping[str, Any]) -> Iterator[Finding]:
    table = _table(part)
    if not view.key and view.wanted:
        name = view.wanted[0]
        given = [key for key in view.wanted if key in table]
        if any(finding.object == f"{where}.env.{key}" for key in given for finding in variable_findings(case)):
            return
        server = "; a server without keys takes any text" if view.endpoint else ""
        if view.side == "host":
            remedy = f"export {name} in the shell that starts this{server}"
        else:
            remedy = f"export {name}, and write {name}: ${{{name}}} in {where}.env{server}"
        yield Finding(
            code="bench.key",
            level=WARNING if view.name in _MAY_LOG_IN and not view.endpoint else "error",
            object=name,
            message=f"is not set, and {view.name} {_from(view)} with it",
            remedy=remedy,
        )
    if view.side == "host":
        for name in sorted(set(view.wanted) & set(table)):
            yield Finding(
                code="bench.key_place",
                level=WARNING,
                object=f"{where}.env.{name}",
                message=f"reaches every command in the sandbox, where the model can read it, and {view.name} "
                f"{_from(view)} (Harbor before 0.26 does not find it there at all)",
                remedy=f"take it out and export {name} in the shell that starts this",
            )


def _base_url(case: Case, where: str, view: AgentView, part: Mapping[str, Any]) -> Iterator[Finding]:
    table = _table(part)
    misplaced = [name for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE") if name in table]
    if view.format == _MESSAGES and not view.endpoint and misplaced:
        yield Finding(
            code="bench.messages",
            object=f"{where}.env.{misplaced[0]}",
            message=f"is not read by {view.name}, which speaks Anthropic's Messages API",
            remedy="set ANTHROPIC_BASE_URL to a server of that API; one of OpenAI's form (SGLang's or vLLM's /v1/chat) "
            "needs a bridge before it, or take mini-swe-agent",
        )
    if not view.endpoint:
        return
    if view.endpoint_from and view.endpoint_from not in table:
        yield Finding(
            code="bench.base_url_ambient",
            level=NOTE,
            object=view.endpoint_from,
            message=f"of this shell says where {view.name} finds the model; the job file does not",
            remedy=f"write it down in {where}, so that a later run of the same file asks the same model",
        )
    if _PLACEHOLDER.search(view.endpoint):
        yield Finding(
            code="bench.placeholder",
            object=_where_of(where, view, part),
            message=f"is still {view.endpoint}",
            remedy=f"give the server's own URL: {_where_of('agent', view, part)}=https://HOST/v1",
        )
        return
    try:
        url = urlsplit(view.endpoint)
        host, path = url.hostname or "", url.path.rstrip("/")
    except ValueError:
        url, host, path = urlsplit(""), "", ""
    if url.scheme not in ("http", "https") or not host:
        yield Finding(
            code="bench.base_url",
            object=_where_of(where, view, part),
            message=f"{view.endpoint!r} is no URL of a server",
            remedy="write it whole: https://HOST:PORT/v1",
        )
        return
    if view.format == _MESSAGES and path.endswith("/v1"):
        yield Finding(
            code="bench.base_url_path",
            level=WARNING,
            object=_where_of(where, view, part),
            message=f"ends in /v1, and {view.name} appends /v1/messages",
            remedy="leave /v1 out",
        )
    elif view.format in ("", "openai_chat_completions", "openai_responses") and not path:
        yield Finding(
            code="bench.base_url_path",
            level=WARNING,
            object=_where_of(where, view, part),
            message=f"{view.endpoint} has no path, and servers of OpenAI's form answer below /v1",
            remedy=f"write {view.endpoint.rstrip('/')}/v1",
        )
    yield from _reach(case, where, view, part, host)


def _reach(case: Case, where: str, view: AgentView, part: Mapping[str, Any], host: str) -> Iterator[Finding]:
    """A program in a sandbox asks from there."""
    if view.side != "sandbox":
        return
    if case.kind == BWRAP:
        if not case.part("environment").get("kwargs", {}).get("relay"):
            yield Finding(
                code="bench.no_network",
                object="environment.kwargs.relay",
                message=f"is not set: a bwrap sandbox has no network, and {view.name} asks the model from inside",
                remedy=f"set it to {view.endpoint}",
            )
    elif _LOOPBACK.match(host) and (case.remote or case.kind in _CONTAINERS):
        yield Finding(
            code="bench.loopback",
            level="error" if case.remote else WARNING,
            object=_where_of(where, view, part),
            message=f"{host} is the sandbox itself to {view.name}, which runs in a {case.kind} sandbox",
            remedy="give an address of this machine that sandboxes reach"
            + ("" if case.remote else " (docker: http://host.docker.internal:PORT on desktops)"),
        )


def _where_of(where: str, view: AgentView, part: Mapping[str, Any]) -> str:
    """The key that names the endpoint."""
    for name in ("api_base", "base_url"):
        if name in _kwargs(part):
            return f"{where}.kwargs.{name}"
    if view.endpoint_from:
        return f"{where}.env.{view.endpoint_from}" if view.endpoint_from in _table(part) else view.endpoint_from
    return f"{where}.base_url"


def endpoint_place(number: int, view: AgentView, part: Mapping[str, Any]) -> str:
    """The key of the job, or the variable, that names an agent's endpoint."""
    return _where_of(f"agents.{number}", view, part)


def _from(view: AgentView) -> str:
    place = "Harbor's own process" if view.side == "host" else "inside the sandbox"
    return f"asks the model from {place}"


def _table(part: Mapping[str, Any]) -> Mapping[str, Any]:
    table = part.get("env")
    return table if isinstance(table, Mapping) else {}


def _kwargs(part: Mapping[str, Any]) -> Mapping[str, Any]:
    kwargs = part.get("kwargs")
    return kwargs if isinstance(kwargs, Mapping) else {}


def rewired(case: Case) -> Iterator[Finding]:
    """Harbor's own findings, where wiring is the matter in the words of wiring.

    An option `api_base` that an agent of the sandbox does not have is such a one; and what Harbor says of a variable
    that is not set says the same as ours.
    """
    unset = {finding.object.split(".env.")[0] for finding in variable_findings(case)}
    keyless = {f"agents.{number}" for number, view, _ in case.agents if not view.key and view.wanted}
    views = {f"agents.{number}": view for number, view, _ in case.agents}
    for finding in case.view.findings:
        owner, _, option = finding.object.partition(".kwargs.")
        view = views.get(owner)
        if finding.code == "bench.agent_variable" and finding.object in unset:
            continue
        if finding.code == "bench.agent_credential" and finding.object in keyless:
            continue
        if finding.code == "bench.unknown_kwarg" and view is not None and view.side == "sandbox":
            name = {
                "api_base": _BASE_URL.get(view.format, "OPENAI_BASE_URL"),
                "api_key": (view.wanted or ["its key"])[0],
            }
            if option in name:
                yield Finding(
                    code="bench.wiring",
                    object=finding.object,
                    message=f"is an option of agents that run on the host; {view.name} runs in the sandbox",
                    remedy=f"take it out and set {owner}.env.{name[option]}",
                )
                continue
        yield finding
