"""An agent's conversation through the calls service: bridged, written down, and given to training once."""

from __future__ import annotations

import asyncio
from array import array

import pytest
from call_stage import BASH, SECRET, Stage, called, echo, policy_renderer, result, said, system, turns, user
from qwen_tokenizer import qwen_tokenizer
from scripted_sampler import END, Reply, backend_error

from console.capture.chat import ChatRequest
from console.capture.kept_text import Keeper
from console.capture.refusals import RefusedError
from console.records.capture_format import ids_bytes

START = [system("You work in a shell."), user("Which files are there?")]


async def three_turns(stage: Stage):
    first = await stage.ask(START, tools=[BASH])
    history = [*START, echo(first), result(first, "a.txt <|im_end|> b.txt")]
    second = await stage.ask(history, tools=[BASH])
    history += [echo(second), result(second, "42 lines")]
    third = await stage.ask(history, tools=[BASH])
    return [first, second, third]


async def test_a_conversation_with_tools_bridges_at_every_turn(open_stage):
    stage = open_stage([called("ls"), called("wc -l a.txt"), said("42.")])
    replies = await three_turns(stage)
    assert [r.stop for r in replies] == ["tool_calls", "tool_calls", "stop"]
    assert replies[0].tool_calls[0].arguments == '{"command": "ls"}' and replies[0].reasoning == "Let me look."
    assert replies[2].text == "42." and replies[1].text == "I run it."
    ends = [array("i", asked.prompt + asked.tokens) for asked in stage.sampler.asked]
    for before, asked, reply in zip(ends, stage.sampler.asked[1:], replies[1:]):
        assert asked.prompt[: len(before)] == before.tolist()
        assert (reply.prompt_tokens, reply.cached_tokens) == (len(asked.prompt), len(before))
    assert (stage.figures.bridged, stage.figures.unbridged) == (2, {"first": 1})
    captured = await stage.calls.seal()
    (segment,) = captured.segments
    trained = array("i")
    for turn in segment.turns:
        trained += turn.prompt_new + turn.tokens_T
    assert trained == ends[-1] and [t.node for t in segment.turns] == [r.node for r in replies]
    assert captured.evidence.calls == 3 and captured.evidence.last_failure is None and captured.policy_version == 3
    assert [r.status for r in stage.reports] == ["stop"] * 3
    assert sum(r.sampled_tokens for r in stage.reports) == captured.evidence.sampled_tokens


async def test_what_was_sent_and_sampled_is_what_the_file_has(open_stage):
    stage = open_stage([called("ls"), called("wc -l a.txt"), said("42.")])
    replies = await three_turns(stage)
    await stage.calls.seal()
    kept = stage.file()
    assert not kept.oddities and kept.sealed is not None and kept.sealed.calls == 3
    for asked, reply, call in zip(stage.sampler.asked, replies, kept):
        assert kept.prompt(reply.node).tolist() == asked.prompt
        assert call.tokens().tolist() == asked.tokens and list(call.logprobs()) == pytest.approx(asked.logprobs)
        assert call.outcome.end == END and sum(call.outcome.pieces) == len(call.outcome.reply)
        assert call.delivered == 1 and call.intent.max_tokens == asked.params.max_tokens
    texts = [[m.text for m in call.intent.messages] for call in kept]
    assert texts == [[m.text for m in START], ["a.txt <|im_end|> b.txt"], ["42 lines"]]
    assert [call.intent.kept for call in kept] == [0, 3, 5]
    assert kept.call(0).intent.tool_names == ["bash"] and kept.call(0).intent.tools


async def test_four_calls_at_once_on_one_parent_fork(open_stage):
    gate = asyncio.Event()
    stage = open_stage([called("ls"), *(Reply(said(f"answer {n}"), gate=gate) for n in range(4))])
    first = await stage.ask(START, tools=[BASH])
    history = [*START, echo(first), result(first, "a.txt")]
    asking = [asyncio.ensure_future(stage.ask([*history, user(f"question {n}")], tools=[BASH])) for n in range(4)]
    await stage.sampler.until_running(4)
    assert stage.calls.inflight == 4 == stage.figures.inflight
    gate.set()
    replies = await asyncio.gather(*asking)
    assert {r.text for r in replies} == {f"answer {n}" for n in range(4)} and stage.calls.inflight == 0
    captured = await stage.calls.seal()
    assert [len(s.turns) for s in captured.segments] == [2, 1, 1, 1] and captured.bridged == 4
    nodes = [t.node for s in captured.segments for t in s.turns]
    assert sorted(nodes) == sorted([first.node, *(r.node for r in replies)])


