"""Which captured sample a request extends, and why it extends none."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import msgspec
import pytest
from captured_talks import BASH, READ, Trial, assistant, system, tool, user

from console.capture.chat import ChatMessage, ChatReply, ChatRequest, ToolCall, ToolSpec
from console.capture.graph import Graph
from console.errors import CaptureError

ARGS = '{"command": "ls -l", "timeout": 1.0}'
START = [system("Work."), user("Fix the bug.")]
edited = msgspec.structs.replace


def begun(**reply: object) -> tuple[Trial, object]:
    trial = Trial()
    said = {"say": "Looking.\n\n", "calls": [("bash", ARGS)], "reasoning": "First, look."} | reply
    return trial, trial.ask(START, [BASH], **said)


def call(**fields: str) -> Callable[[ChatMessage], ChatMessage]:
    return lambda m: edited(m, tool_calls=[edited(m.tool_calls[0], **fields)])


REPLAYS = {
    "word for word": lambda m: m,
    "text trimmed": lambda m: edited(m, text="Looking."),
    "without thoughts": lambda m: edited(m, reasoning=""),
    "thoughts trimmed": lambda m: edited(m, reasoning="First, look.\n"),
    "thoughts twice": lambda m: edited(m, reasoning=2 * m.reasoning),
    "without our name": lambda m: edited(m, node=""),
    "an id of its own": call(id="call_0"),
    "compact arguments": call(arguments='{"command":"ls -l","timeout":1}'),
    "keys in another order": call(arguments='{"timeout": 1.0, "command": "ls \\u002dl"}'),
    "a wrong name of ours": lambda m: edited(m, node="n7x00000000"),
}


@pytest.mark.parametrize("change", REPLAYS.values(), ids=REPLAYS)
def test_a_replay_is_known_however_it_is_written(change):
    trial, first = begun()
    back = change(first.message)
    match = trial.graph.match(request([*START, back, tool("a.txt", back.tool_calls[0].id)], [BASH]))
    assert (match.parent, match.known, match.reason, match.fresh) == (first.node, 3, "", [3])


CHANGES = {
    "text": lambda m: edited(m, text="Looked."),
    "thoughts": lambda m: edited(m, reasoning="First, sleep."),
    "a call dropped": lambda m: edited(m, tool_calls=[]),
    "a call renamed": call(name="sh"),
    "an argument": call(arguments='{"command": "ls -a", "timeout": 1.0}'),
    "a type": call(arguments='{"command": "ls -l", "timeout": "1.0"}'),
    "arguments that are no JSON": call(arguments="ls -l"),
    "a call added": lambda m: edited(m, tool_calls=[*m.tool_calls, ToolCall(id="x", name="bash", arguments="{}")]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_reply_is_no_replay_even_under_our_name(change):
    trial, first = begun()
    match = trial.graph.match(request([*START, change(first.message), tool("a.txt")], [BASH]))
    assert (match.parent, match.reason, match.known) == (None, "rewritten", 0)
    assert (match.related, match.replayed) == (first.node, True)


def request(messages: list[ChatMessage], tools: list[ToolSpec] | None = None) -> ChatRequest:
    return ChatRequest(dialect="chat", messages=messages, tools=tools or [])


def test_an_empty_text_and_empty_arguments_are_missing_ones():
    trial, first = begun(say="\n\n", calls=[("bash", "{}")], reasoning="")
    back = edited(first.message, text="", tool_calls=[edited(first.message.tool_calls[0], arguments="")])
    assert trial.graph.match(request([*START, back, tool("x")], [BASH])).parent is first.node


def test_thoughts_of_every_earlier_turn_count():
    trial, first = begun()
    history = [*START, first.message, tool("x")]
    second = trial.ask(history, [BASH], say="Done.", reasoning="So it is.")
    without = [*START, edited(first.message, reasoning=""), tool("x"), edited(second.message, reasoning="")]
    assert trial.graph.match(request([*without, user("Go on.")], [BASH])).parent is second.node
    other = [*START, edited(first.message, reasoning="Else."), tool("x"), second.message, user("Go on.")]
    assert trial.graph.match(request(other, [BASH])).reason == "rewritten"


def test_results_may_follow_renamed_ids_and_not_change_places():
    trial, first = begun(calls=[("bash", "{}"), ("bash", "{}")])
    ours = [c.id for c in first.message.tool_calls]
    history = [*START, first.message, tool("one", ours[0]), tool("two", ours[1])]
    second = trial.ask(history, [BASH], say="Done.")
    own = edited(first.message, tool_calls=[edited(c, id=i) for c, i in zip(first.message.tool_calls, "ab")])
    renamed = [*START, own, tool("one", "a"), tool("two", "b"), second.message, user("?")]
    assert trial.graph.match(request(renamed, [BASH])).parent is second.node
    swapped = [*START, own, tool("one", "b"), tool("two", "a"), second.message, user("?")]
    assert trial.graph.match(request(swapped, [BASH])).reason == "rewritten"


def test_equal_replies_are_told_apart_by_name_then_by_delivery_then_by_age():
    trial = Trial()
    one, two, three = (trial.ask(START, say="same", delivered=d) for d in (True, True, False))
    unnamed = edited(one.message, node="")

    def parent(back: ChatMessage) -> object:
        return trial.graph.match(request([*START, back, user("?")])).parent

    assert parent(one.message) is one.node and parent(three.message) is three.node
    assert parent(unnamed) is two.node
    late = Trial()
    late.ask(START, say="same", delivered=False)
    newer = late.ask(START, say="same", delivered=False)
    assert late.graph.match(request([*START, unnamed, user("?")])).parent is newer.node


def test_new_messages_behind_a_reply_may_be_of_any_role_but_the_assistants():
    trial, first = begun()
    behind = [tool("x"), system("A reminder."), user("And now?")]
    assert trial.graph.match(request([*START, first.message, *behind], [BASH])).fresh == [3, 4, 5]
    assert trial.graph.match(request([*START, first.message], [BASH])).parent is first.node
    foreign = [*START, first.message, tool("x"), assistant("Not ours."), user("?")]
    match = trial.graph.match(request(foreign, [BASH]))
    assert (match.parent, match.reason, match.fresh) == (None, "rewritten", [3, 4, 5])


def test_imported_history_and_examples_begin_a_conversation_like_any_other():
    trial = Trial()
    history = [system("Work."), user("1+1"), assistant("2", reasoning="Easy."), user("2+2")]
    first = trial.ask(history, say="4")
    assert first.match.reason == "first"
    assert trial.graph.match(request([*history, first.message, user("3+3")])).parent is first.node
    history[2] = assistant("2", reasoning="Hard.")
    assert trial.graph.match(request([*history, first.message, user("3+3")])).reason == "rewritten"
    history[2] = assistant("3")
    assert trial.graph.match(request([*history, first.message, user("3+3")])).reason == "rewritten"


def test_two_requests_behind_one_reply_are_a_fork():
    trial, first = begun()
    history = [*START, first.message]
    left = trial.ask([*history, tool("left")], [BASH])
    right = trial.ask([*history, tool("right")], [BASH])
    again = trial.ask([*history, tool("left")], [BASH])
    assert {n.parent for n in (left.node, right.node, again.node)} == {first.node}
    assert again.match.fresh == [] and left.node.prompt() == again.node.prompt()


REASONS = {
    "the tools grew": ("tools", lambda a: ([*START, a, tool("x")], [BASH, READ])),
    "the tools in another order": ("tools", lambda a: ([*START, a, tool("x")], [READ, BASH])),
    "no tools any more": ("tools", lambda a: ([*START, a, user("Sum up.")], [])),
    "other tools for the same question": ("tools", lambda a: (START, [READ])),
    "another system prompt": ("system", lambda a: ([system("Play."), *START[1:], a, tool("x")], [BASH])),
    "a reminder moved in": ("system", lambda a: ([*START, system("Now."), a, tool("x")], [BASH])),
    "no system prompt any more": ("system", lambda a: ([*START[1:], a, tool("x")], [BASH])),
    "another system prompt at once": ("system", lambda a: ([system("Play."), *START[1:]], [BASH])),
    "the question edited": ("rewritten", lambda a: ([system("Work."), user("Fix it."), a, tool("x")], [BASH])),
    "asked again with more": ("rewritten", lambda a: ([*START, user("Please.")], [BASH])),
    "a title": ("first", lambda a: ([system("Make a title."), user("Fix the bug.")], [])),
    "a sub-agent": ("first", lambda a: ([system("Search."), user("Where?")], [READ])),
    "the same agent with another task": ("first", lambda a: ([system("Work."), user("Find it.")], [BASH])),
    "the same request": ("first", lambda a: (START, [BASH])),
}


@pytest.mark.parametrize(("reason", "make"), REASONS.values(), ids=REASONS)
def test_reasons(reason, make):
    trial, first = begun()
    messages, tools = make(first.message)
    match = trial.graph.match(request(list(messages), list(tools)))
    assert (match.parent, match.reason) == (None, reason)
    assert (match.related is not None) == (reason != "first")


def test_a_truncated_reply_cannot_be_extended():
    trial, first = begun(stop="length", calls=[])
    match = trial.graph.match(request([*START, first.message, user("Go on.")], [BASH]))
    assert (match.parent, match.reason, match.related) == (None, "truncated", first.node)
    whole = trial.ask(START, [BASH], say="Looking.\n\n", reasoning="First, look.")
    unnamed = edited(first.message, node="")
    assert trial.graph.match(request([*START, unnamed, user("Go on.")], [BASH])).parent is whole.node
    assert trial.graph.match(request([*START, first.message, user("?")], [BASH])).reason == "truncated"
    trial.ask(START, [BASH], say="Looking.\n\n", reasoning="First, look.", stop="length")
    assert trial.graph.match(request([*START, unnamed, user("Go on.")], [BASH])).parent is whole.node


@pytest.mark.parametrize("start", [START, [user("Fix the bug.")]], ids=["system prompt", "none"])
def test_a_compacted_history_is_told_from_a_rewritten_one(start):
    trial, tools = Trial(), [BASH] if len(start) == 2 else []
    history = list(start)
    for turn in range(4):
        answer = trial.ask(history, tools, say=f"step {turn}")
        history += [answer.message, user(f"result {turn}")]
    reason = lambda messages: trial.graph.match(request(messages, tools)).reason  # noqa: E731
    assert reason([*start, user("So far: steps 0 to 3 are done.")]) == "compacted"
    assert reason([*start, *history[-4:]]) == "compacted"
    shortened = [*history]
    shortened[len(start) + 1] = user("[cut]")
    assert reason(shortened) == "rewritten"
    unwound = trial.graph.match(request([*history[:-2], user("Another way.")], tools))
    assert unwound.parent is trial.graph.nodes[2]
    assert reason([start[0], user("Summary.")]) == "compacted"
    assert reason([*start[:-1], user("Who are you?")]) == ("compacted" if tools else "first")


def test_a_reminder_that_moves_is_another_system_prompt():
    trial, history = Trial(), [*START, system("Mind the tools.")]
    first = trial.ask(history, [BASH])
    second = trial.ask([*history, first.message, user("a")], [BASH])
    moved = [*START, first.message, system("Mind the tools."), user("a"), second.message, user("b")]
    match = trial.graph.match(request(moved, [BASH]))
    assert (match.parent, match.reason, match.related) == (None, "system", second.node)


def test_separate_short_calls_under_one_system_prompt_are_no_compaction():
    trial = Trial()
    assert {trial.ask([system("Grade."), user(f"essay {n}")]).match.reason for n in range(5)} == {"first"}


def test_text_is_fresh_once():
    trial, first = begun()
    assert first.match.fresh == [0, 1]
    history = [*START, first.message, tool("long output"), user("Go on.")]
    assert trial.ask(history, [BASH]).match.fresh == [3, 4]
    again = trial.graph.match(request(history, [BASH]))
    assert again.fresh == []
    rewritten = [START[0], user("Fix it."), *history[2:], user("More.")]
    match = trial.graph.match(request(rewritten, [BASH]))
    assert (match.reason, match.fresh) == ("rewritten", [1, 5])
    trial.graph.asked(match)
    assert trial.graph.match(request(rewritten, [BASH])).fresh == [], "its text is written down, answered or not"


def test_a_repeated_message_of_a_conversation_is_fresh_each_time():
    trial, first = begun(calls=[])
    second = trial.ask([*START, first.message, user("continue")], [BASH])
    third = [*START, first.message, user("continue"), second.message, user("continue")]
    assert trial.graph.match(request(third, [BASH])).fresh == [5]


def test_a_full_rendering_leads_to_the_latest_node_that_it_begins_with():
    trial = Trial()
    first = trial.ask(START, say="one", bridge=False)
    history = [*START, first.message, user("a")]
    second = trial.ask(history, say="two", bridge=False)
    assert second.node.parent is first.node, "the rendering repeats what was sampled"
    odd = trial.ask([*history, second.message, user("b")], say="three", tokens=[99, 98, 2], bridge=False)
    history += [second.message, user("b"), odd.message, user("c")]
    last = trial.ask(history, say="four", bridge=False)
    assert odd.node.parent is second.node and last.node.parent is second.node and last.node.extends is odd.node
    for node in trial.graph.nodes:
        assert node.prompt().tolist() == trial.sent[node.name]
        assert node.prompt_tokens == len(trial.sent[node.name])
    other = trial.ask([system("Play."), *history[1:]], bridge=False)
    assert (other.node.parent, other.node.reason) == (None, "system")


def test_a_prompt_shorter_than_the_node_is_no_extension_of_it():
    trial, first = begun()
    match = trial.graph.match(request([*START, first.message, user("?")], [BASH]))
    cut = first.node.end()[:-1]
    assert trial.graph.token_parent(cut, match) == (None, cut)
    assert trial.graph.token_parent(first.node.end(), match) == (first.node, array("i"))


def test_hostile_text_and_arguments_are_compared_as_they_stand():
    odd = [
        "\ud800",
        '{"a": ' * 5000,
        "[" * 100_000,
        '{"a": 1e999}',
        f'{{"n": {"9" * 5000}}}',
        '{"a": NaN}',
        "null",
        "[1.0]",
    ]
    for args in odd:
        trial, first = begun(say="\ud800x", calls=[("\udfff", args)])
        extends = [*START, first.message, tool("\ud800")]
        assert trial.graph.match(request(extends, [BASH])).parent is first.node
        other = edited(first.message, tool_calls=[edited(first.message.tool_calls[0], arguments=args + "1")])
        assert trial.graph.match(request([*START, other, tool("x")], [BASH])).reason == "rewritten"
    huge = ToolSpec(name="t", parameters={"maximum": 10**40, "default": "\ud800"})
    trial = Trial()
    first = trial.ask(START, [huge])
    assert trial.graph.match(request([*START, first.message, user("?")], [huge])).parent is first.node


def test_messages_cannot_be_shifted_into_each_other():
    trial = Trial()
    first = trial.ask([user("a"), user("b")])
    for start in ([user("ab")], [user("a b")], [user("a"), tool("b")], [user("a\x00b")], [user("b"), user("a")]):
        assert trial.graph.match(request([*start, first.message, user("?")])).parent is None


def test_what_cannot_be_kept_raises():
    trial, first = begun()
    match = trial.graph.match(request(list(START), [BASH]))
    fields = {
        "number": 1, "match": match, "parent": None, "reason": "first",
        "prompt_new": array("i", [1]), "tokens_T": array("i", [2, 3]), "stop_reason": "stop",
        "reply": ChatReply(node="n1x0"),
    }  # fmt: skip
    with pytest.raises(CaptureError, match="2 tokens and 1 log-probs"):
        trial.graph.add(name="n1x0", logprobs_T=array("f", [-1]), **fields)
    with pytest.raises(CaptureError, match="twice"):
        trial.graph.add(name=first.node.name, logprobs_T=array("f", [-1, -1]), **fields)
    trial.graph.add(name="n1x0", logprobs_T=array("f", [-1, -1]), policy_version=4, **fields)
    with pytest.raises(CaptureError, match="policy version 5, the trial's others of 4"):
        trial.graph.add(name="n2x0", logprobs_T=array("f", [-1, -1]), policy_version=5, **fields)
    assert len(trial.graph.nodes) == 2
    trial.graph.delivered("nobody")


def test_a_graph_without_nodes_and_a_request_without_messages():
    graph = Graph()
    match = graph.match(request([]))
    assert (match.reason, match.known, match.fresh) == ("first", 0, [])
    trial = Trial()
    trial.ask([])
    assert trial.graph.match(request([user("hi")])).reason == "first"
