"""What of a trial is trained: which samples are left out, why, and what the sequences are called."""

from __future__ import annotations

import msgspec
import pytest
from captured_talks import BASH, READ, Answer, Trial, assistant, system, tool, user

from console.capture.captured import CapturedTrial
from console.capture.chat import ChatMessage
from console.capture.segments import Rule, captured_trial, sealed_record
from console.errors import CaptureError
from console.outcomes.classes import CallEvidence

WORK = [system("Work."), user("Fix the bug.")]


def sealed(trial: Trial, rule: Rule = "all", **fields: object) -> CapturedTrial:
    return captured_trial(trial.graph, evidence=CallEvidence(calls=len(trial.graph.nodes)), rule=rule, **fields)


def go_on(trial: Trial, history: list[ChatMessage], tools=(), turns: int = 3, **reply) -> list[Answer]:
    """Turns of a conversation; `history` grows."""
    answers = []
    for turn in range(turns):
        answers.append(trial.ask(history, tools, **{"say": f"step {turn}"} | reply))
        history += [answers[-1].message, tool(f"result {turn}")]
    return answers


def runs(captured: CapturedTrial) -> list[tuple[list[int], str, str]]:
    """Segments by the numbers of their nodes, with kind and reason."""
    return [
        ([int(t.node[1:].split("x")[0]) for t in s.turns], s.kind, s.reason) for s in captured.segments
    ]  # fmt: skip


def test_a_linear_conversation_is_one_segment():
    trial = Trial()
    answers = go_on(trial, list(WORK), [BASH])
    captured = sealed(trial, policy_version=7)
    assert runs(captured) == [([0, 1, 2], "main", "first")]
    assert [t.prompt_new for t in captured.segments[0].turns] == [a.node.prompt_new for a in answers]
    assert (captured.bridged, captured.unbridged, captured.excluded) == (2, {"first": 1}, {})
    assert captured.prompt_tokens == sum(map(len, trial.sent.values())) and captured.policy_version == 7


def test_title_calls_are_left_out_wherever_they_come():
    title = [system("Make a title of at most 50 characters."), user("Fix the bug.")]
    trial = Trial()
    trial.ask(title, say="A bug")
    history = list(WORK)
    go_on(trial, history, [BASH])
    trial.ask([user("Is this about a new topic?")], say="no")
    captured = sealed(trial)
    assert runs(captured) == [([1, 2, 3], "main", "first")] and captured.excluded == {"aux": 2}
    lines = sealed_record(trial.graph, captured, ts=5.0)
    nodes = trial.graph.nodes
    assert lines.excluded_nodes == {"aux": [nodes[0].name, nodes[4].name]} and lines.excluded == {"aux": 2}
    assert [line.nodes for line in lines.segments] == [[n.name for n in nodes[1:4]]] and lines.ts == 5.0


def test_a_side_call_that_goes_on_or_is_longer_is_none():
    trial = Trial()
    go_on(trial, list(WORK), [BASH])
    trial.ask([WORK[0], user("a"), user("b")])  # under the main system prompt: the agent's own
    go_on(trial, [WORK[0], user("And how are you?")], turns=2)
    captured = sealed(trial)
    assert captured.excluded == {} and [run[1] for run in runs(captured)] == ["main", "sub", "sub"]


def test_without_tools_the_system_prompt_tells_side_calls():
    trial = Trial()
    trial.ask([system("Make a title."), user("Fix the bug.")])
    go_on(trial, list(WORK))
    assert sealed(trial).excluded == {"aux": 1}


def test_nothing_is_left_out_before_there_is_a_main_conversation():
    trial = Trial()
    trial.ask([system("Make a title."), user("Fix the bug.")])
    trial.ask(WORK)
    assert sealed(trial).excluded == {}


def test_without_a_system_prompt_the_tools_tell_whose_call_it_is():
    trial, history = Trial(), [user("Fix the bug.")]
    go_on(trial, history, [BASH])
    go_on(trial, [user("What is 2+2?")], turns=2)
    go_on(trial, [system("Be mine."), user("What is 2+2?")], turns=2)
    captured = sealed(trial)
    assert runs(captured) == [([0, 1, 2], "main", "first")] and captured.excluded == {"foreign": 4}


def test_a_trial_of_single_calls_is_all_main():
    trial = Trial()
    for number in range(4):
        trial.ask([system("Grade."), user(f"essay {number}")])
    assert runs(sealed(trial)) == [([n], "main", "first") for n in range(4)]
    bare = Trial()
    bare.ask([user("one")])
    bare.ask([user("two")])
    assert sealed(bare).excluded == {}


