"""Samples are taken apart into thoughts, visible text and typed tool calls."""

from __future__ import annotations

import json
import random
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qwen_tokenizer import qwen_renderer, qwen_tokenizer

from console.capture.chat import ToolSpec
from console.capture.parsing import Parsed
from console.capture.rendering import PolicyRenderer

NODE = "n3x0a1b2c3d"
TOOLS = [
    ToolSpec(
        name="bash",
        parameters={
            "type": "object",
            "properties": {"command": {"type": "string"}, "timeout": {"type": "integer"}, "env": {"type": "object"}},
        },
    )
]
THINKING = ["qwen3_5", "qwen3_8_xhigh_reasoning"]
XML = [*THINKING, "qwen3_5_disable_thinking"]
JSON = ["qwen3", "qwen3_instruct", "qwen3_disable_thinking"]

_made: dict[str, PolicyRenderer] = {}


def policy(name: str) -> PolicyRenderer:
    if name not in _made:
        _made[name] = PolicyRenderer(qwen_renderer(name), name=name)
    return _made[name]


def encode(text: str) -> list[int]:
    return list(qwen_tokenizer().encode(text, add_special_tokens=False))


def parse(name: str, text: str, *, end: bool = True, tools: list[ToolSpec] = TOOLS) -> Parsed:
    tokens = encode(text) + ([encode("<|im_end|>")[0]] if end else [])
    parsed = policy(name).parse(tokens, tools, NODE, stop_reason="stop" if end else "length")
    assert parsed.raw == text
    assert len(parsed.pieces) == len(tokens)
    assert "".join(parsed.pieces) == parsed.raw
    return parsed


def xml(command: str, **others: str) -> str:
    values = {"command": command} | others
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function=bash>\n{inner}</function>\n</tool_call>"


def arguments(parsed: Parsed) -> list[Any]:
    return [json.loads(call.arguments) for call in parsed.tool_calls]


@pytest.mark.parametrize("name", THINKING)
def test_a_thought_that_the_prompt_began(name: str) -> None:
    parsed = parse(name, "I look.\nThen I act.\n</think>\n\nLet me look.\n\n" + xml("ls"))
    assert (parsed.reasoning, parsed.text) == ("I look.\nThen I act.", "Let me look.")
    assert parsed.reasoning_tokens == len(encode("I look.\nThen I act.\n</think>"))
    assert [call.name for call in parsed.tool_calls] == ["bash"]
    assert [call.id for call in parsed.tool_calls] == [f"call_{NODE}_0"]
    assert not parsed.malformed


@pytest.mark.parametrize("name", [*THINKING, "qwen3", "qwen3_instruct", "qwen3_5_disable_thinking"])
def test_a_thought_that_the_sample_began(name: str) -> None:
    parsed = parse(name, "<think>\nI look.\n</think>\n\nDone.\n")
    assert (parsed.reasoning, parsed.text) == ("I look.", "Done.\n")
    assert parsed.reasoning_tokens == len(encode("<think>\nI look.\n</think>"))


@pytest.mark.parametrize("name", [*THINKING, "qwen3"])
def test_a_thought_that_was_cut_off_is_never_visible(name: str) -> None:
    parsed = parse(name, ("" if name in THINKING else "<think>\n") + "I wonder about " + xml("rm -rf /"), end=False)
    assert parsed.text == ""
    assert parsed.tool_calls == []
    assert "I wonder about" in parsed.reasoning
    assert parsed.reasoning_tokens == len(parsed.pieces)


@pytest.mark.parametrize("name", THINKING)
def test_a_thought_that_nothing_closes_ends_at_the_calls_of_a_finished_reply(name: str) -> None:
    parsed = parse(name, "I look.\n" + xml("ls"))
    assert (parsed.reasoning, parsed.text, arguments(parsed)) == ("I look.", "", [{"command": "ls"}])
    only = parse(name, "I look and say nothing.")
    assert (only.reasoning, only.text) == ("I look and say nothing.", "")


def test_an_end_without_a_beginning_ends_a_thought_where_the_policy_thinks() -> None:
    assert parse("qwen3", "I look.\n</think>\n\nDone.").reasoning == "I look."
    assert parse("qwen3_5_disable_thinking", "a </think> b").text == "a </think> b"


