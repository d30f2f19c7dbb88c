"""`quarterdeck bench run`: start a Harbor job, its mistakes told before, and stand watch over it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from console.bench.rows import counted
from console.bench.running.job_file import find_job, override, presets, read_job, settle
from console.bench.running.launch import require_harbor
from console.bench.running.options import BenchOptions
from console.bench.running.preflight.places import default_run_dir, existing_finding
from console.commands.bench_left import mopped_lines, say_what_is_left, told_before
from console.commands.bench_run_help import EPILOG, hint
from console.commands.bench_run_text import continue_lines, plan_lines
from console.commands.bench_start import examined, start_benchmark
from console.commands.bench_text import columns
from console.commands.look import add_look, look_of
from console.commands.parsing import Parser
from console.commands.start import Watch, nothing_to_do
from console.errors import UsageError
from console.findings import Finding, errors, report
from console.state.sanitize import sanitize

if TYPE_CHECKING:
    from console.bench.resume import Prediction
    from console.bench.running.preflight import Examination

_FLAGS = {
    "n_concurrent": "n_concurrent_trials",
    "n_attempts": "n_attempts",
    "job_name": "job_name",
    "jobs_dir": "jobs_dir",
    "model": "agent.model_name",
    "n_tasks": "dataset.n_tasks",
}
"""Options that are known from `harbor run`, and what they set."""
_NAMES = {"include_task_name": "task_names", "exclude_task_name": "exclude_task_names"}


def run_main(argv: Sequence[str]) -> int:
    """Run `bench run`; the exit code."""
    args = _arguments(argv)
    if args.list:
        sys.stdout.write("".join(f"{name:<20}{path}\n" for name, path in presets().items()))
        return 0
    if args.job is None:
        raise UsageError("bench run: name a job file, or a bundled one; --list has them")
    if args.json and not args.check:
        raise UsageError("--json goes with --check; a headless run prints JSON lines anyway")
    require_harbor()
    options = _options(args)
    if args.check:
        return _check(options, args)
    if args.go_on:
        prediction = _goes_on(options)
        if _is_complete(options, prediction):
            return _say_complete(options, prediction, _watch(args))
        _agreed(options, prediction, args.yes)
    return start_benchmark(options, _watch(args), look_of(args), goes_on=args.go_on)


def _options(args: argparse.Namespace) -> BenchOptions:
    """Raises UsageError."""
    path = find_job(args.job)
    job = _job(args, path)
    run_dir = Path(os.path.normpath(Path.cwd() / args.run_dir.expanduser())) if args.run_dir else default_run_dir(job)
    return BenchOptions(
        job=job,
        job_file=str(path.resolve()),
        run_dir=str(run_dir),
        name=args.name or job["job_name"],
        throttle=args.throttle,
        early_stop=not args.no_early_stop,
        rules=_rules(args.rules),
    )


def _rules(path: Path | None) -> str:
    """Where the rule file is, "" for none. Raises UsageError for what is wrong in it."""
    if path is None:
        return ""
    from console.bench.rules.user import load_rules

    load_rules(path)
    return str(path.resolve())


def _job(args: argparse.Namespace, path: Path) -> dict[str, Any]:
    """The file with what the command line says."""
    words = [f"{key}={value}" for name, key in _FLAGS.items() if (value := getattr(args, name)) is not None]
    job = read_job(path, [*words, *args.set])
    for name, key in _NAMES.items():
        patterns = getattr(args, name)
        if not patterns:
            continue
        datasets = job.get("datasets")
        if not isinstance(datasets, list) or not datasets:
            raise UsageError(f"--{name.replace('_', '-')}: the job has no datasets to choose from; leave it out")
        for index in range(len(datasets)):
            override(job, f"datasets.{index}.{key}=[]")
            job["datasets"][index][key] = list(patterns)
    if args.go_on and not _named(job, path, args):
        raise UsageError("--continue: which job? give its job_name, in the file or as job_name=NAME")
    return settle(job)


def _named(job: dict[str, Any], path: Path, args: argparse.Namespace) -> bool:
    """Whether somebody named the job; one that nobody did has the time of now for a name."""
    given = any(word.startswith("job_name=") for word in args.set) or args.job_name is not None
    return given or os.path.lexists(f"{job['jobs_dir']}/{job['job_name']}")


def _check(options: BenchOptions, args: argparse.Namespace) -> int:
    """Tell everything, start nothing; the exit code."""
    found: list[Finding] = []
    if args.go_on:
        try:
            _goes_on(options)
        except UsageError as problem:
            found = [Finding(code="bench.continue", object="--continue", message=str(problem))]
    else:
        found = list(existing_finding(options))
    told = examined(options)
    examination = msgspec.structs.replace(told.examination, findings=found + told.examination.findings)
    return _told(examination, args.json)


def _told(examination: Examination, as_json: bool) -> int:
    """Print findings and plan; the exit code."""
    import json

    from console.bench.running.plan import plan_of

    plan = plan_of(examination) if examination.view.valid else None
    if as_json:
        body = {
            "ok": not errors(examination.findings),
            "findings": [msgspec.to_builtins(finding) for finding in examination.findings],
            "plan": plan,
        }
        sys.stdout.write(json.dumps(body) + "\n")
    else:
        lines = [] if plan is None else [*plan_lines(plan, columns()), ""]
        sys.stdout.write("\n".join([*lines, report(examination.findings)]) + "\n")
    return 2 if errors(examination.findings) else 0


def _goes_on(options: BenchOptions) -> Prediction:
    """Say, on stderr, what becomes of the job's directories.

    Raises:
        UsageError: there is no such job, somebody works in it, or Harbor would refuse it, run finished trials again, or
            run what mop-ups of it have run.
    """
    from console.bench.resume import predict
    from console.bench.running.secrets import hide
    from console.records.harbor.running import is_running

    job_dir = Path(options.job_dir)
    if not job_dir.is_dir():
        raise UsageError(f"{job_dir}: there is no such job to go on with; leave --continue out, or name another")
    if is_running(job_dir):
        raise UsageError(f"{job_dir}: a process works in it; attach to its run (quarterdeck runs), or stop it first")
    prediction = predict(job_dir, config=hide(options.job, os.environ).job)
    mop_ups, twice = mopped_lines(prediction)
    lines = [*continue_lines(prediction, columns()), *mop_ups]
    sys.stderr.write("\n".join([*lines, *told_before(prediction, options.rules)]) + "\n")
    instead = f"run what is missing in a job of its own: quarterdeck bench mop-up {sanitize(str(job_dir))}"
    if prediction.refusal is not None:
        raise UsageError(f"{job_dir}: Harbor would refuse to go on: {prediction.refusal.why}; {instead}")
    if prediction.again:
        raise UsageError(f"{job_dir}: {len(prediction.again)} finished trials would run again; {instead}")
    if twice:
        raise UsageError(
            f"{job_dir}: {counted(twice, 'trial')} of these ran in mop-ups of the job already, and would count twice; "
            f"{instead}. Where the mop-ups are not to count, move them elsewhere first"
        )
    return prediction


def _is_complete(options: BenchOptions, prediction: Prediction) -> bool:
    """Whether Harbor would find nothing to do, and has written the end of the job already."""
    from console.records.harbor.jobs import read_job as read_record

    return not prediction.to_run and not prediction.deleted and read_record(Path(options.job_dir)).finished


def _say_complete(options: BenchOptions, prediction: Prediction, watch: Watch) -> int:
    said = f"{options.job_dir} is complete, {counted(len(prediction.kept), 'trial')}: nothing was started"
    code = nothing_to_do(sanitize(said, limit=4000), watch, 1)
    say_what_is_left(Path(options.job_dir), options.rules)
    return code


def _agreed(options: BenchOptions, prediction: Prediction, yes: bool) -> None:
    """Ask before anything is deleted. Raises UsageError when nobody agreed."""
    if yes or not prediction.deleted:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"--continue would delete what is told above in {options.job_dir}: add --yes if that is right")
    sys.stderr.write("go on? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was started")


def _watch(args: argparse.Namespace) -> Watch:
    if args.plain:
        return "plain"
    return "headless" if args.headless else "detach" if args.detach else "console"


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Raises UsageError; for an option of `harbor run` that is none here, with what to write instead."""
    parser = _parser()
    args, left = parser.parse_known_intermixed_args(list(argv))
    if left:
        parser.error(f"unrecognized arguments: {' '.join(left)}{hint(left[0])}")
    return args


