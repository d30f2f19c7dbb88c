"""Makes jobs and resumes them with the Harbor of the interpreter that runs it: `resume_driver.py make|resume`.

One process for many resumes, since loading Harbor takes longer than any of them. JSON on stdin, JSON on stdout: what
was there before and after, and by which exception it ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))


def make(config, cwd):
    from harbor.job import Job
    from harbor.models.job.config import JobConfig

    async def run():
        model = JobConfig.model_validate(config)
        job = await Job.create(model) if hasattr(Job, "create") else Job(model)
        await job.run()

    os.chdir(cwd)
    asyncio.run(run())


def again(config, cwd):
    """As `harbor run -c` does with a job that is there already."""
    try:
        make(config, cwd)
    except BaseException as error:
        return type(error).__name__, str(error)
    return "", ""


def resume(job, cwd, types):
    from harbor.cli.jobs import resume as command

    os.chdir(cwd)
    try:
        command(Path(job), types, None) if types is not None else command(Path(job))
    except BaseException as error:
        return type(error).__name__, str(error)
    return "", ""


def trials(root):
    """Task and inode of every trial with a configuration, by its path: below a job, or anywhere below a root."""
    found = {}
    for path in sorted(Path(root).rglob("config.json")):
        try:
            config = json.loads(path.read_text())
        except ValueError:
            continue
        if "task" in config:
            found[str(path.parent)] = [Path(config["task"]["path"]).name, path.parent.stat().st_ino]
    return found


def outcome(scene):
    job, root = Path(scene["job"]), scene["root"]
    before = sorted(path.name for path in job.iterdir() if path.is_dir())
    had = trials(root)
    if scene.get("run"):
        error, why = again(scene["run"], scene["cwd"])
    else:
        error, why = resume(job, scene["cwd"], scene["types"])
    after = sorted(path.name for path in job.iterdir() if path.is_dir()) if job.exists() else []
    new = [[path, task] for path, (task, inode) in trials(root).items() if had.get(path) != [task, inode]]
    return {
        "error": error,
        "why": why,
        "deleted": [name for name in before if name not in after],
        "stayed": [name for name in before if name in after],
        "new": new,
    }


def main():
    asked = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if sys.argv[1] == "make":
        make(asked["config"], asked["cwd"])
        answer = {}
    else:
        answer = {name: outcome(scene) for name, scene in asked.items()}
    with out:
        json.dump(answer, out)


if __name__ == "__main__":
    main()
