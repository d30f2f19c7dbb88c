"""Random trials: every sampled token that is to be trained is a target exactly once, and nothing else is."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from captured_talks import BASH, READ, Answer, Trial, system, tool, user
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tinker_cookbook.rl.data_processing import trajectory_to_data

from console.capture.chat import ChatMessage
from console.capture.segments import captured_trial, sealed_record
from console.outcomes.classes import CallEvidence
from console.training.trajectories import trajectory

changed = msgspec.structs.replace
MAIN, SUB = (system("Work."), [BASH]), (system("Search."), [BASH, READ])
RESULTS = ["", "ok", "k", "ok ok"]
TOKENS = [[11, 2], [11, 11, 2], [11], [12, 2], [1, 5, 11, 2], [61, 62, 2]]  # short, so that sequences meet by chance


class Conversation:
    """An agent's list of messages; `cuts`: where it may go back to."""

    def __init__(self, start: ChatMessage, tools: list, task: str) -> None:
        self.history: list[ChatMessage] = [start, user(task)]
        self.tools = list(tools)
        self.cuts = [2]
        self.last: tuple[Answer, bool] | None = None  # the reply it goes on from, and whether it names it


class Agents:
    """Plays drawn moves and keeps its own books: `used` and `lost` are what must and must not be trained."""

    def __init__(self) -> None:
        self.trial = Trial()
        self.talks = [Conversation(*MAIN, "task")]
        self.used: set[str] = set()
        self.lost: set[str] = set()
        self.side: dict[str, str] = {}
        self._turn(self.talks[0], 0, 0)

    def play(self, move: int, which: int, how: int) -> None:
        talk = self.talks[which % len(self.talks)]
        moves = [self._turn] * 4 + [
            self._fork, self._ask_twice, self._lose, self._edit, self._compact, self._reprompt, self._spawn,
            self._title, self._intrude, self._truncated, self._nothing, self._in_full,
        ]  # fmt: skip
        moves[move % len(moves)](talk, which, how)

    def _ask(self, talk: Conversation, how: int, **reply: Any) -> Answer:
        tokens = TOKENS[how % len(TOKENS)]
        answer = self.trial.ask(talk.history, talk.tools, **{"say": f"reply {how % 3}", "tokens": tokens} | reply)
        if talk.last is not None:
            before, named = talk.last
            match = answer.match
            if before.node.stop_reason == "length" and named:
                assert match.reason == "truncated" and match.related is before.node
            elif before.node.stop_reason != "length":
                assert match.parent is not None and match.known == len(talk.history) - 1
                assert match.parent is before.node or not named
        return answer

    def _take(self, talk: Conversation, answer: Answer, how: int) -> None:
        """The agent goes on from a reply, which it spells its own way."""
        back = answer.message
        back = [back, changed(back, node=""), changed(back, text=back.text + "\n"), changed(back, reasoning="")][
            how % 4
        ]
        talk.history += [back, tool(RESULTS[how % len(RESULTS)])]
        talk.cuts.append(len(talk.history))
        talk.last = answer, bool(back.node)

    def _turn(self, talk: Conversation, which: int, how: int, **reply: Any) -> None:
        calls = [("bash", '{"command": "ls"}')] if how % 2 else []
        self._take(talk, self._ask(talk, how, calls=calls, reasoning="Hm." if how % 3 else "", **reply), how)

    def _fork(self, talk: Conversation, which: int, how: int) -> None:
        other = Conversation(talk.history[0], talk.tools, "")
        at = talk.cuts[how % len(talk.cuts)]
        other.history = [*talk.history[:at], user(f"another way {how % 2}")]
        other.cuts = [at + 1]
        self.talks.append(other)
        self._turn(other, which, how)

    def _ask_twice(self, talk: Conversation, which: int, how: int) -> None:
        first = self._ask(talk, how, delivered=bool(how % 2), say=f"draft {self.trial.number}")
        self.lost.add(first.node.name)
        self._turn(talk, which, how, say=f"final {self.trial.number}")

    def _lose(self, talk: Conversation, which: int, how: int) -> None:
        self.lost.add(self._ask(talk, how, delivered=False, say=f"unheard {self.trial.number}").node.name)

    def _edit(self, talk: Conversation, which: int, how: int) -> None:
        talk.last = None
        talk.history[1] = user(f"task, edited {how % 3}")

    def _compact(self, talk: Conversation, which: int, how: int) -> None:
        talk.last = None
        talk.history[1:] = [user(f"so far: {how % 3}")]
        talk.cuts = [2]

    def _reprompt(self, talk: Conversation, which: int, how: int) -> None:
        talk.last = None
        if how % 2:
            talk.tools = [READ, BASH] if talk.tools == [BASH] else [BASH]
        else:
            talk.history[0] = system(f"Work, {how % 3}.")

    def _spawn(self, talk: Conversation, which: int, how: int) -> None:
        self.talks.append(Conversation(*(SUB if how % 2 else MAIN), f"part {how % 3}"))
        self._turn(self.talks[-1], which, how)

    def _title(self, talk: Conversation, which: int, how: int) -> None:
        answer = self.trial.ask([system("Make a title."), user(f"task {how}")], tokens=TOKENS[how % len(TOKENS)])
        self.side[answer.node.name] = "aux"

    def _intrude(self, talk: Conversation, which: int, how: int) -> None:
        history = [user(f"intruder {self.trial.number}")]
        for _ in range(2 + how % 2):
            answer = self.trial.ask(history, tokens=TOKENS[how % len(TOKENS)], say="ah")
            self.side[answer.node.name] = "foreign"
            history += [answer.message, user("more")]

    def _truncated(self, talk: Conversation, which: int, how: int) -> None:
        self._turn(talk, which, how, stop="length", tokens=[11, 11], say=f"cut {how % 2}")

    def _nothing(self, talk: Conversation, which: int, how: int) -> None:
        self._take(talk, self._ask(talk, how, tokens=[], say=""), how)

    def _in_full(self, talk: Conversation, which: int, how: int) -> None:
        self._turn(talk, which, how, bridge=False)


