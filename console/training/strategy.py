"""The cookbook's rollout strategy whose rollouts are Harbor trials."""

from __future__ import annotations

from dataclasses import dataclass

from tinker.lib.public_interfaces.api_future import APIFuture
from tinker_cookbook.exceptions import AllTrajectoriesFailedError
from tinker_cookbook.rl.rollout_strategy import RolloutResult, RolloutStrategy
from tinker_cookbook.rl.types import EnvGroupBuilder, Trajectory

from console.training.dataset import HarborGroup, TrialEnv
from console.training.runtime import current
from console.training.trajectories import trajectory


@dataclass(frozen=True)
class HarborTrials(RolloutStrategy):
    """Hands each group to the engine and brings its scored trials back as trajectories.

    It holds nothing: the cookbook deep-copies and dumps its config. It is set as `rollout_error_tolerance`, which is
    why users may not set that option.
    """

    @property
    def catches_group_errors(self) -> bool:
        """False: whatever the engine raises ends the training loop."""
        return False

    async def execute(self, env_group_builder: EnvGroupBuilder, policy: object) -> RolloutResult:
        """Run one group, and wait for the others of its batch, as the cookbook does: until then it can be discarded.

        Raises:
            AllTrajectoriesFailedError: the group was dropped; the step trains on the others.
            PolicyStopError: an outcome ends the run.
        """
        assert isinstance(env_group_builder, HarborGroup)
        sampler = getattr(policy, "sampling_client")  # noqa: B009 - the cookbook's completer has no public type for it
        if not env_group_builder.needs_sampler:
            sampler = None
        elif isinstance(sampler, APIFuture):  # after a periodic save the cookbook passes a future
            sampler = await sampler.result_async()
        result = await current().run_group(env_group_builder, sampler)
        envs: list[TrialEnv] = []
        trajectories: list[Trajectory] = []
        for trial in result.trials:
            assert trial.captured is not None and trial.verdict.reward is not None
            env = TrialEnv(trial.trial)
            env.reward, env.outcome = trial.verdict.reward, trial.verdict.outcome
            envs.append(env)
            trajectories.append(trajectory(trial.captured))
        result = await current().release_group(env_group_builder)
        if not result.kept:
            raise AllTrajectoriesFailedError(result.reason)
        return RolloutResult(trajectories, envs, [])
