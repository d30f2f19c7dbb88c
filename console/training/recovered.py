"""The row of a step that is in a checkpoint, and whose engine ended before it wrote one."""

from __future__ import annotations

from console.journal import events as ev
from console.outcomes.classes import SCORED
from console.records.batches import Opening
from console.state.reduce_trials import mean_and_std


def recovered_row(opening: Opening, weights: str, num_substeps: int) -> ev.StepFinished:
    """The row as far as the journal tells. What only the engine knew that trained the step stays null.

    Args:
        opening: the batch that was trained; weights: their name after it; num_substeps: optimiser steps a batch.
    """
    groups = list(opening.groups.values())
    kept = [group for group in groups if group.ended is not None and group.ended.kept]
    ends = [end for group in kept for end in group.ends.values() if end.outcome in SCORED and end.reward is not None]
    mean, std = mean_and_std([end.reward for end in ends if end.reward is not None])
    outcomes: dict[str, int] = {}
    for group in groups:
        for end in group.ends.values():
            outcomes[end.outcome] = outcomes.get(end.outcome, 0) + 1
    segments = sum(end.segments for end in ends)
    return ev.StepFinished(
        step=opening.step,
        reward_mean=mean,
        reward_std=std,
        outcomes=outcomes,
        groups_kept=len(kept),
        groups_dropped=opening.size - len(kept),
        groups_zero_variance=sum(group.ended is not None and group.ended.zero_variance for group in kept),
        tokens_prompt=sum(end.prompt_tokens for end in ends),
        tokens_sampled=sum(end.sampled_tokens for end in ends),
        seconds_rollout=round(opening.trained - opening.started, 4) if opening.trained is not None else None,
        policy_version=opening.policy_version + min(num_substeps, segments),
        weights=weights,
        recovered=True,
    )
