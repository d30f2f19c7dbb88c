"""Requests of Chat Completions: what is honoured, what is refused, and what is known to have no effect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from console.capture.chat import ChatRequest, Sampling, ToolSpec
from console.capture.dialects import fields
from console.capture.dialects.chat_messages import parse_messages
from console.capture.refusals import bad_request, shown

STOPS = 16
STOP_CHARS = 1000
TOOL_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")

HONOURED = frozenset({
    "messages", "model", "tools", "tool_choice", "parallel_tool_calls", "max_tokens", "max_completion_tokens",
    "temperature", "top_p", "top_k", "seed", "stop", "n", "stream", "stream_options", "logprobs", "top_logprobs",
})  # fmt: skip

REFUSED: dict[str, tuple[object, ...]] = {
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "min_p": (0,),
    "top_a": (0,),
    "typical_p": (1,),
    "min_tokens": (0,),
    "best_of": (1,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "prediction": (),
    "audio": (),
    "modalities": (["text"],),
    "web_search_options": (),
    "functions": ([],),
    "function_call": (),
    "use_beam_search": (False,),
    "ignore_eos": (False,),
    "stop_token_ids": ([],),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "prompt_logprobs": (),
    "truncate_prompt_tokens": (),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "continue_final_message": (False,),
    "add_generation_prompt": (True,),
    "echo": (False,),
    "chat_template": (),
    "documents": ([],),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "structured_outputs": (),
    "json_schema": (),
    "regex": (),
    "ebnf": (),
}
"""Parameters that would change what is sampled or shown, with the values that mean "as usual" (null always does)."""

NEUTRALISED = frozenset({
    "user", "metadata", "store", "service_tier", "reasoning_effort", "reasoning", "include_reasoning",
    "chat_template_kwargs", "thinking", "enable_thinking", "thinking_budget", "verbosity", "prompt_cache_key",
    "prompt_cache_retention", "safety_identifier", "return_token_ids", "return_tokens_as_token_ids", "session_id",
    "request_id", "cache_salt", "priority", "provider", "transforms", "models", "route", "plugins", "usage",
    "extra_body", "extra_headers", "timeout",
})  # fmt: skip
"""Parameters of known meaning that have no effect here."""

KNOWN = HONOURED | REFUSED.keys() | NEUTRALISED


def parse_request(body: object, headers: Mapping[str, str]) -> ChatRequest:
    """The request in a decoded JSON body.

    Raises:
        RefusedError: kind `request`, naming the field.
    """
    given = fields.mapping(body, "body")
    neutralised: list[str] = []
    for key, allowed in REFUSED.items():
        fields.neutral(given, key, *allowed)
    if fields.integer(given, "n") not in (None, 1):
        raise bad_request("n", "must be 1; this gateway samples one reply a call")
    if fields.integer(given, "top_logprobs", at_least=0):
        raise bad_request("top_logprobs", "must be 0; this gateway knows the sampled tokens' log-probs only")
    messages = parse_messages(given.get("messages"))
    tools = _tools(given, neutralised)
    stream = fields.boolean(given, "stream")
    usage = _stream_usage(given, neutralised)
    model = given.get("model")
    request = ChatRequest(
        dialect="chat",
        model="" if model is None else fields.text(model, "model")[:256],
        messages=messages,
        tools=tools,
        sampling=_sampling(given, neutralised),
        stream=stream,
        stream_usage=stream and usage,
        logprobs=fields.boolean(given, "logprobs"),
        retry=fields.retried(headers),
    )
    neutralised += sorted(key for key in NEUTRALISED if given.get(key) is not None)
    request.neutralised = neutralised + fields.unknown(given, KNOWN)
    return request


def _sampling(given: Mapping[str, Any], neutralised: list[str]) -> Sampling:
    old = fields.integer(given, "max_tokens", at_least=1)
    new = fields.integer(given, "max_completion_tokens", at_least=1)
    if old is not None and new is not None and old != new:
        neutralised.append("max_tokens")
    return Sampling(
        max_tokens=old if new is None else new,
        temperature=fields.number(given, "temperature"),
        top_p=fields.number(given, "top_p"),
        top_k=fields.integer(given, "top_k"),
        seed=fields.integer(given, "seed"),
        stop=_stop(given.get("stop")),
    )


def _stop(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list):
        raise bad_request("stop", "must be a string or a list of strings")
    if len(words) > STOPS:
        raise bad_request("stop", f"must have {STOPS} strings or fewer")
    stops = tuple(fields.text(word, "stop") for word in words)
    if not all(0 < len(word) <= STOP_CHARS for word in stops):
        raise bad_request("stop", f"must have strings of 1 to {STOP_CHARS} characters")
    return stops


def _stream_usage(given: Mapping[str, Any], neutralised: list[str]) -> bool:
    value = given.get("stream_options")
    if value is None:
        return False
    options = fields.mapping(value, "stream_options")
    usage = fields.boolean(options, "include_usage", prefix="stream_options.")
    if any(key != "include_usage" and other is not None for key, other in options.items()):
        neutralised.append("stream_options")
    return usage


def _tools(given: Mapping[str, Any], neutralised: list[str]) -> list[ToolSpec]:
    value = given.get("tools")
    specs = [] if value is None else fields.listing(value, "tools")
    tools = [_tool(fields.mapping(tool, f"tools[{index}]"), f"tools[{index}]") for index, tool in enumerate(specs)]
    if any(tool["function"].get("strict") for tool in specs):
        neutralised.append("strict")
    if fields.boolean(given, "parallel_tool_calls", default=True) is False:
        neutralised.append("parallel_tool_calls")
    choice = given.get("tool_choice")
    if choice is None or choice == "auto":
        return tools
    if choice != "none":
        raise bad_request("tool_choice", "cannot be forced by this gateway; use 'auto' or 'none'")
    if tools:
        neutralised.append("tools")
    return []


def _tool(tool: dict[str, Any], param: str) -> ToolSpec:
    kind = tool.get("type")
    if kind != "function":
        raise bad_request(f"{param}.type", f"cannot be {shown(kind)}; only 'function' tools are supported")
    function = fields.mapping(tool.get("function"), f"{param}.function")
    name = fields.text(function.get("name"), f"{param}.function.name")
    if TOOL_NAME.fullmatch(name) is None:
        raise bad_request(f"{param}.function.name", "must be 1 to 128 letters, digits, '_', '.', ':' or '-'")
    description, parameters = function.get("description"), function.get("parameters")
    return ToolSpec(
        name=name,
        description="" if description is None else fields.text(description, f"{param}.function.description"),
        parameters={"type": "object", "properties": {}}
        if parameters is None
        else fields.schema(parameters, f"{param}.function.parameters"),
    )