@pytest.mark.parametrize("name", THINKING)
def test_thoughts_in_the_middle_are_thoughts(name: str) -> None:
    parsed = parse(name, "one\n</think>\n\nvisible <think>two</think> again")
    assert (parsed.reasoning, parsed.text) == ("one\n\ntwo", "visible  again")
    expected = len(encode("one\n</think>")) + len(encode("<think>two</think>"))
    assert parsed.reasoning_tokens == expected


@pytest.mark.parametrize("name", THINKING)
def test_a_thought_that_nothing_closes_behind_text_is_a_word(name: str) -> None:
    """Keystrokes, files and explanations have the word in them; a reply that was cut off may have begun to think."""
    keys = '{"keystrokes": "grep \'<think>\' a.txt\\n", "more": "<think>"}'
    whole = parse(name, f"I look.\n</think>\n\n{keys}\n")
    assert (whole.reasoning, whole.text) == ("I look.", keys + "\n")
    assert whole.reasoning_tokens == len(encode("I look.\n</think>"))
    cut = parse(name, f"I look.\n</think>\n\n{keys}\n", end=False)
    assert (cut.reasoning, cut.text) == ("I look.\n\n" + keys.split("<think>", 1)[1], keys.split("<think>", 1)[0])
    called = parse(name, "I look.\n</think>\n\nNow <think>more\n" + xml("ls"))
    assert (called.reasoning, called.text) == ("I look.\n\nmore", "Now ")
    again = parse(name, "I look.\n</think>\n\n<think>And more")
    assert (again.reasoning, again.text) == ("I look.\n\nAnd more", "")


@pytest.mark.parametrize("name", XML)
@pytest.mark.parametrize(
    "command",
    [
        "true",
        '{"a": 1}',
        "5",
        "null",
        "  cd /tmp\n\tmake -j4",
        "git diff\n",
        "\n\nfirst lines empty",
        "printf 'a\\tb\\r\\n'",
        "",
        "echo '</parameter>' > x",
        "echo '</function>' '</tool_call>'",
        "echo '<parameter=x>' '<tool_call>'",
        "echo '</think> <think>'",
        "héllo → ✓ 日本 👩‍👩‍👧",
        "cat <<'EOF'\n</parameter>\n</parameter>\nEOF",
    ],
)
def test_a_string_parameter_arrives_as_it_was_written(name: str, command: str) -> None:
    before = "\n</think>\n\n" if name in THINKING else ""
    parsed = parse(name, before + xml(command))
    assert arguments(parsed) == [{"command": command}]
    assert parsed.text == ""


@pytest.mark.parametrize("name", XML)
def test_parameters_are_typed_by_the_schema(name: str) -> None:
    before = "\n</think>\n\n" if name in THINKING else ""
    parsed = parse(name, before + xml("5", timeout="30", env='{"A": "b"}', other="[1]", word="true"))
    assert arguments(parsed) == [{"command": "5", "timeout": 30, "env": {"A": "b"}, "other": [1], "word": "true"}]
    assert arguments(parse(name, before + xml("x", timeout="soon")))[0]["timeout"] == "soon"


@pytest.mark.parametrize("name", JSON)
def test_calls_as_json(name: str) -> None:
    call = '<tool_call>\n{"name": "bash", "arguments": {"command": "echo </tool_call>", "timeout": "5"}}\n</tool_call>'
    again = '<tool_call>{"name": "x", "arguments": {}}</tool_call>'
    parsed = parse(name, f"Look:\n{call}\n{again}")
    assert [(c.name, c.id) for c in parsed.tool_calls] == [("bash", f"call_{NODE}_0"), ("x", f"call_{NODE}_1")]
    assert arguments(parsed) == [{"command": "echo </tool_call>", "timeout": 5}, {}]
    assert parsed.text == "Look:"


@pytest.mark.parametrize("name", JSON)
def test_a_string_argument_stays_a_string_in_json_too(name: str) -> None:
    parsed = parse(name, '<tool_call>\n{"name": "bash", "arguments": {"command": true}}\n</tool_call>')
    assert arguments(parsed) == [{"command": "true"}]
    parsed = parse(name, '<tool_call>\n{"name": "bash", "arguments": "{\\"command\\": \\"ls\\"}"}\n</tool_call>')
    assert arguments(parsed) == [{"command": "ls"}]


