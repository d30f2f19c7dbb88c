"""What is predicted of a resume, against what `harbor job resume` of the installed version does with the same copy."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from resume_scenes import SCENES, Said, Site, job_config, outcome_of, prediction_of, write_tasks  # noqa: E402

from console.bench.resume import DEFAULT_FILTER, Prediction, predict  # noqa: E402
from console.bench.resume.asking import Answer, Question  # noqa: E402

ENVIRONMENT = "console.trials.bwrap:BwrapEnvironment"


def drive(what: str, asked: object) -> Any:
    done = subprocess.run(
        [sys.executable, str(HERE / "resume_driver.py"), what],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE)},
        timeout=170,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def digest(root: Path) -> list[tuple[str, int, int]]:
    """Everything below a directory, by size and time of change."""
    return [(str(path), path.lstat().st_mtime_ns, path.lstat().st_size) for path in [*sorted(root.rglob("*")), root]]


class Compared:
    """For each scene the predictions, made first, and the outcome."""

    def __init__(self, root: Path) -> None:
        self.sites: dict[str, Site] = {}
        self.asked: dict[str, Prediction] = {}
        self.read: dict[str, Prediction] = {}
        self.touched: list[str] = []
        self.base = base = root / "base"
        write_tasks(base)
        (base / "job.json").write_text(json.dumps(job_config(ENVIRONMENT)))
        drive("make", {"config": job_config(ENVIRONMENT), "cwd": str(base)})
        for number, (name, scene) in enumerate(SCENES.items()):
            site = Site(root / f"site-{number}")
            shutil.copytree(base, site.root)
            scene(site)
            self.sites[name] = site
        self._predict()
        scenes = {name: as_asked(site) for name, site in self.sites.items()}
        self.outcomes = drive("resume", scenes)

    def _predict(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("console.bench.resume.predicting.ask", ask_here)
            for name, site in self.sites.items():
                before = digest(site.root)
                self.asked[name] = told(site)
                if digest(site.root) != before:
                    self.touched.append(name)
            patch.setattr("console.bench.resume.predicting.installed_version", lambda: "")
            for name, site in self.sites.items():
                self.read[name] = told(site, version="0.26.0")

    def outcome(self, name: str) -> Said:
        return outcome_of(self.sites[name], self.outcomes[name])


def ask_here(question: Question, cwd: Path) -> Answer:
    """As in a process of its own, which would load Harbor for each scene anew."""
    from console.trials.resume_view import View

    with contextlib.chdir(cwd):
        told = View(json.loads(msgspec.json.encode(question))).run()
    return msgspec.json.decode(json.dumps(told), type=Answer)


def as_asked(site: Site) -> dict[str, Any]:
    told = {"job": str(site.job), "root": str(site.root), "cwd": str(site.cwd), "types": site.types}
    return told if site.run is None else told | {"run": site.run}


def told(site: Site, version: str | None = None) -> Prediction:
    types = DEFAULT_FILTER if site.types is None else site.types
    return predict(site.job, version=version, filter_types=types, cwd=site.cwd, config=site.run)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    return Compared(tmp_path_factory.mktemp("resume"))


@pytest.mark.parametrize("name", SCENES)
def test_prediction_and_outcome_agree(compared: Compared, name: str) -> None:
    prediction = compared.asked[name]
    assert prediction_of(prediction) == compared.outcome(name), (compared.outcomes[name]["why"], prediction.refusal)


@pytest.mark.parametrize("name", [name for name in SCENES if name != "task changed"])
def test_without_harbor_the_files_tell_the_same(compared: Compared, name: str) -> None:
    prediction = compared.read[name]
    assert not prediction.asked
    assert prediction_of(prediction) == compared.outcome(name), (compared.outcomes[name]["why"], prediction.refusal)


def test_a_prediction_touches_nothing(compared: Compared) -> None:
    assert compared.touched == []


def test_tasks_of_a_repository_are_taken_as_they_were_recorded(
    compared: Compared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is fetched: trials and lock tell the tasks."""
    monkeypatch.setattr("console.bench.resume.predicting.ask", ask_here)
    shutil.copytree(compared.base, tmp_path / "site")
    site = Site(tmp_path / "site")

    def of_repository(task: dict[str, Any]) -> None:
        name = Path(task["path"]).name
        task.update(path=name, git_url="https://git.invalid/bench", git_commit_id="c0ffee", source="bench")

    def of_lock(lock: dict[str, Any]) -> None:
        for trial in lock["trials"]:
            of_repository(trial["task"])
            trial["task"]["type"] = "git"

    site.edit(site.job / "config.json", lambda config: config.update(datasets=[{"name": "bench", "version": "1"}]))
    site.edit(site.job / "lock.json", of_lock)
    for trial in site.trials():
        site.edit(trial / "config.json", lambda config: of_repository(config["task"]))
    shutil.rmtree(site.trials("alpha")[0])
    for trial in site.trials("beta"):
        shutil.rmtree(trial)
    prediction = told(site)
    assert prediction.asked and prediction.refusal is None, prediction.refusal
    assert [(run.task, run.trials) for run in prediction.runs] == [("alpha", 1), ("beta", 2)]
    assert len(prediction.kept) == 3 and any("bench lies elsewhere" in line for line in prediction.unsure)
    site.edit(site.job / "config.json", lambda config: config["datasets"][0].update(task_names=["gamma"]))
    assert told(site).refusal is not None
