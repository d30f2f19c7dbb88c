"""Predictions against old versions of Harbor, each in an environment of its own: `old_versions.py 0.22.0 0.14.0`.

Not a test: it installs packages. For each version it makes a job with that version, copies and changes it as
`resume_scenes` says, and resumes one copy with the version that wrote it and one with the Harbor beside us. It prints
what was predicted and what happened; the exit code is the number of disagreements, at most 100.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2])]

from resume_scenes import (  # noqa: E402
    OLD_TOML,
    SCENES,
    Said,
    Site,
    job_config,
    outcome_of,
    prediction_of,
    write_tasks,
)

from console.bench.resume import DEFAULT_FILTER, Prediction, predict  # noqa: E402
from console.bench.resume.versions import installed_version  # noqa: E402

SECONDS = 900


def install(version: str, root: Path) -> Path:
    """The interpreter of an environment that has this Harbor."""
    python = root / version / "bin" / "python"
    if python.exists():
        return python
    uv = shutil.which("uv")
    if uv and subprocess.run([uv, "--version"], capture_output=True, check=False).returncode == 0:
        subprocess.run([uv, "venv", "-q", "-p", sys.executable, str(root / version)], check=True)
        subprocess.run([uv, "pip", "install", "-q", "-p", str(python), f"harbor=={version}"], check=True)
    else:
        subprocess.run([sys.executable, "-m", "venv", str(root / version)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", f"harbor=={version}"], check=True)
    return python


def drive(python: Path, what: str, asked: object) -> Any:
    done = subprocess.run(
        [str(python), str(HERE / "resume_driver.py"), what],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE), "HARBOR_TELEMETRY": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{python}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def compare(writer: str, version: str, python: Path, base: Path, root: Path) -> Iterator[tuple[str, Said, Said, str]]:
    """For each scene: its name, what was predicted of `version`, what it did, and what it said."""
    sites: dict[str, Site] = {}
    predicted: dict[str, Prediction] = {}
    for number, (name, scene) in enumerate(SCENES.items()):
        site = Site(root / f"{writer}-by-{version}-{number}")
        shutil.copytree(base, site.root)
        try:
            scene(site)
        except FileNotFoundError:  # a version without locks
            continue
        sites[name] = site
        types = DEFAULT_FILTER if site.types is None else site.types
        predicted[name] = predict(site.job, version=version, filter_types=types, cwd=site.cwd, config=site.run)
    asked = {
        name: {"job": str(site.job), "root": str(site.root), "cwd": str(site.cwd), "types": site.types, "run": site.run}
        for name, site in sites.items()
    }
    outcomes = drive(python, "resume", asked)
    for name, site in sites.items():
        yield name, prediction_of(predicted[name]), outcome_of(site, outcomes[name]), outcomes[name]["why"]


def words(said: Said, root: Path) -> str:
    where = Path(said.where).relative_to(root).as_posix().partition("/")[2] if said.where.startswith(str(root)) else ""
    ran = f"runs {len(said.runs)} in {where or said.where}" if said.runs else "runs nothing"
    return f"{said.error or 'goes on'}, deletes {len(said.deleted)}, {ran}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="+")
    parser.add_argument("--venvs", type=Path, help="where environments are kept; default: a temporary directory")
    args = parser.parse_args()
    os.environ["PYTHONPATH"] = str(HERE)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="old-versions-") as directory:
        root = Path(directory)
        for writer in args.versions:
            python = install(writer, args.venvs or root / "venvs")
            base = root / f"base-{writer}"
            write_tasks(base, OLD_TOML)
            config = job_config("resume_parts:Nowhere")
            (base / "job.json").write_text(json.dumps(config))
            drive(python, "make", {"config": config, "cwd": str(base)})
            for version, by in ((writer, python), (installed_version(), Path(sys.executable))):
                print(f"\nwritten by {writer}, resumed by {version}")
                for name, prediction, outcome, why in compare(writer, version, by, base, root):
                    agrees = prediction == outcome
                    wrong += not agrees
                    print(f"  {'agrees' if agrees else 'DIFFERS':<8}{name:<38}{words(outcome, root)}")
                    if not agrees:
                        print(f"          predicted: {prediction}\n          happened:  {outcome} {why[:300]}")
    print(f"\n{wrong} disagreements")
    return min(wrong, 100)


if __name__ == "__main__":
    raise SystemExit(main())