def _parser() -> Parser:
    parser = Parser(
        "bench run",
        "Start a job of Harbor's in a process of its own, its mistakes told before, and stand watch over it: tasks x "
        "attempts live with what became of each, the share of infrastructure failures, tokens, cost, time left.",
        EPILOG,
    )
    parser.add_argument("job", nargs="?", metavar="JOB", help="a job file of Harbor's, YAML or JSON, or a bundled one")
    parser.add_argument("set", nargs="*", metavar="KEY=VALUE", help="values to replace in it, see below")
    parser.add_argument("--list", action="store_true", help="the bundled job files")
    parser.add_argument("--check", action="store_true", help="tell what is wrong and what would run; start nothing")
    parser.add_argument("--json", action="store_true", help="with --check: one JSON object: ok, findings, plan")
    parser.add_argument("--continue", dest="go_on", action="store_true", help="go on with a job that was cut off")
    parser.add_argument("--yes", action="store_true", help="with --continue: do not ask")
    watching = parser.add_argument_group("how to watch; the console unless given")
    ways = watching.add_mutually_exclusive_group()
    ways.add_argument("--headless", action="store_true", help="JSON lines on stdout; the run ends with the command")
    ways.add_argument("--plain", action="store_true", help="the same as lines of text")
    ways.add_argument("--detach", action="store_true", help="start it and return; `quarterdeck attach` later")
    watching.add_argument("--name", default="", help="of the run, for the screens; the job's unless given")
    watching.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="where the journal goes; JOBS_DIR/JOB_NAME.run unless given"
    )
    watching.add_argument("--rules", type=Path, metavar="FILE", help="your own rules, as bench triage takes them")
    policy = parser.add_argument_group("what follows when trials fail")
    policy.add_argument(
        "--throttle",
        choices=("advise", "auto", "off"),
        default="advise",
        help="when a quarter of the last 20 failed for infrastructure's sake: say so (the default), halve the trials "
        "at once, or nothing",
    )
    policy.add_argument(
        "--no-early-stop", action="store_true", help="go on also when the first 8 trials all failed in the same way"
    )
    harbor = parser.add_argument_group("as harbor run has them")
    harbor.add_argument("-n", "--n-concurrent", metavar="N", help="trials at once")
    harbor.add_argument("-k", "--n-attempts", metavar="N", help="attempts a task")
    harbor.add_argument("-m", "--model", metavar="NAME", help="of every agent; never changed: openai/openai/x stands")
    harbor.add_argument(
        "-i", "--include-task-name", action="append", metavar="GLOB", help="only these; repeat for more"
    )
    harbor.add_argument("-x", "--exclude-task-name", action="append", metavar="GLOB", help="not these; repeat for more")
    harbor.add_argument("-l", "--n-tasks", metavar="N", help="the first N tasks of each dataset")
    harbor.add_argument("--job-name", metavar="NAME", help="name of the job directory")
    harbor.add_argument(
        "-o", "--jobs-dir", metavar="DIR", help="where it goes; `.` keeps it flat, `jobs` is the default"
    )
    add_look(parser)
    return parser
