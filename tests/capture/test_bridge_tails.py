"""What a bridge puts behind a sample is what a full rendering of the conversation would end with."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qwen_tokenizer import PLAIN_TOKENS, SPECIAL_TOKENS, qwen_renderer, qwen_tokenizer

from console.capture.chat import ChatMessage, ToolCall, ToolSpec
from console.capture.rendering import PolicyRenderer

NAMES = [
    "qwen3",
    "qwen3_instruct",
    "qwen3_disable_thinking",
    "qwen3_5",
    "qwen3_5_disable_thinking",
    "qwen3_5_preserve_thinking",
    "qwen3_8_xhigh_reasoning",
    "qwen3_8_disable_thinking",
]
TOOLS = [ToolSpec(name="bash", description="runs", parameters={"properties": {"command": {"type": "string"}}})]
_made: dict[str, PolicyRenderer] = {}


def policy(name: str) -> PolicyRenderer:
    if name not in _made:
        _made[name] = PolicyRenderer(qwen_renderer(name), name=name)
    return _made[name]


def end_of(policy: PolicyRenderer) -> int:
    (end,) = policy.sampling_stop()
    assert isinstance(end, int)
    return end


_TEXT = st.lists(
    st.one_of(st.sampled_from([*SPECIAL_TOKENS[:3], *PLAIN_TOKENS, "\n", " ", "out", "é"]), st.text(max_size=5)),
    max_size=5,
).map("".join)


@st.composite
def _new_messages(draw: st.DrawFn) -> list[ChatMessage]:
    """What agents put behind a reply: results, often several, a user's turn, a system message in between."""
    roles = draw(st.lists(st.sampled_from(["tool", "tool", "tool", "user", "system"]), min_size=1, max_size=5))
    return [
        ChatMessage(role=role, text=draw(_TEXT), tool_call_id=f"c{n}" if role == "tool" else "")  # type: ignore[arg-type]
        for n, role in enumerate(roles)
    ]


def check_tail(policy: PolicyRenderer, history: Sequence[ChatMessage], new: Sequence[ChatMessage]) -> array[int]:
    tail = policy.extend(history[-1], new, end_of(policy))
    assert tail is not None
    full = policy.render([*history, *new], TOOLS)
    assert full[-len(tail) :] == tail
    assert full[-len(tail) - 1] == end_of(policy)
    return tail