async def test_a_template_that_drops_thoughts_is_rendered_in_full(open_stage):
    stage = open_stage(
        [called("ls"), called("wc -l a.txt"), said("42.")], renderer=policy_renderer("qwen3_5", "template")
    )
    await three_turns(stage)
    assert stage.figures.bridged == 0 and stage.figures.unbridged == {"first": 1, "template": 2}
    captured = await stage.calls.seal()
    assert len(captured.segments) == 3
    file = stage.file()
    for asked, call in zip(stage.sampler.asked, file):
        assert file.prompt(call.intent.node).tolist() == asked.prompt and call.intent.parent == ""


async def test_a_reply_cut_off_is_not_bridged_and_says_so(open_stage):
    stage = open_stage([said("This goes on and on and on."), said("Yes.")])
    first = await stage.ask(START, max_tokens=8)
    assert first.stop == "length" and first.sampled_tokens == 8
    await stage.ask([*START, echo(first), user("Go on.")])
    assert stage.figures.unbridged == {"first": 1, "truncated": 1}
    assert (await stage.calls.seal()).evidence.truncated is False


async def test_malformed_calls_and_empty_replies_are_counted_and_kept(open_stage):
    broken = "x\n</think>\n\n<tool_call>\n<function=bash>\n<parameter=command>\nls"
    stage = open_stage([broken, "Only a thought.\n</think>\n\n", Reply("", end=False), said("ok")])
    assert "<parameter=command>" in (await stage.ask(START, tools=[BASH])).text
    assert (await stage.ask([*START, user("b")], tools=[BASH])).text == ""
    third = await stage.ask([*START, user("c")], tools=[BASH])
    assert (third.text, third.sampled_tokens) == ("", 0)
    assert (await stage.ask([*START, user("c"), echo(third), user("Hello?")], tools=[BASH])).text == "ok"
    assert (stage.figures.malformed, stage.figures.empty, stage.figures.calls) == (1, 2, 3)
    captured = await stage.calls.seal()
    assert captured.evidence.calls == 3 and captured.excluded == {"empty": 1}
    assert [call.outcome.malformed for call in stage.file()] == [True, False, False, False]


async def test_tokens_with_their_log_probs_on_request(open_stage):
    stage = open_stage([said("Grüße 🙂.")])
    pending = await stage.calls.begin(ChatRequest(dialect="chat", messages=[user("Hi")], logprobs=True), b"d")
    reply = await pending.reply()
    assert "".join(text for text, _ in reply.token_logprobs) == said("Grüße 🙂.")
    asked = stage.sampler.asked[0]
    assert [p for _, p in reply.token_logprobs] == pytest.approx(asked.logprobs)


async def test_prompts_are_counted_as_they_would_be_sent_and_nothing_is_recorded(open_stage):
    stage = open_stage([called("ls"), said("ok")])
    first = await stage.ask(START, tools=[BASH])
    request = ChatRequest(dialect="messages", messages=[*START, echo(first), result(first, "a.txt")], tools=[BASH])
    tokens = await stage.calls.count(request)
    await stage.ask(request.messages, tools=[BASH])
    assert tokens == len(stage.sampler.asked[1].prompt)
    assert len(stage.file()) == 2 and len(stage.reports) == 2


async def test_the_trials_token_is_never_written_down(open_stage):
    stage = open_stage([said(f"The key is {SECRET}, I think.")])
    reply = await stage.ask([user(f"env\nKEY={SECRET}\n" + "x" * 15_990 + SECRET)], stop=(SECRET + "no",))
    assert SECRET in reply.text  # the agent has it anyway
    (call,) = stage.file()
    assert "[redacted]" in call.outcome.reply and call.outcome.pieces == b""
    data = stage.trial_journal.path.read_bytes()
    assert SECRET.encode() not in data and b"[redacted]" in data
    assert ids_bytes(stage.sampler.asked[0].tokens) in data  # ids are what was sampled, whatever they say
    await stage.calls.seal()
    assert stage.figures.secrets >= 3


