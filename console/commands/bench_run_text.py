"""What `bench run` says before it starts anything: the plan, and what would become of a job that is gone on with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from console.commands.bench_text import clean, paragraph

if TYPE_CHECKING:
    from console.bench.resume import Directory, Prediction

_NAMED = 8
_SIDES = {
    "host": "asks the model from this machine",
    "sandbox": "asks the model from inside the sandbox",
    "none": "asks no model",
}


def plan_lines(plan: Mapping[str, Any], width: int) -> Iterator[str]:
    """The plan, a line for each thing; paths are whole, so that they can be copied."""
    trials = "a number of trials that is known when the tasks are fetched"
    if plan["trials"] is not None:
        trials = (
            f"{_many(plan['trials'], 'trial')}: {_many(plan['tasks'], 'task')} x {_many(plan['attempts'], 'attempt')}"
        )
        trials += f" x {len(plan['agents'])} agents" if len(plan["agents"]) > 1 else ""
    elif plan["attempts"] > 1:
        trials += f", {plan['attempts']} attempts a task"
    yield from paragraph(f"{trials}, {plan['concurrency']} at once, in {plan['environment']}", width, _label("runs"))
    if plan["task_names"]:
        yield from paragraph(_some(plan["task_names"]), width, _label("tasks"))
    for dataset in plan["datasets"]:
        yield from paragraph(dataset, width, _label("dataset"))
    for agent in plan["agents"]:
        words = [agent["name"], agent["model"] and f"with {agent['model']}"]
        words += [_SIDES.get(agent["side"], ""), agent["endpoint"] and f"at {agent['endpoint']}"]
        yield from paragraph(" ".join(word for word in words if word), width, _label("agent"))
    if plan["longest_hours"] is not None:
        yield from paragraph(
            f"at most {_hours(plan['longest_hours'])}, if every agent used all of its time", width, _label("lasts")
        )
    yield _label("job dir") + clean(plan["job_dir"], 4000)
    yield _label("run dir") + clean(plan["run_dir"], 4000)


def continue_lines(prediction: Prediction, width: int) -> Iterator[str]:
    """What would be kept, deleted and run again."""
    yield from paragraph(
        f"{prediction.job_dir}: {_many(len(prediction.kept), 'trial')} kept, "
        f"{_many(len(prediction.deleted), 'directory', 'directories')} deleted, "
        f"{_many(prediction.to_run, 'trial')} to run",
        width,
    )
    for name, directories in (("deleted", prediction.deleted), ("left", prediction.left)):
        if directories:
            yield from paragraph(_directories(directories), width, _label(name))
    if prediction.runs:
        tasks = list(dict.fromkeys(planned.task for planned in prediction.runs))
        yield from paragraph(_some(tasks), width, _label("runs"))
    for line in prediction.refusal.differs if prediction.refusal is not None else ():
        yield from paragraph(line, width, _label("differs"))
    for line in prediction.unsure:
        yield from paragraph(line, width, _label("unsure"))


def _directories(directories: Sequence[Directory]) -> str:
    """Their names with the reason."""
    return _some([f"{each.name} ({each.reason.replace('_', ' ')})" for each in directories])


def _some(names: Sequence[str]) -> str:
    more = f", and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _hours(hours: float) -> str:
    return f"{hours:.0f} h" if hours >= 10 else f"{hours:.1f} h" if hours >= 1 else f"{max(1, round(hours * 60))} min"


def _label(name: str) -> str:
    return f"{name:<9}"


def _many(count: int, one: str, several: str = "") -> str:
    return f"{count:,} {one if count == 1 else several or one + 's'}"
