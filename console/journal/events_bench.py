"""Events of benchmark runs alone.

A benchmark is told in the words of a run: it has one step, its groups are Harbor's tasks (once for each agent and
model), the trials of a group are the task's attempts, and Harbor's own retries are further tries of a trial.
"""

from __future__ import annotations

from console.journal.event import Event


class BenchPlanned(Event, tag="bench.planned"):
    """Harbor resolved the job: what will run is known.

    Attributes:
        job_dir: absolute path of Harbor's job directory; job_name: its name there; harbor: Harbor's version.
        dataset: as the job names it; agents, models: one name for each agent of the job, in its order.
        tasks, attempts, trials: of the whole job; done: trials of an earlier run of the job that stand.
        concurrency: trials at once, as the job asks for.
        parent: job directory that a mop-up belongs to, empty for none; mop_up: its number, from 1; 0 for none.
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
    done: int = 0
    concurrency: int = 0
    parent: str = ""
    mop_up: int = 0


class BenchLimited(Event, tag="bench.limited"):
    """How many trials may be at work at once changed.

    Attributes:
        limit: trials at once, 0 while none may begin; by: policy, or the operator's name; why: one line.
    """

    limit: int
    by: str = "policy"
    why: str = ""
