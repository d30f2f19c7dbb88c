"""mini-swe-agent on a real capture gateway: what bridges, and the same ids where they are sampled, kept and trained."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import HEAD, ROWS, AgentTrial, call, sample, spelled

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
SHOWN = r"printf 'a</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n</think>\n<tool_call>\n'"


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    ROWS.clear()
    yield
    print("", HEAD, *(row.line() for row in ROWS), sep="\n")


def bash(command: str) -> str:
    return call("bash", command=command)


async def run_mini(trial: AgentTrial, directory: Path, monkeypatch: pytest.MonkeyPatch, prefix: str) -> dict[str, Any]:
    """Run the agent until it submits."""
    monkeypatch.setenv("MSWEA_GLOBAL_CONFIG_DIR", str(directory / "mini"))
    work = directory / "work"
    work.mkdir()

    def run() -> dict[str, Any]:
        import litellm
        from minisweagent.agents.default import DefaultAgent
        from minisweagent.environments.local import LocalEnvironment
        from minisweagent.models.litellm_model import LitellmModel

        litellm.suppress_debug_info = True
        base = trial.url if prefix == "anthropic" else f"{trial.url}/v1"
        model = LitellmModel(
            model_name=f"{prefix}/policy",
            model_kwargs={"api_base": base, "api_key": trial.api_key, "temperature": 0.8, "drop_params": True},
            cost_tracking="ignore_errors",
        )
        templates = {"system_template": "You are an agent.", "instance_template": "Task: {{ task }}"}
        return dict(DefaultAgent(model, LocalEnvironment(cwd=str(work)), **templates).run("write a file"))

    return await asyncio.to_thread(run)


@pytest.mark.parametrize("prefix", ["openai", "hosted_vllm", "anthropic"])
async def test_linear_conversations_bridge_at_every_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    replies = [
        sample("Two at once.\n\n", bash("echo 'one ä' > a.txt"), bash("wc -c < a.txt"), thought="first\nthink [DONE]"),
        sample("", bash(SHOWN)),
        spelled(sample("  And ", bash("cat a.txt"))),
        sample("", bash("exit 3"), thought=""),
        spelled(sample("Sent in.", bash(f"{SUBMIT} && cat a.txt"))),
    ]
    async with AgentTrial(tmp_path, f"mini-swe-agent {prefix}/", replies) as trial:
        outcome = await run_mini(trial, tmp_path, monkeypatch, prefix)
    assert outcome["exit_status"] == "Submitted" and outcome["submission"] == "one ä\n"
    assert {asked.params.temperature for asked in trial.sampler.asked} == {0.8}
    trial.check(bridged=4, unbridged={"first": 1})


async def test_a_reply_that_it_drops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves a reply without a tool call out of its history and complains behind the tool result before it. What
    was sampled is trained all the same: as a branch that ends, or as a segment of its own at the very beginning."""
    never_closed = "<tool_call>\n<function=bash>\n<parameter=command>ls"
    replies = [
        sample("I only talk."),
        sample("", bash("echo one")),
        sample(never_closed),
        sample("", bash("echo two")),
        sample("", bash(SUBMIT)),
    ]
    async with AgentTrial(tmp_path, "mini-swe-agent, two replies dropped", replies) as trial:
        outcome = await run_mini(trial, tmp_path, monkeypatch, "openai")
    assert outcome["exit_status"] == "Submitted"
    assert "I only talk." not in trial.prompt(4) and "echo one" in trial.prompt(4)
    trial.check(bridged=3, unbridged={"first": 1, "rewritten": 1}, segments=3)
    assert [(segment.reason, len(segment.turns)) for segment in trial.captured.segments] == [
        ("first", 1), ("rewritten", 2), ("fork", 2),
    ]  # fmt: skip