def test_no_part_of_the_token_is_left_where_a_text_is_cut():
    keeper = Keeper(SECRET)
    for before in range(40, 140):
        for text in ("x" * before + SECRET + "y" * 50, SECRET + "x" * before + SECRET + "y" * 9, SECRET * 9):
            shown = keeper.bounded(text, 100)
            assert len(shown) <= 100 and SECRET[:4] not in shown and SECRET[-4:] not in shown


async def test_messages_of_a_call_that_failed_are_not_written_again(open_stage):
    stage = open_stage([backend_error(), said("ok")])
    with pytest.raises(RefusedError):
        await stage.ask(START)
    await stage.ask([*START, user("Please.")])
    assert [[m.text for m in call.intent.messages] for call in stage.file()] == [[m.text for m in START], ["Please."]]


async def test_long_conversations_are_kept_in_part(open_stage):
    stage = open_stage(window=200_000)
    messages = [user(f"{n} " + "word " * 5000) for n in range(5)]
    await stage.ask(messages)
    (call,) = stage.file()
    kept = call.intent.messages
    assert [len(m.text) for m in kept[:4]] == [16_000] * 4 and kept[4].text == ""
    assert all(len(m.text) + m.cut == len(message.text) for m, message in zip(kept, messages))
    assert kept[0].text.startswith("0 word")


STOPPED = [
    (said("one STOP two"), ("STOP",), "one ", "STOP"),
    (said("alpha beta gamma"), ("ta gam",), "alpha be", "ta gam"),  # across the borders of tokens
    (said("a b c"), ("zzz", "b", "c"), "a ", "b"),
    (said("x<END>y"), ("<END>", "END>"), "x", "<END>"),
]


@pytest.mark.parametrize(("sample", "stops", "text", "which"), STOPPED)
async def test_stop_strings_cut_the_sample(open_stage, sample, stops, text, which):
    stage = open_stage([sample, said("next")])
    reply = await stage.ask(START, stop=stops)
    assert (reply.text, reply.stop, reply.stop_string) == (text, "stop", which)
    asked = stage.sampler.asked[0]
    (call,) = stage.file()
    kept = call.tokens().tolist()
    decode = qwen_tokenizer().decode
    assert kept == asked.tokens[: len(kept)] and which in decode(kept) and which not in decode(kept[:-1])
    assert list(call.logprobs()) == pytest.approx(asked.logprobs[: len(kept)])
    assert reply.sampled_tokens == len(kept) < len(asked.tokens) and call.intent.stop == list(stops)
    # No token ends the turn: what follows is a segment of its own, or it would train on what was never sampled so.
    await stage.ask([*START, echo(reply), user("Go on.")])
    assert stage.figures.unbridged == {"first": 1, "truncated": 1} and stage.figures.stopped == 1
    sealed = await stage.calls.seal()
    assert sealed.segments[0].turns[0].tokens_T.tolist() == kept and len(sealed.segments) == 2


async def test_a_stop_string_that_ends_a_tool_call_leaves_the_call(open_stage):
    stage = open_stage([called("ls") + "\nand more"])
    reply = await stage.ask(START, tools=[BASH], stop=("</tool_call>",))
    assert reply.tool_calls[0].arguments == '{"command": "ls"}' and reply.text == "I run it."


async def test_stop_strings_that_do_not_come_change_nothing(open_stage):
    stage = open_stage([said("plain"), said("more")])
    reply = await stage.ask(START, stop=("STOP",))
    assert (reply.text, reply.stop_string) == ("plain", "")
    await stage.ask([*START, echo(reply), user("Go on.")])
    assert stage.figures.bridged == 1


async def test_rendering_trouble_is_the_requests_fault(open_stage):
    stage = open_stage()
    with pytest.raises(RefusedError) as refused:
        await stage.begin([])
    assert refused.value.kind == "request" and stage.calls.inflight == 0
    await turns()
    assert stage.figures.refusals == {"request": 1} and stage.file().refused == {"request": 1}
