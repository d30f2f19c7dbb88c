"""What is written down of a conversation: each message once, every reply, and no secret."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from console.capture import turns
from console.capture.turns import CALL_CHARS, MESSAGE_CHARS, Conversation, Decoder
from console.control.messages import Ask
from console.records.content import TrialContent

SECRET = "route-token-123"


class Letters:
    """A tokenizer of code points; 0 ends a reply, and half of one is no character."""

    tokenizer: Any = None

    def __init__(self) -> None:
        self.tokenizer = self
        self.decoded = 0

    def decode(self, ids: list[int]) -> str:
        self.decoded += 1
        return "".join("\ufffd" if i == 1 else "<end>" if i == 0 else chr(i) for i in ids)

    def get_stop_sequences(self) -> list[int]:
        return [0]


def ids(text: str) -> list[int]:
    return [ord(c) for c in text] + [0]


@pytest.fixture
def talk():
    conversation, decoder = Conversation(SECRET), Decoder(Letters())

    def call(*messages, reply="ok"):
        dicts = [{"role": m[0], "content": m[1], **(m[2] if len(m) > 2 else {})} for m in messages]
        return conversation.text_of(dicts, ids(reply), decoder)

    return call


def seen(text) -> list[tuple[str, str]]:
    return [(m.role, m.text) for m in text.messages]


def test_each_message_is_written_once(talk):
    start = [("system", "be brief"), ("user", "hi")]
    first = talk(*start, reply="ls")
    assert (seen(first), first.kept, first.reply) == (start, 0, "ls")
    assert first.pieces == ["l", "s", "<end>"]
    second = talk(*start, ("assistant", "ls"), ("user", "a b"), reply="cat a")
    assert (seen(second), second.kept) == ([("user", "a b")], 3)
    third = talk(*start, ("assistant", "ls"), ("user", "a b"), ("assistant", "cat a"), ("tool", "x"))
    assert (seen(third), third.kept) == ([("tool", "x")], 5)


def test_a_reply_that_comes_back_without_its_thoughts_is_the_same(talk):
    talk(("user", "hi"), reply="<think>hm</think>ls <tool_call>{}</tool_call>")

    class Call:
        class function:
            name, arguments = "run", "{}"

    back = ("assistant", "ls", {"tool_calls": [Call]})
    assert seen(talk(("user", "hi"), back, ("tool", "x"))) == [("tool", "x")]
    edited = talk(("user", "hi"), ("assistant", "something else"), ("tool", "x"))
    assert seen(edited) == [("assistant", "something else"), ("tool", "x")]


def test_a_history_that_was_rewritten_starts_where_it_differs(talk):
    talk(("system", "s"), ("user", "a"), reply="1")
    talk(("system", "s"), ("user", "a"), ("assistant", "1"), ("user", "b"), reply="2")
    compacted = talk(("system", "s"), ("user", "summary"), reply="3")
    assert (seen(compacted), compacted.kept) == ([("user", "summary")], 1)
    other = talk(("system", "helper"), ("user", "q"), reply="4")
    assert (seen(other), other.kept) == ([("system", "helper"), ("user", "q")], 0)
    again = talk(("system", "s"), ("user", "summary"), ("assistant", "3"), ("user", "go on"))
    assert seen(again) == [("user", "go on")]


def test_a_secret_is_never_written_down(talk):
    text = talk(("tool", f"KEY={SECRET} {SECRET}"), reply=f"echo {SECRET}")
    assert SECRET not in msgspec.json.encode(text).decode() and SECRET not in "".join(text.pieces)
    assert text.reply == "echo [redacted]" and text.messages[0].text == "KEY=[redacted] [redacted]"


def test_long_and_odd_texts_are_bounded_and_can_be_written(talk):
    messages = [("user", "x" * 40_000)] * 7 + [("tool", [{"type": "text", "text": "\ud800"}, {"type": "image"}])]
    text = talk(*messages, ("r\ud800", None), reply="y" * 30_000)
    sizes = [len(m.text) for m in text.messages]
    assert max(sizes) == MESSAGE_CHARS and sum(sizes) <= CALL_CHARS
    assert [len(m.text) + m.cut for m in text.messages] == [40_000] * 7 + [len("?\n[image]"), 0]
    assert text.messages[0].cut == 40_000 - MESSAGE_CHARS
    assert (len(text.reply), text.reply_cut) == (MESSAGE_CHARS, 30_000 - MESSAGE_CHARS)
    assert b"\\ud800" not in msgspec.json.encode(text)
    many = talk(*[("user", str(number)) for number in range(500)])
    assert len(many.messages) == turns.MESSAGES_AT_MOST and many.messages[-1].text == "499" and many.kept == 300


def test_each_token_is_decoded_once():
    letters = Letters()
    decoder = Decoder(letters)
    assert decoder.pieces([97, 98, 97, 1]) == ["a", "b", "a", "\ufffd"]
    assert decoder.pieces([98, 97]) == ["b", "a"] and letters.decoded == 3


async def test_a_viewer_reads_a_real_conversation_while_it_goes_on(make_capture, open_agent, tmp_path):
    capture = await make_capture()
    agent = await open_agent(capture)
    history = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": agent.route.api_key}]
    content = TrialContent(tmp_path)

    def look(kind: str, **fields: Any) -> Any:
        return content.answer(Ask(id="q", kind=kind, step=0, group=0, trial=0, **fields))

    reply = (await agent.post("/v1/chat/completions", {"messages": history})).json()["choices"][0]["message"]
    first = look("transcript")
    assert [(t.role, t.text) for t in first.turns[:2]] == [("system", "Be brief."), ("user", "[redacted]")]
    assert first.turns[2].role == "assistant" and first.turns[2].text.strip() == reply["content"].strip()
    history += [{"role": "assistant", "content": reply["content"]}, {"role": "user", "content": "Go on."}]
    await agent.post("/v1/chat/completions", {"messages": history})
    more = look("transcript", cursor=first.cursor)
    assert [t.role for t in more.turns] == ["user", "assistant"] and more.turns[0].text == "Go on."
    captured = await agent.route.seal()
    tokens = look("tokens", call=0).tokens
    assert [(t.id, t.logprob) for t in tokens] == list(
        zip(captured.calls[0].tokens_T, captured.calls[0].logprobs_T, strict=True)
    )
    assert "".join(t.text for t in tokens).startswith(first.turns[2].text)


async def test_a_call_without_words_is_captured_all_the_same(make_capture, open_agent, monkeypatch):
    def broken(*_: Any) -> None:
        raise RuntimeError("no words")

    monkeypatch.setattr(Conversation, "text_of", broken)
    agent = await open_agent(await make_capture())
    assert (await agent.ask()).status_code == 200
    assert len((await agent.route.seal()).calls) == 1
