"""Arguments get the types that the request's schema gives them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from console.capture.chat import ToolSpec
from console.capture.tool_values import Schemas, dumped, loaded


def schemas(parameter: Any, **root: Any) -> Schemas:
    return Schemas([ToolSpec(name="t", parameters={"type": "object", "properties": {"p": parameter}} | root)])


STRING = {"type": "string"}
OPTIONAL = {"anyOf": [{"type": "string"}, {"type": "null"}]}
REFERRED = {"$defs": {"n": {"type": "integer"}, "s": {"enum": ["a", "b"]}}}


@pytest.mark.parametrize("text", ["true", "5", '{"a":1}', "null", "[1]", "  x  ", "", "None", "1e5", '"quoted"', "NaN"])
def test_a_string_stays_a_string_whatever_it_looks_like(text: str) -> None:
    assert schemas(STRING).from_text("t", "p", text) == text
    assert schemas({"enum": ["x", "y"]}).from_text("t", "p", text) == text
    assert schemas({"$ref": "#/$defs/s"}, **REFERRED).from_text("t", "p", text) == text


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "integer"}, "5", 5),
        ({"type": "integer"}, " 5\n", 5),
        ({"type": "integer"}, "5.0", 5),
        ({"type": "integer"}, "5.5", "5.5"),
        ({"type": "integer"}, "five", "five"),
        ({"type": "integer"}, "true", "true"),
        ({"type": "number"}, "5", 5),
        ({"type": "number"}, "1e3", 1000.0),
        ({"type": "number"}, "1e999", "1e999"),
        ({"type": "number"}, "Infinity", "Infinity"),
        ({"type": "number"}, "9" * 5000, "9" * 5000),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "False", False),
        ({"type": "boolean"}, "yes", "yes"),
        ({"type": "boolean"}, "1", "1"),
        ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
        ({"type": "object"}, "{'a': 1}", "{'a': 1}"),
        ({"type": "object"}, "[1]", "[1]"),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({"type": "array"}, "[" * 100_000, "[" * 100_000),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": ["integer", "null"]}, "None", None),
        ({"type": "integer", "nullable": True}, "null", None),
        (OPTIONAL, "null", None),
        (OPTIONAL, "None", "None"),
        (OPTIONAL, "true", "true"),
        ({"oneOf": [STRING, {"type": "array"}]}, '["a"]', ["a"]),
        ({"oneOf": [STRING, {"type": "array"}]}, '{"a": 1}', '{"a": 1}'),
        ({"type": ["string", "integer"]}, "7", 7),
        ({"enum": [1, 2]}, "2", 2),
        ({"const": False}, "false", False),
        ({"properties": {}}, "{}", {}),
        ({"items": {}}, "[]", []),
        ({"$ref": "#/$defs/n"}, "3", 3),
        ({}, "5", "5"),
        ({}, '{"a": 1}', {"a": 1}),
    ],
)
def test_other_types_are_taken_from_the_text_when_it_fits(schema: Any, text: str, value: Any) -> None:
    found = schemas(schema, **REFERRED).from_text("t", "p", text)
    assert found == value
    assert type(found) is type(value)


def test_of_unknown_parameters_only_objects_and_arrays_are_guessed() -> None:
    known = schemas(STRING)
    for tool, parameter in (("t", "other"), ("other", "p")):
        assert known.from_text(tool, parameter, "true") == "true"
        assert known.from_text(tool, parameter, "5") == "5"
        assert known.from_text(tool, parameter, '{"a": 1}') == {"a": 1}
        assert known.from_text(tool, parameter, "[1") == "[1"
    assert schemas(STRING, additionalProperties={"type": "integer"}).from_text("t", "other", "5") == 5


@pytest.mark.parametrize(
    ("schema", "given", "value"),
    [
        (STRING, True, "true"),
        (STRING, {"a": "é"}, '{"a": "é"}'),
        (STRING, "5", "5"),
        ({"type": "integer"}, "5", 5),
        ({"type": "integer"}, 5.0, 5),
        ({"type": "integer"}, "five", "five"),
        ({"type": "boolean"}, 1, 1),
        ({"type": "array"}, "[1]", [1]),
        ({}, 5, 5),
        (OPTIONAL, None, None),
    ],
)
def test_decoded_values_are_made_to_fit(schema: Any, given: Any, value: Any) -> None:
    found = schemas(schema).from_value("t", "p", given)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        5,
        {"type": 5},
        {"type": [5, {"a": 1}]},
        {"anyOf": 5},
        {"anyOf": [5, None]},
        {"enum": "abc"},
        {"$ref": "#/nowhere/at/all"},
        {"$ref": "#/properties/p"},
        {"$ref": 5},
        {"anyOf": [{"$ref": "#/properties/p"}] * 500},
    ],
)
def test_schemas_that_make_no_sense_leave_the_text(schema: Any) -> None:
    assert schemas(schema).from_text("t", "p", "5") == "5"
    assert schemas(STRING, properties=schema).from_text("t", "p", "5") == "5"


def test_what_is_not_json_is_refused() -> None:
    for text in ("NaN", "[1e999]", "[" * 100_000, "{", '{"a": -Infinity}'):
        with pytest.raises(ValueError, match=r"."):
            loaded(text)
    with pytest.raises(ValueError, match="JSON"):
        dumped(float("nan"))
    assert json.loads(dumped({"a": "\ud800é"})) == {"a": "?é"}
