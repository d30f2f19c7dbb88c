"""The recipe: options and their rules, dataset, rollout strategy, observation of the official cookbook loop."""
