"""The SDKs on a real capture gateway: linear conversations bridge at every turn, and each token is the same id where it
was sampled, kept and trained."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import HEAD, HOSTILE, ROWS, AgentTrial, call, sample, spelled
from agents_sdk import CLIENTS, ChatSdk

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # litellm's own, of its own types

ODD = "Two\n\nat once [DONE] \u2028 é\U0001f600\n\n"
MARKS = "I say <|im_start|> and </tool_response> aloud.\n"


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    ROWS.clear()
    yield
    print("", HEAD, *(row.line() for row in ROWS), sep="\n")


def script(*, thinks: bool) -> list[str | list[int]]:
    """Samples of a conversation: calls at once, odd texts, ids that no tokenizer writes, no thought, a bad call."""

    def said(text: str, *calls: str, thought: str = "First I look.\n[DONE]  ") -> str:
        return sample(text, *calls, thought=thought if thinks else None)

    return [
        said(ODD, call("bash", command="ls"), call("bash", command="echo 'é' \u2028")),
        spelled(said("Then this.", call("bash", command="  cat a\n\n"))),
        said("", call("bash", command="true"), thought=""),
        spelled(said(MARKS)),
        said("<tool_call>\n<function=bash>\n<parameter=command>never closed", thought="  "),
        said("That is all. "),
    ]


async def linear(trial: AgentTrial, client: type, *, stream: bool) -> None:
    """Tools until the policy is content; then the user wants more, twice."""

    def work() -> None:
        agent = client(trial.url, trial.api_key, stream=stream)
        outputs = iter([HOSTILE, "two", HOSTILE, "", *["more"] * 9])
        for wish in ("Do it.", "And now?", f"Look: {HOSTILE}"):
            agent.user(wish)
            agent.work(lambda: next(outputs))
        assert agent.said[0].strip() == ODD.strip() and agent.said[3].strip() == MARKS.strip()
        assert "never closed" in agent.said[4] and agent.said[5].strip() == "That is all."

    await asyncio.to_thread(work)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", CLIENTS)
async def test_linear_conversations_bridge_at_every_turn(tmp_path: Path, name: str, stream: bool) -> None:
    shown = f"{name}{', stream' if stream else ''}"
    async with AgentTrial(tmp_path, shown, script(thinks=True)) as trial:
        await linear(trial, CLIENTS[name], stream=stream)
    trial.check(bridged=5, unbridged={"first": 1})
    # system, user, reply, what its tools showed (one message in this template), and the beginning of a reply
    assert trial.prompt(1).count(HOSTILE) == 1 and trial.begun(1) == 5


async def test_a_policy_that_does_not_think(tmp_path: Path) -> None:
    """Reasoning off, by the renderer that ends the thought in the prompt."""
    name = "openai SDK, chat"
    replies = script(thinks=False)
    async with AgentTrial(tmp_path, f"{name}, no thoughts", replies, renderer="qwen3_5_disable_thinking") as trial:
        await linear(trial, CLIENTS[name], stream=True)
    trial.check(bridged=5, unbridged={"first": 1})
    assert "<think>\n\n</think>" in trial.prompt(0)


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_client_that_leaves_the_thoughts_out(tmp_path: Path, name: str) -> None:
    """They stay in the policy's context, with the ids that it sampled."""
    replies = [sample("", call("bash", command="ls"), thought=f"thought {number}") for number in range(3)]
    async with AgentTrial(tmp_path, f"{name}, thoughts left out", [*replies, sample("Done.")]) as trial:

        def work() -> None:
            agent = CLIENTS[name](trial.url, trial.api_key, stream=False)
            agent.user("Do it.")
            while calls := agent.ask():
                agent.answer([(each, "out") for each in calls])
                agent.history[:] = [kept for item in agent.history if (kept := without_thoughts(item)) is not None]

        await asyncio.to_thread(work)
    trial.check(bridged=3, unbridged={"first": 1})
    assert all(f"thought {number}" in trial.prompt(3) for number in range(3))


def without_thoughts(item: Any) -> Any:
    """A message or item as an agent sends it back that keeps no thoughts; None for one that is nothing else."""
    if item.get("type") == "reasoning":
        return None
    kept = {key: value for key, value in item.items() if key not in ("reasoning_content", "thinking_blocks")}
    if isinstance(kept.get("content"), list):
        kept["content"] = [part for part in kept["content"] if kind_of(part) != "thinking"]
    return kept


def kind_of(part: Any) -> str:
    return str(part["type"] if isinstance(part, dict) else part.type)


# ---- what is not linear


