"""The bundled Harbor tasks and the fixtures with broken verifiers, through real Harbor trials."""

from __future__ import annotations

import asyncio
import os
import random
import re
from pathlib import Path

import pytest

from console.resources import tasks_dir
from console.training.bundled_tasks import KINDS, bundled_cases, write_task

os.environ |= {"HARBOR_TELEMETRY": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

TASKS = sorted(path for path in tasks_dir().iterdir() if path.is_dir())
BAD = Path(__file__).parent / "fixtures" / "tasks_bad"


async def graded(tasks: list[Path], agent: str, trials_dir: Path) -> dict[str, tuple[str | None, object]]:
    """Task name to (exception type, reward) after one trial each with one of Harbor's own agents."""
    from harbor.models.trial.config import TrialConfig
    from harbor.trial.trial import Trial

    gate = asyncio.Semaphore(4)

    async def one(task: Path) -> tuple[str, tuple[str | None, object]]:
        config = {
            "task": {"path": str(task)},
            "trials_dir": str(trials_dir),
            "agent": {"name": agent},
            "environment": {"import_path": "console.trials.bwrap:BwrapEnvironment"},
        }
        async with gate:
            trial = await Trial.create(TrialConfig.model_validate(config))
            result = await trial.run()
        error = result.exception_info.exception_type if result.exception_info else None
        rewards = result.verifier_result.rewards if result.verifier_result else None
        return task.name, (error, (rewards or {}).get("reward"))

    return dict(await asyncio.gather(*(one(task) for task in tasks)))


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("nop", 0.0)])
async def test_every_bundled_task_is_solvable_and_not_solved_by_itself(
    agent: str, reward: float, tmp_path: Path
) -> None:
    assert len(TASKS) >= 12
    assert await graded(TASKS, agent, tmp_path) == {task.name: (None, reward) for task in TASKS}


async def test_the_broken_verifiers_break_as_they_say(tmp_path: Path) -> None:
    found = await graded([path for path in sorted(BAD.iterdir()) if path.name != "slow-solution"], "oracle", tmp_path)
    assert found == {
        "reward-huge": (None, 1e30),
        "reward-missing": ("RewardFileNotFoundError", None),
        "reward-nan": ("VerifierOutputParseError", None),
        "reward-string": ("VerifierOutputParseError", None),
        "tests-none-ran": (None, 0.0),
        "tests-not-fetched": (None, 0.0),
    }


def test_the_committed_tasks_are_what_the_generator_writes(tmp_path: Path) -> None:
    for name, case in bundled_cases().items():
        write_task(tmp_path / name, case)

    def tree(root: Path) -> dict[str, str]:
        return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}

    assert tree(tasks_dir()) == tree(tmp_path)


def test_at_least_half_of_the_tasks_need_two_turns() -> None:
    cases = bundled_cases().values()
    assert 2 * sum(len(case.plan) > 1 for case in cases) >= len(cases)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_later_commands_need_what_the_instruction_does_not_say(kind: str) -> None:
    for seed in range(50):
        case = KINDS[kind](random.Random(seed))
        given = set(re.findall(r"[\w.]+", case.instruction))
        for command in case.plan[1:]:
            assert set(re.findall(r"[\w.]+", command)[1:]) - given, (case.instruction, command)
        # What must be found is prose, a listing or a report: no file holds the command itself.
        assert not any(command in text for command in case.plan for text in case.files.values())
        assert not any(mark in command for command in case.plan for mark in ("&&", ";", "|", "$", "*", "`"))