moves = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 7), st.integers(0, 11)), min_size=6, max_size=30)


def sequence(datum: Any) -> list[int]:
    """The ids of a datum, inputs and last target."""
    return [*datum.model_input.to_ints(), int(datum.loss_fn_inputs["target_tokens"].to_numpy()[-1])]


def targets(datum: Any) -> list[tuple[int, float, float]]:
    """(token, sampler's log-prob, advantage) where the mask is set; elsewhere there is no advantage."""
    inputs = [datum.loss_fn_inputs[n].to_numpy() for n in ("target_tokens", "logprobs", "advantages", "mask")]
    rows = list(zip(*(values.tolist() for values in inputs), strict=True))
    assert all(logprob == 0 and advantage == 0 for _, logprob, advantage, mask in rows if not mask)
    return [(token, logprob, advantage) for token, logprob, advantage, mask in rows if mask]


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(moves)
def test_each_token_once(drawn):
    agents = Agents()
    for move, which, how in drawn:
        agents.play(move, which, how)
    graph = agents.trial.graph
    nodes = {node.name: node for node in graph.nodes}
    for node in graph.nodes:
        assert node.prompt().tolist() == agents.trial.sent[node.name], "what was sent is the chain of the parents"
        assert node.prompt_tokens == len(agents.trial.sent[node.name])

    evidence = CallEvidence(calls=len(nodes))
    captured = captured_trial(graph, evidence=evidence)
    record = sealed_record(graph, captured)
    trained = [name for line in record.segments for name in line.nodes]
    out = {name: reason for reason, names in record.excluded_nodes.items() for name in names}
    assert Counter([*trained, *out]) == Counter(nodes.keys()), "each sample once, here or there"
    assert captured.excluded == dict(Counter(out.values()))
    for name, reason in agents.side.items():
        assert out[name] == reason
    for name in agents.lost:
        assert out.get(name) in ("superseded", "undelivered", "empty") or nodes[name].delivered
    for node in graph.nodes:
        if node.used and node.tokens_T and node.name not in agents.side:
            assert node.name in trained
        if node.name in trained:
            assert node.used or node.delivered

    made = trajectory(captured)
    data = trajectory_to_data(made, 0.5) if made.transitions else []
    assert len(data) == len(captured.segments), "a datum for each segment"
    lasts = Counter(tuple(nodes[line.nodes[-1]].end()) for line in record.segments)
    assert Counter(tuple(sequence(datum)) for datum in data) == lasts, "which holds what was sent and sampled"
    expected = [
        (token, logprob, 0.5)
        for name in trained
        for token, logprob in zip(nodes[name].tokens_T, nodes[name].logprobs_T, strict=True)
    ]
    assert Counter(row for datum in data for row in targets(datum)) == Counter(expected)

    main = captured_trial(graph, evidence=evidence, rule="main")
    branch = [nodes[turn.node] for segment in main.segments for turn in segment.turns]
    assert {n.name for n in branch} <= set(trained)
    roots = {_root(node) for node in branch}
    assert len(roots) <= 1, "one conversation"
    counts = [node.count for node in branch]
    assert counts == sorted(set(counts)), "and one branch of it"


def _root(node: Any) -> Any:
    while node.extends is not None:
        node = node.extends
    return node