def test_a_policy_that_calls_its_own_endpoint_is_not_trained_on_it():
    trial = Trial()
    history = list(WORK)
    go_on(trial, history, [BASH], turns=1)
    go_on(trial, [user("What is 2+2?")], turns=5)  # more calls than the agent's own
    go_on(trial, [system("You are free."), user("a"), user("b")], turns=1)
    trial.ask([user("a"), assistant("b"), user("c")])
    go_on(trial, history, [BASH], turns=1)
    captured = sealed(trial)
    assert runs(captured) == [([0, 8], "main", "first")] and captured.excluded == {"foreign": 7}


def test_before_the_agents_second_call_a_policy_cannot_take_its_place():
    trial = Trial()
    history = list(WORK)
    go_on(trial, history, turns=1)  # no tools
    go_on(trial, [user("mine")], turns=3)
    go_on(trial, history, turns=1)
    assert runs(sealed(trial)) == [([0, 4], "main", "first")]
    assert sealed(trial, "main").excluded == {"foreign": 3}


def test_sub_agents_with_tools_are_trained_apart():
    trial = Trial()
    history = list(WORK)
    go_on(trial, history, [BASH], turns=2)
    go_on(trial, [system("Search."), user("Where?")], [READ], turns=4)
    go_on(trial, history, [BASH], turns=1)
    captured = sealed(trial)
    assert runs(captured) == [([0, 1, 6], "main", "first"), ([2, 3, 4, 5], "sub", "first")]
    only = sealed(trial, "main")
    assert runs(only) == [([0, 1, 6], "main", "first")] and only.excluded == {"rule": 4}


def test_summaries_and_what_goes_on_from_them():
    trial = Trial()
    history = list(WORK)
    go_on(trial, history, [BASH], turns=3)
    trial.ask([system("Sum up."), *history[1:], user("Sum up the above.")], say="All is well.")
    compacted = [WORK[0], user("So far: All is well.")]
    go_on(trial, compacted, [BASH], turns=2)
    compacted[1] = user("So far: it is well.")
    go_on(trial, compacted, [BASH], turns=1)
    assert runs(sealed(trial)) == [
        ([0, 1, 2], "main", "first"),
        ([3], "summary", "tools"),
        ([4, 5], "summary", "compacted"),
        ([6], "summary", "rewritten"),
    ]
    assert runs(sealed(trial, "main")) == [([0, 1, 2], "main", "first")]


def test_an_agent_that_rewrites_every_turn_is_one_main_conversation():
    trial = Trial()
    history = list(WORK)
    for turn in range(4):
        history[0] = system(f"Work. Turn {turn}.")
        go_on(trial, history, [BASH], turns=1)
    captured = sealed(trial)
    assert runs(captured) == [([0], "main", "first"), *[([n], "main", "system") for n in (1, 2, 3)]]
    assert captured.unbridged == {"first": 1, "system": 3} and captured.bridged == 0


def test_a_fork_shares_its_beginning():
    trial = Trial()
    history = list(WORK)
    go_on(trial, history, [BASH], turns=2)
    go_on(trial, [*history[:-1], tool("another result")], [BASH], turns=3)
    go_on(trial, history, [BASH], turns=1)
    captured = sealed(trial)
    assert runs(captured) == [([0, 1, 2, 3, 4], "main", "first"), ([5], "main", "fork")]
    fork = captured.segments[1].turns[0]
    assert fork.prompt_new.tolist() == trial.sent[fork.node]
    assert captured.unbridged == {"first": 1} and captured.bridged == 5
    assert runs(sealed(trial, "main")) == [([0, 1, 2, 3, 4], "main", "first")]


def test_the_longer_branch_is_the_one_that_goes_on():
    trial = Trial()
    history = list(WORK)
    go_on(trial, history, [BASH], turns=1)
    trial.ask([*history[:-1], tool("a dead end")], [BASH])
    go_on(trial, history, [BASH], turns=2)
    only = sealed(trial, "main")
    assert runs(only) == [([0, 2, 3], "main", "first")] and only.excluded == {"rule": 1}


