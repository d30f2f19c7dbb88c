"""The row of a finished step, from the cookbook's metrics, the groups' results, and the figures noted on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from console.journal import events as ev
from console.state.reduce_trials import mean_and_std
from console.training.figures import combine, finite

if TYPE_CHECKING:
    from console.training.runtime import Runtime


def step_row(runtime: Runtime, metrics: dict[str, Any]) -> ev.StepFinished:
    """The step's row; what is not known stays null, what is not finite too, and is named in `nonfinite`."""
    nonfinite: list[str] = []
    kept = [g for g in runtime.groups if g.kept]
    rewards = [reward for group in kept for reward in group.rewards]
    mean, std = mean_and_std(rewards)
    figures = combine(runtime.figures)
    captured = [trial.captured for group in kept for trial in group.trials if trial.captured]
    outcomes: dict[str, int] = {}
    for group in runtime.groups:
        for name, count in group.outcomes.items():
            outcomes[name] = outcomes.get(name, 0) + count

    def figure(value: Any, name: str) -> float | None:
        return finite(float(value) if value is not None else None, name, nonfinite)

    def first(*names: str) -> Any:
        return next((metrics[name] for name in names if metrics.get(name) is not None), None)

    return ev.StepFinished(
        step=runtime.step,
        reward_mean=mean,
        reward_std=std,
        outcomes=outcomes,
        groups_kept=len(kept),
        groups_dropped=len(runtime.groups) - len(kept),
        groups_zero_variance=sum(g.zero_variance for g in kept),
        ppo_loss=figure(figures.ppo_loss, "ppo_loss"),
        clip_fraction=figure(figures.clip_fraction, "clip_fraction"),
        kl_sample_train_v1=figure(figures.kl_v1, "kl_sample_train_v1"),
        kl_sample_train_v2=figure(figures.kl_v2, "kl_sample_train_v2"),
        kl_sample_train_k3=figure(figures.kl_k3, "kl_sample_train_k3"),
        entropy=figure(figures.entropy, "entropy"),
        grad_norm=figure(first("unclipped_grad_l2:mean", "grad_norm:mean", "grad_norm"), "grad_norm"),
        learning_rate=figure(metrics.get("optim/lr"), "learning_rate"),
        tokens_prompt=sum(trial.prompt_tokens for trial in captured),
        tokens_sampled=sum(trial.evidence.sampled_tokens for trial in captured),
        tokens_trained=figures.tokens if runtime.figures or not kept else None,
        seconds_rollout=figure(first("time/sampling", "time/sampling:total"), "seconds_rollout"),
        seconds_train=figure(first("time/train_step", "time/train_step:total"), "seconds_train"),
        seconds_save=figure(first("time/save_checkpoint", "time/save_checkpoint:total"), "seconds_save"),
        seconds_total=figure(first("time/total"), "seconds_total"),
        policy_version=runtime.policy_version,
        nonfinite=nonfinite,
        weights=runtime.weights,
        replayed=runtime.replaying,
    )
