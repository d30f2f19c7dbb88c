"""Tools of the Responses API: those that a prompt can offer, and the form in which their calls go back.

A function keeps its name. A custom (free-form) tool becomes a function of one string, `input`; tools of a namespace get
the namespace before their name. What a tool was is kept in `Forms`, by the name that the policy sees.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from console.capture.chat import ToolCall, ToolSpec
from console.capture.dialects import fields
from console.capture.refusals import bad_request, shown

Forms = dict[str, dict[str, str]]
"""By flat name: `kind` (function or custom), `name` and, in a namespace, `namespace`. Plain functions are not in it."""

CUSTOM_INPUT = "input"
TOOL_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")

NOT_OFFERED = frozenset({
    "web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11", "file_search",
    "computer", "computer_use", "computer_use_preview", "code_interpreter", "image_generation", "mcp", "local_shell",
    "shell", "apply_patch", "tool_search", "programmatic_tool_calling",
})  # fmt: skip
"""Tools that the API's server runs or that models are trained to call in a way of their own. Agents offer them whatever
the model; they are left out of the prompt."""


class Tools(msgspec.Struct, kw_only=True):
    """What a request offers. `specs`: for the prompt; `forms`: how their calls go back; `neutralised`: a word for each
    kind of tool, or part of one, that has no effect."""

    specs: list[ToolSpec] = []
    forms: Forms = {}
    neutralised: list[str] = []


def checked_list(value: object, param: str) -> list[dict[str, Any]]:
    """A list of tools, each an object that can be rendered and sent back; null is an empty list.

    Raises:
        RefusedError: kind `request`, naming the field.
    """
    entries = [] if value is None else fields.listing(value, param)
    return [fields.schema(entry, f"{param}[{index}]") for index, entry in enumerate(entries)]


def parse_tools(lists: Iterable[tuple[str, list[dict[str, Any]]]]) -> Tools:
    """The tools of all lists, in order. A tool of a later list replaces one of the same name.

    Args:
        lists: field name and entries of each list, checked by `checked_list`.

    Raises:
        RefusedError: kind `request`, naming the field.
    """
    specs: dict[str, ToolSpec] = {}
    found = Tools()
    for param, entries in lists:
        given: set[str] = set()
        for index, entry in enumerate(entries):
            here = f"{param}[{index}]"
            for spec, form in _tools(entry, here, found.neutralised):
                if spec.name in given:
                    raise bad_request(f"{here}.name", "is the name of an earlier tool")
                given.add(spec.name)
                specs[spec.name] = spec
                found.forms.pop(spec.name, None)
                if form is not None:
                    found.forms[spec.name] = form
    found.specs = list(specs.values())
    return found


def flat_name(namespace: str, name: str) -> str:
    """What the policy calls a tool of a namespace; some agents end a namespace with the separator themselves."""
    if not namespace:
        return name
    return namespace + name if namespace.endswith("__") else f"{namespace}__{name}"


def custom_arguments(text: str) -> str:
    """Arguments of the function that stands for a custom tool."""
    return json.dumps({CUSTOM_INPUT: text}, ensure_ascii=False)


def call_fields(call: ToolCall, forms: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """`type`, `name`, `namespace` and `arguments` or `input` of the item for a call."""
    form = forms.get(call.name, {})
    item: dict[str, Any] = {"type": "function_call", "name": form.get("name", call.name)}
    if "namespace" in form:
        item["namespace"] = form["namespace"]
    if form.get("kind") == "custom":
        return item | {"type": "custom_tool_call", "input": _custom_input(call.arguments)}
    return item | {"arguments": call.arguments}


def _custom_input(arguments: str) -> str:
    """The string that was passed; the arguments as they are when the policy did not pass one."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    text = value.get(CUSTOM_INPUT) if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments


def _note(neutralised: list[str], word: str) -> None:
    if word not in neutralised:
        neutralised.append(word)


def _tools(tool: dict[str, Any], param: str, neutralised: list[str]) -> list[tuple[ToolSpec, dict[str, str] | None]]:
    """The tools that one entry of a list stands for."""
    kind = tool.get("type")
    if isinstance(kind, str) and kind in NOT_OFFERED:
        _note(neutralised, f"tools.{kind}")
        return []
    if kind == "function" or kind == "custom":
        return [_tool(tool, param, kind, "", "", neutralised)]
    if kind != "namespace":
        raise bad_request(f"{param}.type", f"cannot be {shown(kind)}; use function, custom or namespace")
    namespace = _name(tool.get("name"), f"{param}.name")
    about = _description(tool, param)
    found: list[tuple[ToolSpec, dict[str, str] | None]] = []
    for index, item in enumerate(fields.listing(tool.get("tools"), f"{param}.tools")):
        here = f"{param}.tools[{index}]"
        inner = fields.mapping(item, here)
        kind = inner.get("type")
        if isinstance(kind, str) and kind in NOT_OFFERED:
            _note(neutralised, f"tools.{kind}")
            continue
        if kind != "function" and kind != "custom":
            raise bad_request(f"{here}.type", f"cannot be {shown(kind)}; use function or custom")
        # what the namespace is for is said once, with its first tool: with each it would fill the window
        found.append(_tool(inner, here, kind, namespace, "" if found else about, neutralised))
    return found


def _tool(
    tool: dict[str, Any],
    param: str,
    kind: Literal["function", "custom"],
    namespace: str,
    about: str,
    neutralised: list[str],
) -> tuple[ToolSpec, dict[str, str] | None]:
    name = _name(tool.get("name"), f"{param}.name")
    description = "\n\n".join(part for part in (about, _description(tool, param)) if part)
    if kind == "custom":
        form = _format(tool.get("format"), f"{param}.format", neutralised)
        description = "\n\n".join(part for part in (description, form) if part)
        parameters: dict[str, Any] = {
            "type": "object",
            "properties": {CUSTOM_INPUT: {"type": "string", "description": "The whole input, as it is."}},
            "required": [CUSTOM_INPUT],
        }
    else:
        if fields.boolean(tool, "strict", prefix=f"{param}."):
            _note(neutralised, "strict")
        given = tool.get("parameters")
        parameters = {"type": "object", "properties": {}}
        if given is not None:
            parameters = fields.mapping(given, f"{param}.parameters")
    spec = ToolSpec(name=flat_name(namespace, name), description=description, parameters=parameters)
    if kind == "function" and not namespace:
        return spec, None
    return spec, {"kind": kind, "name": name} | ({"namespace": namespace} if namespace else {})


def _name(value: object, param: str) -> str:
    name = fields.text(value, param)
    if TOOL_NAME.fullmatch(name) is None:
        raise bad_request(param, "must be 1 to 128 letters, digits, '_', '.', ':' or '-'")
    return name


def _description(tool: dict[str, Any], param: str) -> str:
    value = tool.get("description")
    return "" if value is None else fields.text(value, f"{param}.description")


def _format(value: object, param: str, neutralised: list[str]) -> str:
    """The format of a custom tool, in words: a grammar is told to the policy, and nothing holds it to it."""
    if value is None:
        return ""
    form = fields.mapping(value, param)
    if form.get("type") == "text":
        return ""
    if form.get("type") != "grammar":
        raise bad_request(f"{param}.type", "must be text or grammar")
    syntax, definition = (fields.text(form.get(key), f"{param}.{key}") for key in ("syntax", "definition"))
    _note(neutralised, "tools.format")
    return f"The input must follow this grammar ({syntax}):\n{definition}"