@pytest.mark.parametrize(
    "broken",
    [
        "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</function>\n</tool_call>",
        "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</tool_call>",
        "<tool_call>\n<function=bash>\nls\n</function>\n</tool_call>",
        "<tool_call>\n<function=>\n</function>\n</tool_call>",
        "<tool_call>\n<function=bash>\n<parameter=>\nx\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=f><parameter=p>1</parameter><parameter=p>2</parameter></function></tool_call>",
        "<tool_call>\nls\n</tool_call>",
        "<tool_call></tool_call>",
        '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}\n</tool_call>',
        '<tool_call>\n{"name": "bash"}\n</tool_call>',
        '<tool_call>\n{"name": 5, "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "bash", "arguments": [1]}\n</tool_call>',
        '<tool_call>\n{"name": "bash", "arguments": {"timeout": NaN}}\n</tool_call>',
        '<tool_call>\n{"name": "bash", "arguments": ' + '{"a":' * 3000 + "\n</tool_call>",
    ],
)
@pytest.mark.parametrize("name", ["qwen3_5", "qwen3"])
def test_what_cannot_be_read_stays_visible_beside_what_can(name: str, broken: str) -> None:
    good = (
        xml("ls")
        if name == "qwen3_5"
        else '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
    )
    before = "\n</think>\n\n" if name == "qwen3_5" else ""
    for order in ((broken, good), (good, broken), (good, broken, good)):
        parsed = parse(name, before + "Now:\n\n" + "\n".join(order))
        assert arguments(parsed) == [{"command": "ls"}] * order.count(good)
        assert parsed.text == f"Now:\n\n{broken}"
        assert parsed.malformed


def test_a_call_that_was_never_closed_does_not_swallow_the_next() -> None:
    parsed = parse("qwen3_5", "\n</think>\n\n<tool_call>\n<function=bash>\n<parameter=command>\nls\n" + xml("pwd"))
    assert arguments(parsed) == [{"command": "pwd"}]
    assert parsed.text == "<tool_call>\n<function=bash>\n<parameter=command>\nls"
    assert parsed.malformed


@pytest.mark.parametrize("name", XML)
def test_complete_calls_of_a_reply_that_was_cut_off(name: str) -> None:
    before = "think\n</think>\n\n" if name in THINKING else ""
    cut = "<tool_call>\n<function=bash>\n<parameter=command>\necho"
    parsed = parse(name, before + xml("ls") + "\n" + xml("pwd") + "\n" + cut, end=False)
    assert arguments(parsed) == [{"command": "ls"}, {"command": "pwd"}]
    assert parsed.text == cut
    assert parsed.malformed


def test_text_without_calls_is_left_as_it_is() -> None:
    parsed = parse("qwen3_5", "x\n</think>\n\n  Hello \n\n- item \n\n")
    assert parsed.text == "  Hello \n\n- item \n\n"
    assert parse("qwen3_instruct", "\n Hello \n").text == "\n Hello \n"
    assert parse("qwen3_5", "").text == ""


def test_pieces_of_characters_that_are_spread_over_tokens() -> None:
    for text in ("👩‍👩‍👧 é\u0301 日本語", "\ufffd\ufffd", "𝔘𝔫𝔦 ✓"):
        assert parse("qwen3_instruct", text).text == text
    tokens = encode("👍")
    assert len(tokens) > 1
    parsed = policy("qwen3_instruct").parse(array("i", tokens), [], NODE, stop_reason="length")
    assert parsed.pieces == [""] * (len(tokens) - 1) + ["👍"]
    twice = policy("qwen3_instruct").parse([*tokens, *tokens], [], NODE, stop_reason="length")
    assert twice.pieces == parsed.pieces * 2
    cut = policy("qwen3_instruct").parse([*encode("a"), tokens[0], *encode("b")], [], NODE, stop_reason="length")
    assert cut.pieces == ["a", "\ufffd", "b"]
    broken = policy("qwen3_instruct").parse([*tokens[:-1], *encode(" x")], [], NODE, stop_reason="length")
    assert "".join(broken.pieces) == broken.raw == broken.text
    assert broken.raw.endswith(" x")


@settings(max_examples=150, deadline=None)
@given(
    tokens=st.lists(st.one_of(st.integers(0, 100_281), st.integers(0, 255), st.integers(100_270, 100_281)), max_size=60)
)
@pytest.mark.parametrize("name", ["qwen3_5", "qwen3"])
def test_any_tokens_can_be_taken_apart(name: str, tokens: list[int]) -> None:
    for reason in ("stop", "length"):
        parsed = policy(name).parse(tokens, TOOLS, NODE, stop_reason=reason)
        assert "".join(parsed.pieces) == parsed.raw
        assert len(parsed.pieces) == len(tokens)
        assert 0 <= parsed.reasoning_tokens <= len(tokens)
        assert all(isinstance(json.loads(call.arguments), dict) for call in parsed.tool_calls)