@pytest.mark.parametrize(
    ("delivered", "used", "excluded"),
    [
        ([True, True], None, {0: "superseded"}),
        ([False, True], None, {0: "superseded"}),
        ([True, False], None, {1: "undelivered"}),
        ([False, False], None, {0: "superseded", 1: "undelivered"}),
        ([False, True, False, False], None, {0: "superseded", 2: "undelivered", 3: "undelivered"}),
        ([True, True], 0, {}),
        ([True, True], 1, {0: "superseded"}),
        ([False, True], 0, {}),
        ([True, False], 0, {1: "undelivered"}),
        ([True, True, True], 1, {0: "superseded"}),
        ([False, False], 1, {0: "superseded"}),
    ],
)
@pytest.mark.parametrize("first", [True, False], ids=["first call", "later call"])
def test_repeated_requests(delivered, used, excluded, first):
    trial, history = Trial(), list(WORK)
    if not first:
        go_on(trial, history, [BASH], turns=1)
    before = trial.number
    answers = [trial.ask(history, [BASH], say=f"reply {n}", delivered=d) for n, d in enumerate(delivered)]
    if used is not None:
        trial.ask([*history, answers[used].message, tool("x")], [BASH])
    captured = sealed(trial)
    names = sealed_record(trial.graph, captured).excluded_nodes
    out = {int(name[1:].split("x")[0]) - before: reason for reason, many in names.items() for name in many}
    assert out == excluded
    trained = {t.node for s in captured.segments for t in s.turns}
    assert trained == {n.name for n in trial.graph.nodes} - {name for many in names.values() for name in many}


def test_a_reply_that_a_rewritten_history_has_was_used():
    trial = Trial()
    answer = trial.ask(WORK, [BASH], delivered=False)
    trial.ask([WORK[0], user("Fix it."), answer.message, tool("x")], [BASH])
    assert sealed(trial).excluded == {}


def test_an_undelivered_reply_that_somebody_has_was_delivered():
    trial, history = Trial(), list(WORK)
    go_on(trial, history, [BASH], turns=2, delivered=False)
    trial.ask([user("?")], [BASH], delivered=False)
    assert sealed(trial).excluded == {"undelivered": 2}


def test_empty_samples_are_left_out_and_passed_through():
    trial, history = Trial(), list(WORK)
    go_on(trial, history, [BASH], turns=1)
    go_on(trial, history, [BASH], turns=1, say="", tokens=[])
    go_on(trial, history, [BASH], turns=1)
    captured = sealed(trial)
    assert runs(captured) == [([0, 2], "main", "first")] and captured.excluded == {"empty": 1}
    first, second = captured.segments[0].turns
    assert (first.prompt_new + first.tokens_T + second.prompt_new).tolist() == trial.sent[second.node]


def test_a_reply_out_of_place_does_not_break_the_chain_of_tokens():
    trial, history = Trial(), list(WORK)
    go_on(trial, history, [BASH], turns=3, bridge=False)
    captured = sealed(trial)
    assert runs(captured) == [([0, 1, 2], "main", "first")]
    broken, history = Trial(), list(WORK)
    go_on(broken, history, [BASH], turns=3, bridge=False, tokens=[99, 2])
    captured = sealed(broken)
    assert runs(captured) == [([0], "main", "first"), ([1], "main", "template"), ([2], "main", "template")]
    assert captured.unbridged == {"first": 1, "template": 2}
    assert sealed(broken, "main").excluded == {}, "one conversation, whatever its prompts look like"


def test_truncated_turns_end_segments_of_one_conversation():
    trial, history = Trial(), list(WORK)
    go_on(trial, history, [BASH], turns=2, stop="length")
    captured = sealed(trial)
    assert runs(captured) == [([0], "main", "first"), ([1], "main", "truncated")]
    assert [t.stop_reason for s in captured.segments for t in s.turns] == ["length", "length"]


def test_late_samples_are_counted():
    trial = Trial()
    go_on(trial, list(WORK), [BASH], turns=1)
    captured = sealed(trial, late=["n9x00000000"])
    assert captured.excluded == {"late": 1}
    record = sealed_record(trial.graph, captured, late=["n9x00000000"])
    assert record.excluded_nodes == {"late": ["n9x00000000"]} and record.calls == 1


def test_one_policy_version_or_none():
    trial = Trial()
    trial.ask(WORK, policy_version=3)
    assert sealed(trial).policy_version == 3 and sealed(trial, policy_version=3).policy_version == 3
    with pytest.raises(CaptureError, match="from policy version 3, not from 4"):
        sealed(trial, policy_version=4)


def test_torn_arrays_raise():
    trial = Trial()
    answer = trial.ask(WORK)
    answer.node.logprobs_T.pop()
    with pytest.raises(CaptureError, match="3 tokens and 2 log-probs"):
        sealed(trial)


def test_a_trial_without_calls():
    captured = sealed(Trial())
    assert (captured.segments, captured.excluded, captured.prompt_tokens) == ([], {}, 0)
    assert msgspec.to_builtins(sealed_record(Trial().graph, captured))["kind"] == "sealed"
    assert sealed(Trial(), "main").segments == []
