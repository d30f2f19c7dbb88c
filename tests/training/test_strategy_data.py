"""What the cookbook trains on is what was sampled: the same tokens, the same log-probs, each of them once."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import httpx
import pytest
import tinker
from tinker_cookbook.rl.data_processing import trajectory_to_data

from console.capture.captured import CapturedTrial, Segment, Turn
from console.capture.journal import CallJournal
from console.capture.rendering import PolicyRenderer
from console.capture.server import Capture
from console.capture.settings import CallSettings
from console.outcomes.classes import CallEvidence, OutcomeClass, Verdict
from console.training.dataset import HarborGroup
from console.training.groups import GroupResult
from console.training.runtime import Runtime, install
from console.training.setup import make_renderer, register_bundled_tokenizers
from console.training.strategy import HarborTrials
from console.training.trajectories import trajectory
from console.training.trial_run import TrialResult

MODEL_NAME = "quarterdeck/midshipman"


@pytest.fixture(scope="module")
def renderer() -> Any:
    register_bundled_tokenizers()
    return make_renderer(MODEL_NAME, "qwen3_instruct")


def trained(datum: Any) -> list[tuple[int, float, float]]:
    """(token, sampler's log-prob, advantage) where the mask is set."""
    inputs = {name: value.to_numpy().tolist() for name, value in datum.loss_fn_inputs.items()}
    rows = zip(inputs["target_tokens"], inputs["logprobs"], inputs["advantages"], inputs["mask"], strict=True)
    return [(token, logprob, advantage) for token, logprob, advantage, mask in rows if mask]


async def test_a_conversation_becomes_one_datum_of_its_samples(embedded_gateway, renderer, tmp_path):
    sampler = tinker.ServiceClient(base_url=embedded_gateway).create_sampling_client(base_model=MODEL_NAME).result()
    capture = Capture(
        renderer=PolicyRenderer(renderer, name="qwen3_instruct"),
        journal=CallJournal(tmp_path),
        settings=CallSettings(model=MODEL_NAME, max_tokens=40),
    )
    await capture.start()
    route = await capture.open_route("k", sampler, lambda report: None)
    route.start()
    messages = [{"role": "system", "content": "Work."}, {"role": "user", "content": "Create the file a.txt."}]
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        for observation in ("[exit 0]", "[exit 1]\nno such file", ""):
            reply = await client.post(
                f"{route.url}/v1/chat/completions",
                json={"messages": messages, "temperature": 0.01},  # a rare spelling would be encoded another way
                headers={"x-api-key": route.api_key},
            )
            messages.append({"role": "assistant", "content": reply.json()["choices"][0]["message"]["content"]})
            messages.append({"role": "user", "content": observation})
    captured = await route.seal()
    await capture.close()
    (segment,) = captured.segments
    assert len(segment.turns) == 3
    assert all(turn.stop_reason == "stop" for turn in segment.turns), "a model of a terminal ends its turns"
    (datum,) = trajectory_to_data(trajectory(captured), 0.25)
    assert [row[0] for row in trained(datum)] == [token for turn in segment.turns for token in turn.tokens_T]
    assert [row[1] for row in trained(datum)] == pytest.approx([p for turn in segment.turns for p in turn.logprobs_T])
    assert {row[2] for row in trained(datum)} == {0.25}
    whole = [token for turn in segment.turns for token in (*turn.prompt_new, *turn.tokens_T)]
    again = await sampler.compute_logprobs(tinker.ModelInput.from_ints(whole))
    mask = datum.loss_fn_inputs["mask"].to_numpy()
    recomputed = [again[i + 1] for i in range(len(whole) - 1) if mask[i]]
    assert recomputed == pytest.approx([row[1] for row in trained(datum)], abs=2e-3)


class _Policy:
    sampling_client = object()


def _result(trial: int, reward: float, outcome: OutcomeClass) -> TrialResult:
    turn = Turn(node="n0x00000000", prompt_new=array("i", [1]), tokens_T=array("i", [2]), logprobs_T=array("f", [-0.5]))
    captured = CapturedTrial(segments=[Segment(turns=[turn])], evidence=CallEvidence(calls=1))
    return TrialResult(trial=trial, try_=0, verdict=Verdict(outcome=outcome, reward=reward), captured=captured)


async def test_rewards_and_classes_of_the_scored_trials_reach_the_cookbook():
    import asyncio

    from tinker_cookbook.exceptions import AllTrajectoriesFailedError

    kept = GroupResult(
        group=0, kept=True,
        trials=[_result(0, 1.0, OutcomeClass.COMPLETED), _result(2, 0.25, OutcomeClass.AGENT_TIMEOUT)],
    )  # fmt: skip
    dropped = GroupResult(group=0, kept=False, reason="1 scored of 3 trials, 2 needed")
    ended, released = (
        [kept, dropped, kept],
        [kept, dropped, GroupResult(group=0, kept=False, reason="cancelled by ada")],
    )

    async def run_group(group: Any, sampler: Any, version: int) -> GroupResult:
        return ended.pop(0)

    async def release_group(group: Any) -> GroupResult:
        return released.pop(0)

    install(
        Runtime(
            main_loop=asyncio.get_running_loop(), emit=lambda event: None, run_group=run_group,
            release_group=release_group, should_stop=lambda step: False,
        )
    )  # fmt: skip
    group = HarborGroup(Path("task"), 0, 0, 3)
    rollout = await HarborTrials().execute(group, _Policy())
    rewards = await group.compute_group_rewards(rollout.trajectories, rollout.envs)
    assert [reward for reward, _ in rewards] == [1.0, 0.25]
    assert rewards[1][1]["outcome/agent_timeout"] == 1.0 and rewards[1][1]["outcome/completed"] == 0.0
    with pytest.raises(AllTrajectoriesFailedError, match="1 scored of 3"):
        await HarborTrials().execute(group, _Policy())
    with pytest.raises(AllTrajectoriesFailedError, match="cancelled by ada"):
        await HarborTrials().execute(group, _Policy())
