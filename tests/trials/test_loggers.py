"""A runner keeps no loggers of trials that have ended."""

from __future__ import annotations

import logging
from pathlib import Path

from console.trials.drive import drive
from console.trials.loggers import forget_loggers
from console.trials.protocol import StartTrial

ROOT = Path(__file__).resolve().parents[2]


async def test_a_trial_leaves_no_loggers(tmp_path: Path):
    def trial(number: int) -> StartTrial:
        config = {
            "task": {"path": str(ROOT / "configs/tasks/create-file")},
            "trial_name": f"create-file__s0.g0.t{number}.y0-ab",
            "trials_dir": str(tmp_path),
            "environment": {"import_path": "console.trials.bwrap:BwrapEnvironment"},
            "agent": {"name": "oracle"},
        }
        return StartTrial(key=f"s0.g0.t{number}.y0", config=config)

    await drive(trial(0), lambda progress: None)  # loggers of modules come with the first one
    before = set(logging.root.manager.loggerDict)
    report = await drive(trial(1), lambda progress: None)
    assert report.rewards == {"reward": 1.0}
    assert set(logging.root.manager.loggerDict) == before


def test_only_loggers_of_that_trial_go():
    for name in ("h.t.one", "h.t.one.agents", "h.t.one-more", "one"):
        logging.getLogger(name)
    assert forget_loggers("one") == 2
    assert {"h.t.one-more", "one"} <= set(logging.root.manager.loggerDict)


def test_places_of_a_dotted_name_go_with_the_last_trial_under_them():
    before = set(logging.root.manager.loggerDict)
    for trial in ("task__s1.g0.t0", "task__s1.g0.t1"):
        logging.getLogger(f"harbor-trial.{trial}.agents")
    forget_loggers("task__s1.g0.t0")
    assert "harbor-trial.task__s1.g0" in logging.root.manager.loggerDict
    forget_loggers("task__s1.g0.t1")
    assert set(logging.root.manager.loggerDict) - before == {"harbor-trial"}