_WORDS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<function=bash>",
    "</function>",
    "<parameter=command>",
    "<parameter=n>",
    "</parameter>",
    '{"name": "b", "arguments": {"x": "é"}}',
    xml("é"),
    xml("</think>é</parameter>"),
    "{",
    "\n",
    "é",
]


@settings(max_examples=500, deadline=None)
@given(parts=st.lists(st.sampled_from(_WORDS), max_size=25), end=st.booleans())
@pytest.mark.parametrize("name", ["qwen3_5", "qwen3"])
def test_nothing_that_was_said_is_lost_or_said_twice(name: str, parts: list[str], end: bool) -> None:
    text = "".join(parts)
    parsed = parse(name, text, end=end)
    said = parsed.text + parsed.reasoning + "".join(call.arguments for call in parsed.tool_calls)
    assert said.count("é") == text.count("é")
    assert parsed.malformed == ("<tool_call>" in parsed.text)


def test_samples_that_no_tokenizer_would_write_say_the_same() -> None:
    rng = random.Random(5)
    text = "I look at it.\n</think>\n\nLet me see.\n\n" + xml("echo héllo → ✓ && true", timeout="12")
    for _ in range(40):
        tokens: list[int] = []
        at = 0
        while at < len(text):
            # Tags stay whole, as the policy was taught them; all else is cut anywhere.
            tag = next((t for t in ("</think>", "<tool_call>", "</tool_call>") if text.startswith(t, at)), "")
            end = at + (len(tag) or rng.randint(1, 4))
            tokens += encode(text[at:end])
            at = end
        parsed = policy("qwen3_5").parse(tokens, TOOLS, NODE, stop_reason="stop")
        assert (parsed.raw, parsed.reasoning, parsed.text) == (text, "I look at it.", "Let me see.")
        assert arguments(parsed) == [{"command": "echo héllo → ✓ && true", "timeout": 12}]


def test_renderers_of_unknown_form_parse_for_themselves() -> None:
    nemotron = policy("nemotron3")
    tokens = encode("I look.\n</think>\n\nSee.\n" + xml("ls") + "<|im_end|>")
    parsed = nemotron.parse(tokens, TOOLS, NODE, stop_reason="stop")
    assert (parsed.reasoning, parsed.text.strip(), arguments(parsed)) == ("I look.", "See.", [{"command": "ls"}])
    assert parsed.reasoning_tokens > 0
    cut = nemotron.parse(encode("I wonder"), TOOLS, NODE, stop_reason="length")
    assert (cut.text, cut.reasoning) == ("", "I wonder")
    bad = nemotron.parse(
        encode("x\n</think>\n\n<tool_call>\n<function=bash>\n<|im_end|>"), TOOLS, NODE, stop_reason="stop"
    )
    assert bad.malformed
    assert bad.text.count("<function=bash>") == 1
    block = "<tool_call>\n<function=bash>\nls\n</function>\n</tool_call>"
    bad = nemotron.parse(encode(f"x\n</think>\n\nSee.\n{block}<|im_end|>"), TOOLS, NODE, stop_reason="stop")
    assert (bad.text, bad.malformed, bad.tool_calls) == (f"See.\n\n{block}", True, [])
    colon = policy("role_colon").parse(encode("Hello\n\nUser:"), [], NODE, stop_reason="stop")
    assert colon.text.strip() == "Hello"


def test_the_bundled_model_with_the_light_tokenizer() -> None:
    from tinker_cookbook.renderers import get_renderer

    from console.training.tokenizer import LightTokenizer

    directory = Path(__file__).resolve().parents[2] / "configs" / "models" / "midshipman"
    tokenizer = LightTokenizer(directory)
    renderer = PolicyRenderer(get_renderer("qwen3_instruct", tokenizer), name="qwen3_instruct")  # type: ignore[arg-type]
    text = 'Look.\n<tool_call>\n{"name": "bash", "arguments": {"command": "ls é"}}\n</tool_call>'
    tokens = tokenizer.encode(text + "<|im_end|>")
    parsed = renderer.parse(tokens, TOOLS, NODE, stop_reason="stop")
    assert (parsed.raw, parsed.text, arguments(parsed)) == (text, "Look.", [{"command": "ls é"}])
    assert "".join(parsed.pieces) == text