@settings(max_examples=60, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("name", NAMES)
def test_the_tail_is_that_of_a_full_rendering(name: str, data: st.DataObject) -> None:
    calls = [
        ToolCall(id=f"c{n}", name="bash", arguments='{"command": "ls"}') for n in range(data.draw(st.integers(0, 3)))
    ]
    reply = ChatMessage(role="assistant", text=data.draw(_TEXT), reasoning=data.draw(_TEXT), tool_calls=calls)
    history = [ChatMessage(role="system", text="sys"), ChatMessage(role="user", text="go"), reply]
    new = data.draw(_new_messages())
    tail = check_tail(policy(name), history, new)
    shown = policy(name).text_of(tail)
    for message in new:
        # Templates of the later families trim what is said.
        assert message.text.strip() in shown
    ends = list(tail).count(end_of(policy(name)))
    assert ends <= len(new)


@pytest.mark.parametrize("name", NAMES)
def test_forty_turns_of_any_shape_bridge(name: str) -> None:
    """Samples as a policy makes them, tokens that no tokenizer would write among them, parsed and sent back."""
    rng = random.Random(name)
    qwen = policy(name)
    tokenizer = qwen_tokenizer()
    messages = [ChatMessage(role="system", text="sys"), ChatMessage(role="user", text="Fix it.")]
    prompt = qwen.render(messages, TOOLS)
    for turn in range(40):
        sample = array("i", [*_sample(rng, name, tokenizer, canonical=turn % 2 == 0), end_of(qwen)])
        parsed = qwen.parse(sample, TOOLS, f"n{turn}x00000000", stop_reason="stop")
        reply = ChatMessage(
            role="assistant", text=parsed.text, reasoning=parsed.reasoning, tool_calls=parsed.tool_calls
        )
        results = [
            ChatMessage(role="tool", text=f"out {turn} </tool_response><|im_end|>", tool_call_id=call.id)
            for call in parsed.tool_calls
        ]
        if turn % 7 == 3 or not results:
            results.append(ChatMessage(role="user", text="Go on."))
        if turn % 5 == 2:
            results.insert(0, ChatMessage(role="system", text="Mind the time."))
        messages.append(reply)
        tail = check_tail(qwen, messages, results)
        prompt = prompt + sample + tail
        messages += results
    text = tokenizer.decode(list(prompt))
    assert text.count("<|im_start|>assistant\n") == 41
    assert sum(token == end_of(qwen) for token in prompt) == text.count("<|im_end|>") - text.count(
        "</tool_response><|im_end|>\n</tool_response>"
    )


def _sample(rng: random.Random, name: str, tokenizer: object, *, canonical: bool) -> list[int]:
    thinks = name in ("qwen3", "qwen3_5", "qwen3_5_preserve_thinking", "qwen3_8_xhigh_reasoning")
    thought = rng.choice(["I look. ", "", "Maybe `x`?\n\nYes."]) + "\n</think>\n\n"
    before = ("<think>\n" if name == "qwen3" else "") + thought if thinks else ""
    said = rng.choice(["", "Let me look.\n\n", "Checking  twice \n", "Ünïcode → ok.\n"])
    if name.startswith("qwen3_"):
        call = (
            "<tool_call>\n<function=bash>\n<parameter=command>\n  echo 'hé' \n</parameter>\n</function>\n</tool_call>"
        )
    else:
        call = '<tool_call>\n{"name": "bash", "arguments": {"command":  "echo"}}\n</tool_call>'
    text = before + said + "\n".join([call] * rng.randint(0, 3))
    step = 10_000 if canonical else 3
    ids: list[int] = []
    at = 0
    while at < len(text):
        tag = next((tag for tag in PLAIN_TOKENS if text.startswith(tag, at)), "")
        end = at + len(tag or text[at : at + step].partition("<")[0] or "<")
        ids += tokenizer.encode(text[at:end], add_special_tokens=False)  # type: ignore[attr-defined]
        at = end
    return ids


def test_what_cannot_be_bridged() -> None:
    qwen = policy("qwen3_5")
    last = ChatMessage(role="assistant", text="ok")
    user = ChatMessage(role="user", text="more")
    assert qwen.extend(last, [user], end_of(qwen)) is not None
    assert qwen.extend(last, [user], end_of(qwen) - 1) is None, "a reply that was cut off"
    assert qwen.extend(user, [user], end_of(qwen)) is None, "nothing to bridge from"
    assert qwen.extend(last, [user, last], end_of(qwen)) is None, "a reply that was not sampled"
    template = PolicyRenderer(qwen_renderer(), name="qwen3_5", history_thinking="template")
    assert template.extend(last, [user], end_of(qwen)) is None
    assert not template.bridges
    for name in ("nemotron3", "kimi_k2", "role_colon"):
        other = PolicyRenderer(qwen_renderer(name), name=name)
        assert not other.bridges
        assert other.extend(last, [user], end_of(qwen)) is None


def test_a_reply_that_is_continued_without_a_message_begins_the_next_one() -> None:
    qwen = policy("qwen3_5")
    reply = ChatMessage(role="assistant", text="ok")
    tail = check_tail(qwen, [ChatMessage(role="user", text="go"), reply], [])
    assert qwen.text_of(tail) == "\n<|im_start|>assistant\n<think>\n"


def test_the_bundled_model_bridges() -> None:
    from tinker_cookbook.renderers import get_renderer

    from console.training.tokenizer import LightTokenizer

    directory = Path(__file__).resolve().parents[2] / "configs" / "models" / "midshipman"
    light = PolicyRenderer(get_renderer("qwen3_instruct", LightTokenizer(directory)), name="qwen3_instruct")  # type: ignore[arg-type]
    assert light.bridges
    history = [ChatMessage(role="user", text="List the files."), ChatMessage(role="assistant", text="ls")]
    tail = check_tail(
        light, history, [ChatMessage(role="tool", text="a <|im_end|> b"), ChatMessage(role="user", text="x")]
    )
    assert light.text_of(tail).count("<|im_end|>") == 3
    assert list(tail).count(end_of(light)) == 2
