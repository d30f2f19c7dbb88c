"""What the cookbook trains on is what was sampled: the same tokens, the same log-probs, each of them once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
import tinker
from tinker_cookbook.rl.data_processing import trajectory_to_data

from console.capture.base import CapturedCall, CapturedTrial
from console.capture.cookbook_proxy import CookbookCapture
from console.outcomes.classes import CallEvidence, OutcomeClass, Verdict
from console.training.dataset import HarborGroup
from console.training.groups import GroupResult
from console.training.runtime import Runtime, install
from console.training.setup import make_renderer, register_bundled_tokenizers
from console.training.strategy import HarborTrials, trajectory
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
    capture = CookbookCapture(
        renderer=renderer, model_label=MODEL_NAME, default_max_tokens=40, context_window=None,
        listen_host="127.0.0.1", advertised_host="127.0.0.1", directory=tmp_path,
    )  # fmt: skip
    await capture.start()
    route = await capture.open_route("k", sampler, lambda report: None)
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
    calls = (await route.seal()).calls
    await capture.close()
    assert len(calls) == 3
    assert all(c.stop_reason == "stop" for c in calls), "a model of a terminal ends its turns"
    (datum,) = trajectory_to_data(trajectory(calls), 0.25)
    assert [row[0] for row in trained(datum)] == [token for call in calls for token in call.tokens_T]
    assert [row[1] for row in trained(datum)] == pytest.approx([p for call in calls for p in call.logprobs_T])
    assert {row[2] for row in trained(datum)} == {0.25}
    whole = calls[-1].prompt_P + calls[-1].tokens_T
    again = await sampler.compute_logprobs(tinker.ModelInput.from_ints(whole))
    mask = datum.loss_fn_inputs["mask"].to_numpy()
    recomputed = [again[i + 1] for i in range(len(whole) - 1) if mask[i]]
    assert recomputed == pytest.approx([row[1] for row in trained(datum)], abs=2e-3)


def call(prompt: list[int], tokens: list[int]) -> CapturedCall:
    logprobs = [-t / 100 for t in tokens]
    return CapturedCall(prompt_P=prompt, tokens_T=tokens, logprobs_T=logprobs, stop_reason="stop", seconds=0.1)


def test_a_rewritten_history_starts_a_datum_and_nothing_trains_twice():
    calls = [call([1, 2], [3, 4]), call([1, 2, 3, 4, 5], [6]), call([9, 9], [7, 8]), call([1, 2], [])]
    data = trajectory_to_data(trajectory(calls), 1.0)
    assert [[row[0] for row in trained(d)] for d in data] == [[3, 4, 6], [7, 8]]


def test_the_reward_is_no_part_of_a_trajectory():
    made = trajectory([call([1], [2]), call([1, 2], [3])])
    assert [t.reward for t in made.transitions] == [0.0, 0.0]
    assert [t.episode_done for t in made.transitions] == [False, True]
    assert made.stop_reason is None


class _Policy:
    sampling_client = object()


def _result(trial: int, reward: float, outcome: OutcomeClass) -> TrialResult:
    captured = CapturedTrial(calls=[call([1], [2])], evidence=CallEvidence(calls=1))
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
