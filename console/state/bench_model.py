"""What is known of a benchmark besides what it has in common with a training; see `BenchPlanned` and `BenchLimited`."""

from __future__ import annotations

import msgspec

BENCH_RECENT_KEPT = 200


class BenchState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A job of Harbor's. Empty for a training, and before the job is known.

    Attributes:
        job_dir, job_name, harbor, dataset, agents, models, tasks, attempts, trials, concurrency, parent, mop_up: as
            planned; stood: trials of an earlier run of the job that were to stand.
        limit: trials that may be at work at once, 0 while none may begin; limited_by, why: who set it, and why; empty
            as long as it is that of the job; limit_since: when it last came to another number above 0.
        finished: outcome class to trials that ended so, final tries only, those that stood included.
        recent: outcome classes of the last tries that ended, oldest first, without those that stood.
        prompt_tokens, cached_tokens, sampled_tokens: of every try that ended, cached ones among the prompt's.
        cost_usd: US dollars of those tries that tell them, None when none did.
        seconds, agent_seconds: summed over every try that ended: its whole time, and the agent's.
    """

    job_dir: str = ""
    job_name: str = ""
    harbor: str = ""
    dataset: str = ""
    agents: list[str] = []
    models: list[str] = []
    tasks: int = 0
    attempts: int = 1
    trials: int = 0
    stood: int = 0
    concurrency: int = 0
    limit: int = 0
    limited_by: str = ""
    why: str = ""
    limit_since: float = 0.0
    parent: str = ""
    mop_up: int = 0
    finished: dict[str, int] = {}
    recent: list[str] = []
    prompt_tokens: int = 0
    cached_tokens: int = 0
    sampled_tokens: int = 0
    cost_usd: float | None = None
    seconds: float = 0.0
    agent_seconds: float = 0.0

    @property
    def done(self) -> int:
        """Trials that have ended, those that stood included."""
        return sum(self.finished.values())