async def test_a_reply_that_was_cut_off_begins_anew(tmp_path: Path) -> None:
    """Its own tokens are trained; what follows it is a segment with its reason, and bridges on."""
    replies = [
        sample("", call("bash", command="ls")),
        sample("This goes on and on and on and on.", thought="Long."),
        sample("", call("bash", command="ls")),
        sample("Done."),
    ]
    async with AgentTrial(tmp_path, "openai SDK, chat, a reply cut off", replies) as trial:

        def work() -> None:
            agent = ChatSdk(trial.url, trial.api_key, stream=True)
            agent.user("Do it.")
            agent.answer([(each, "out") for each in agent.ask()])
            agent.options = {"max_tokens": 9}
            assert agent.ask() == []
            agent.options = {}
            agent.user("Go on.")
            agent.work(lambda: "out")

        await asyncio.to_thread(work)
    trial.check(bridged=2, unbridged={"first": 1, "truncated": 1})
    assert [asked.params.max_tokens for asked in trial.sampler.asked] == [2048, 9, 2048, 2048]
    assert [len(segment.turns) for segment in trial.captured.segments] == [2, 2]


async def test_a_history_that_was_summed_up(tmp_path: Path) -> None:
    """A summary call without tools, and a new history: three segments, all trained."""
    work_on = [sample(f"step {number}", call("bash", command="ls")) for number in range(3)]
    replies = [*work_on, sample("Files were listed."), work_on[0], sample("Done.")]
    async with AgentTrial(tmp_path, "openai SDK, chat, compaction", replies, aside=lambda prompt: None) as trial:

        def work() -> None:
            agent = ChatSdk(trial.url, trial.api_key, stream=False)
            agent.user("Do it.")
            for _ in range(3):
                agent.answer([(each, HOSTILE) for each in agent.ask()])
            agent.user("Sum it up.")
            agent.tools = False
            agent.ask()
            agent.history[1:] = [{"role": "user", "content": f"Do it. So far: {agent.said[-1]}"}]
            agent.tools = True
            agent.work(lambda: "out")

        await asyncio.to_thread(work)
    trial.check(bridged=3, unbridged={"first": 1, "tools": 1, "compacted": 1})
    assert [(segment.kind, segment.reason) for segment in trial.captured.segments] == [
        ("main", "first"), ("summary", "tools"), ("summary", "compacted"),
    ]  # fmt: skip


async def test_sub_agents_at_the_same_time(tmp_path: Path) -> None:
    """Two conversations of sub-agents, interleaved with each other, and a title: each bridges by itself."""
    turns = {
        "main": [sample("", call("bash", command="ask a"), call("bash", command="ask b")), sample("Both say so.")],
        "a": [spelled(sample("", call("bash", command="ls"))), sample("", call("bash", command="wc")), sample("A.")],
        "b": [sample("", call("bash", command="ls")), sample("", call("bash", command="wc")), sample("B.")],
    }

    def aside(prompt: str) -> Any:
        if "<tools>" not in prompt:
            return sample("A title")
        who = next((name for name in ("a", "b") if f"You are sub-agent {name}." in prompt), "main")
        return turns[who].pop(0)

    async with AgentTrial(tmp_path, "anthropic SDK, two sub-agents and a title", aside=aside) as trial:

        def talk(system: str, wish: str, result: Any, **tools: bool) -> str:
            agent = CLIENTS["anthropic SDK"](trial.url, trial.api_key, stream=True, system=system)
            agent.tools = tools.get("tools", True)
            agent.user(wish)
            agent.work(result)
            return agent.said[-1]

        def sub(name: str) -> str:
            return talk(f"You are sub-agent {name}.", f"Look at {name}.", lambda: HOSTILE)

        async def whole() -> None:
            loop = asyncio.get_running_loop()
            gathered: list[str] = []

            def results() -> str:
                if not gathered:
                    both = asyncio.run_coroutine_threadsafe(both_subs(), loop)
                    gathered.extend(both.result(30))
                return gathered.pop(0)

            async def both_subs() -> list[str]:
                return await asyncio.gather(asyncio.to_thread(sub, "a"), asyncio.to_thread(sub, "b"))

            await asyncio.to_thread(talk, "You name things.", "Do it.", lambda: "", tools=False)
            assert await asyncio.to_thread(talk, "You are the agent.", "Do it.", results) == "Both say so."

        await whole()
    assert not any(turns.values())
    trial.check(bridged=1 + 2 + 2, unbridged={"first": 4}, excluded={"aux": 1})
    assert sorted((segment.kind, len(segment.turns)) for segment in trial.captured.segments) == [
        ("main", 2), ("sub", 3), ("sub", 3),
    ]  # fmt: skip
