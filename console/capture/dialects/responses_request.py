"""Requests of the Responses API: what is honoured, what is refused, and what is known to have no effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from console.capture.chat import ChatMessage, ChatRequest, Sampling
from console.capture.dialects import fields
from console.capture.dialects.responses_items import parse_input
from console.capture.dialects.responses_tools import Tools, checked_list, parse_tools
from console.capture.encodable import encodable
from console.capture.refusals import bad_request

HONOURED = frozenset({
    "input", "instructions", "model", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens",
    "temperature", "top_p", "top_k", "seed", "stream", "stream_options", "top_logprobs", "text", "reasoning",
    "include", "store", "background", "truncation", "metadata",
})  # fmt: skip

STATE: dict[str, str] = {
    "previous_response_id": "cannot be honoured: this gateway keeps no responses; send the whole conversation as input",
    "conversation": "cannot be honoured: this gateway keeps no conversations; send the whole conversation as input",
    "prompt": "cannot be honoured: this gateway has no stored prompts; send their text as instructions and input",
}
"""Parameters that point to something that the API would have kept, and what to do instead."""

REFUSED: dict[str, tuple[object, ...]] = {
    "context_management": ([],),
    "moderation": (),
    "n": (1,),
    "stop": ([],),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "min_p": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
}
"""Parameters that would change what is sampled or shown, with the values that mean "as usual" (null always does)."""

WITHOUT_EFFECT = frozenset({
    "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options",
    "client_metadata", "service_tier", "max_tool_calls",
})  # fmt: skip
"""Parameters of known meaning that have no effect here and are recorded as such, those of `SILENT` aside."""

SILENT = frozenset({
    "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options",
    "client_metadata",
})  # fmt: skip
"""Parameters that have no effect on a reply anywhere."""

METADATA_ENTRIES, METADATA_CHARS = 16, 512


def parse_request(body: object, headers: Mapping[str, str]) -> ChatRequest:
    """The request in a decoded JSON body.

    Raises:
        RefusedError: kind `request`, naming the field.
    """
    given = fields.mapping(body, "body")
    for key, remedy in STATE.items():
        if given.get(key) is not None:
            raise bad_request(key, remedy)
    for key, allowed in REFUSED.items():
        fields.neutral(given, key, *allowed)
    if fields.boolean(given, "background"):
        raise bad_request("background", "cannot be true: this gateway keeps no responses; wait for the reply")
    if fields.integer(given, "top_logprobs", at_least=0):
        raise bad_request("top_logprobs", "must be 0; this gateway knows the sampled tokens' log-probs only")
    neutralised: list[str] = []
    instructions = given.get("instructions")
    said = "" if instructions is None else fields.text(instructions, "instructions")
    read = parse_input(given.get("input"))
    messages = [ChatMessage(role="system", text=said)] if said else []
    messages += read.messages
    if not messages:
        raise bad_request("input", "must not be empty")
    offered = checked_list(given.get("tools"), "tools")
    tools = _tools(given, [("tools", offered), *((param, checked_list(value, param)) for param, value in read.tools)])
    neutralised += tools.neutralised
    echo = _echo(given, neutralised) | {
        "instructions": said or None,
        "tools": offered,
        "forms": tools.forms,
        "compaction": read.compaction,
    }
    model = given.get("model")
    return ChatRequest(
        dialect="responses",
        model="" if model is None else fields.text(model, "model")[:256],
        messages=messages,
        tools=tools.specs,
        sampling=_sampling(given),
        stream=fields.boolean(given, "stream"),
        neutralised=neutralised + read.neutralised + _without_effect(given),
        retry=fields.retried(headers),
        echo=echo,
    )


def _sampling(given: Mapping[str, Any]) -> Sampling:
    return Sampling(
        max_tokens=fields.integer(given, "max_output_tokens", at_least=1),
        temperature=fields.number(given, "temperature"),
        top_p=fields.number(given, "top_p"),
        top_k=fields.integer(given, "top_k"),
        seed=fields.integer(given, "seed"),
    )


def _tools(given: Mapping[str, Any], lists: list[tuple[str, list[dict[str, Any]]]]) -> Tools:
    tools = parse_tools(lists)
    if not fields.boolean(given, "parallel_tool_calls", default=True):
        tools.neutralised.append("parallel_tool_calls")
    choice = given.get("tool_choice")
    if choice is None or choice == "auto":
        return tools
    if choice != "none":
        raise bad_request("tool_choice", "cannot be forced by this gateway; use 'auto' or 'none'")
    return Tools(neutralised=[*tools.neutralised, "tools"] if tools.specs else tools.neutralised)


def _echo(given: Mapping[str, Any], neutralised: list[str]) -> dict[str, Any]:
    """What a response repeats of its request; checks those fields and notes the ones without effect."""
    return {
        "tool_choice": given.get("tool_choice") or "auto",
        "parallel_tool_calls": fields.boolean(given, "parallel_tool_calls", default=True),
        "metadata": _metadata(given.get("metadata")),
        "text": _text(given.get("text"), neutralised),
        "reasoning": _reasoning(given.get("reasoning"), neutralised),
        "truncation": _truncation(given.get("truncation"), neutralised),
    }


def _metadata(value: object) -> dict[str, str]:
    if value is None:
        return {}
    entries = fields.mapping(value, "metadata")
    if len(entries) > METADATA_ENTRIES:
        raise bad_request("metadata", f"must have {METADATA_ENTRIES} entries or fewer")
    for entry in entries.values():
        if not isinstance(entry, str) or len(entry) > METADATA_CHARS:
            raise bad_request("metadata", f"must map to strings of {METADATA_CHARS} characters or fewer")
    return {encodable(key): encodable(entry) for key, entry in entries.items()}


def _text(value: object, neutralised: list[str]) -> dict[str, Any]:
    verbosity = None
    if value is not None:
        options = fields.mapping(value, "text")
        form = options.get("format")
        if form is not None and fields.mapping(form, "text.format").get("type") != "text":
            raise bad_request("text.format", "cannot be honoured by this gateway; leave it out")
        verbosity = _word(options, "text", "verbosity", neutralised)
    return {"format": {"type": "text"}, "verbosity": verbosity}


def _reasoning(value: object, neutralised: list[str]) -> dict[str, Any]:
    """`summary` says whether thoughts are sent as a summary too."""
    if value is None:
        return {"effort": None, "summary": None}
    options = fields.mapping(value, "reasoning")
    effort = _word(options, "reasoning", "effort", neutralised)
    # what another server would do with earlier thoughts is up to this gateway's own setting
    _word(options, "reasoning", "context", neutralised)
    summary = None
    for key in ("generate_summary", "summary"):
        word = options.get(key)
        if word is not None and fields.text(word, f"reasoning.{key}") != "none":
            summary = "detailed"  # it is the whole text
    return {"effort": effort, "summary": summary}


def _word(options: Mapping[str, Any], parent: str, key: str, neutralised: list[str]) -> str | None:
    value = options.get(key)
    if value is None:
        return None
    neutralised.append(f"{parent}.{key}")
    return fields.text(value, f"{parent}.{key}")[:64]


def _truncation(value: object, neutralised: list[str]) -> str:
    if value is not None and value not in ("auto", "disabled"):
        raise bad_request("truncation", "must be auto or disabled")
    if value == "auto":
        neutralised.append("truncation")
    return "disabled"


def _without_effect(given: Mapping[str, Any]) -> list[str]:
    found = []
    if fields.boolean(given, "store"):
        found.append("store")
    include = given.get("include")
    words = [fields.text(word, "include") for word in ([] if include is None else fields.listing(include, "include"))]
    if "message.output_text.logprobs" in words:
        found.append("include")
    options = given.get("stream_options")
    if options is not None and any(
        value is not None and key != "include_obfuscation"
        for key, value in fields.mapping(options, "stream_options").items()
    ):
        found.append("stream_options")
    tier = given.get("service_tier")
    if tier is not None and fields.text(tier, "service_tier") not in ("auto", "default"):
        found.append("service_tier")
    noted = WITHOUT_EFFECT - SILENT - {"service_tier"}
    found += sorted(key for key in noted if given.get(key) is not None)
    return found + fields.unknown(given, HONOURED | WITHOUT_EFFECT | STATE.keys() | REFUSED.keys())
