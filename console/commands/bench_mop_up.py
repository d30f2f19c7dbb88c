"""`quarterdeck bench mop-up`: what failed for reasons that are not the agent's, run again in a job of its own."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from console.commands.bench_options import RULE_FILE, Progress, complain, load
from console.commands.bench_text import columns
from console.commands.look import add_look, look_of
from console.commands.parsing import Parser
from console.errors import RecordingError, UsageError
from console.findings import ERROR, NOTE, Finding, errors
from console.outcomes.classes import OutcomeClass

if TYPE_CHECKING:
    from console.bench.mop_up.choice import Wish
    from console.bench.mop_up.plan import Plan, PlannedJob
    from console.bench.running.options import BenchOptions
    from console.bench.running.preflight import Examination
    from console.commands.start import Watch

CHOOSABLE = tuple(
    one.value
    for one in OutcomeClass
    if one not in (OutcomeClass.COMPLETED, OutcomeClass.CAPTURE_LOSS, OutcomeClass.NO_LOGPROBS, OutcomeClass.NO_SAMPLES)
)

LEAVING_SECONDS = 5.0

_EPILOG = (
    """\
which attempts run again: those for which nothing stands that says something of the agent, once the job and its earlier
mop-ups are merged (they are found beside it)
  infrastructure    a sandbox, the model's service, the network or the set-up failed
  bad_reward        only where the verifier could not run: it lacked its tools, or a lock
  cancelled         also what the end of its job cut off
  unreadable        only what has no result: cut off, or planned and never begun

which do not, unless they are named
  agent_timeout     a result: the agent had its time (--class agent_timeout)
  context_overflow, output_limit, agent_failure
                    the agent's own (--class NAME)
  configuration     a wrong key fails again until it is put right (--mended says that it was)
  completed         never by class: running graded trials again until they pass inflates the figure. One task,
                    knowingly: --task NAME --force; the lineage file and every tally tell it

when it ends: an attempt that three mop-ups have run, and infrastructure has ended each time, is accepted as final and
not chosen again (the first run is not one of the three); --ceiling N for more. A task that fails so often tells of its
image or of its needs: triage it, do not type it again.

what it writes: a new job beside the old one, <job>-mop-up-<n>, with exactly those tasks, and a lineage file in it that
names its parent. Nothing is written into the job or an earlier mop-up, and nothing of them is deleted, as `harbor job
resume` would. Tasks that lack different numbers of attempts are jobs of their own, run one after the other. Cut off
and typed again, it runs what is still missing, in a job of its own: what was finished stands.

what may change: where the model is served, its key's variable, trials at once, retries. Model, agent, its other
options, time-outs, sandbox and dataset are what is measured: --force-change, and the lineage file tells it.

"""
    + RULE_FILE
    + """
examples:
  quarterdeck bench mop-up jobs/a --dry-run       what would run, and why
  quarterdeck bench mop-up jobs/a                 asks, then runs it under the console
  quarterdeck bench mop-up jobs/a --api-base https://new-host/v1 --n-concurrent 2
  quarterdeck bench mop-up jobs/a --except 'qemu-*' --yes --headless
"""
)


def mop_up_main(argv: Sequence[str]) -> int:
    """Run `bench mop-up`; the exit code."""
    args = _parser().parse_args(argv)
    if args.json and not args.dry_run:
        raise UsageError("--json: is the plan, and needs --dry-run; the run's own lines are --headless")
    watch = _watch(args)
    if args.dry_run:
        return _told(args, _plan(args))
    if not args.yes and not sys.stdin.isatty():
        raise UsageError("bench mop-up asks before it starts anything: --yes where there is no terminal to ask on")
    from console.bench.mop_up.family import family_of
    from console.bench.mop_up.writing import alone

    with alone(family_of(args.dirs[0]).root):
        plan = _plan(args)
        _say(_lines(plan))
        if not plan.jobs:
            return _nothing(plan, watch)
        if not args.yes and not _agreed(plan):
            raise UsageError("nothing was started")
        return _run(args, plan, watch)


def _run(args: argparse.Namespace, plan: Plan, watch: Watch) -> int:
    """The jobs one after the other; the exit code of the last that was run."""
    from console.commands.bench_mop_up_text import outcome_text, tally_command
    from console.records.harbor.jobs import read_job

    code = 0
    for number, job in enumerate(plan.jobs):
        try:
            code = _start(args, plan, job, watch)
        finally:
            _take_back(job, 0.0 if watch == "detach" else LEAVING_SECONDS)
        ended = watch != "detach" and read_job(job.path).finished
        if not ended:
            _say(_unended(plan, number, detached=watch == "detach"))
            return code
    # A process that lingers has nothing left to do.
    with suppress(UsageError):
        after = _plan(args, again=True)
        _say([outcome_text(after, plan), tally_command(after)])
    return code


def _take_back(job: PlannedJob, seconds: float) -> None:
    """Takes the directory away in which nothing has begun, unless something is at work that will begin there.

    Args:
        seconds: how long an engine may take to leave whose run has ended before Harbor wrote anything.
    """
    from console.bench.mop_up.writing import untouched, withdraw

    deadline = time.monotonic() + seconds
    while untouched(job):
        if not _live(job.path):
            withdraw(job)
            return
        if time.monotonic() >= deadline:
            return
        time.sleep(0.1)


def _unended(plan: Plan, number: int, *, detached: bool) -> list[str]:
    """What to type when a job was left at work, or was cut off."""
    from console.commands.bench_mop_up_text import tally_command

    later = len(plan.jobs) - number - 1
    said = "when it has ended, type this again" if detached else "not ended: type this again"
    said += ": it runs what is still missing, and what was finished stands"
    if later:
        said += f" ({later} more {'job is' if later == 1 else 'jobs are'} left)"
    return [said, tally_command(plan, plan.jobs[: number + 1])]


def _start(args: argparse.Namespace, plan: Plan, job: PlannedJob, watch: Watch) -> int:
    from console.bench.mop_up.writing import make_directory
    from console.commands.bench_start import start_benchmark

    def before(found: Examination) -> None:
        other = _other_number(found, job)
        if other is not None:
            raise UsageError(other.line())
        make_directory(plan, job)

    return start_benchmark(_options(args, plan, job), watch, look_of(args), before=before)


def _other_number(found: Examination, job: PlannedJob) -> Finding | None:
    """What is wrong where Harbor would run another number of trials than were chosen."""
    if found.trials is None or found.trials == job.trials:
        return None
    return Finding(
        code="bench.trials",
        object=str(job.path),
        message=f"Harbor would run {found.trials} trials, and {job.trials} were chosen; the dataset is not what it was",
        remedy="look at it, or leave the tasks out with --except",
    )


def _checked(args: argparse.Namespace, plan: Plan) -> list[Finding]:
    """What the start would refuse or warn of, without asking anybody elsewhere (some seconds for each job)."""
    from console.commands.bench_start import examined

    found: dict[Finding, None] = {}
    for job in plan.jobs:
        examination = examined(_options(args, plan, job), live=False).examination
        other = _other_number(examination, job)
        findings = examination.findings if other is None else [*examination.findings, other]
        found.update(dict.fromkeys(one for one in findings if one.level != NOTE))
    return sorted(found, key=lambda one: one.level != ERROR)


def _options(args: argparse.Namespace, plan: Plan, job: PlannedJob) -> BenchOptions:
    from console.bench.running.options import BenchOptions

    return BenchOptions(
        job=job.config,
        run_dir=f"{job.path}.run",
        name=job.path.name,
        endpoint=args.api_base,
        key_name=args.key_name or "OPENAI_API_KEY",
        throttle=args.throttle,
        early_stop=not args.no_early_stop,
        parent=str(plan.family.root),
        mop_up=job.number,
        most_trials=job.trials,
        rules=str(args.rules.resolve()) if args.rules else "",
    )


def _plan(args: argparse.Namespace, *, again: bool = False) -> Plan:
    """The plan. `again`: when it has been run: only what the operator chose by still counts."""
    from console.bench.mop_up.changes import Asked
    from console.bench.mop_up.plan import make_plan

    rules = load(args)
    progress = Progress()
    asked = Asked(
        sets=tuple(args.set),
        api_base=args.api_base,
        key_name=args.key_name,
        agent_env=tuple(args.agent_env),
        concurrent=args.n_concurrent,
        force=args.force_change,
    )
    try:
        plan = make_plan(
            args.dirs,
            _wish(args, force=args.force and not again),
            asked,
            rules=rules,
            dataset_path=args.dataset_path,
            cache=not args.no_cache,
            heard=progress,
            live=(lambda job: False) if again else _live,
        )
    finally:
        progress.end()
    if not again:
        complain(plan.problems)
    return plan


def _wish(args: argparse.Namespace, *, force: bool) -> Wish:
    from console.bench.mop_up.choice import Wish

    classes = []
    for word in args.classes:
        name, _, cause = word.partition("/")
        if name not in (*CHOOSABLE, OutcomeClass.COMPLETED.value):
            raise UsageError(
                f"--class {word}: {name!r} is no class; one of {', '.join(CHOOSABLE)}, with /CAUSE behind it"
            )
        classes.append((name, cause or "*"))
    return Wish(
        classes=tuple(classes),
        tasks=tuple(args.task),
        excepted=tuple(args.excepted),
        mended=args.mended,
        force=force,
        ceiling=args.ceiling,
    )


def _live(job: Path) -> bool:
    """Whether an engine of ours is at work for a job, Harbor itself perhaps not yet."""
    from console.control.runs import run_at

    with suppress(RecordingError):
        return run_at(Path(f"{job}.run")).state == "live"
    return False


def _told(args: argparse.Namespace, plan: Plan) -> int:
    """The answer of --dry-run; the exit code is that of the start, as far as it can be told."""
    from console.commands.bench_mop_up_text import as_json, findings_text

    able = importlib.util.find_spec("harbor") is not None
    found = _checked(args, plan) if able else []
    if args.json:
        body = as_json(plan) | {"findings": [msgspec.to_builtins(one) for one in found] if able else None}
        sys.stdout.write(json.dumps(body) + "\n")
    else:
        for line in (*_lines(plan), *findings_text(found, columns(), able=able or not plan.jobs)):
            sys.stdout.write(line + "\n")
    return 2 if errors(found) else 0


def _lines(plan: Plan) -> Iterator[str]:
    from console.commands.bench_mop_up_text import nothing_text, plan_text

    yield from plan_text(plan, columns())
    if not plan.jobs:
        yield ""
        yield nothing_text(plan)


def _nothing(plan: Plan, watch: Watch) -> int:
    """Nothing to do is success; a script that reads JSON lines gets its last one."""
    from console.commands.bench_mop_up_text import nothing_text, tally_command

    _say([tally_command(plan)])
    if watch == "headless":
        from console.headless.output import Reporter

        Reporter(sys.stdout, sys.stderr, plain=False).done("completed", 0, 0, nothing_text(plan))
    return 0


def _agreed(plan: Plan) -> bool:
    number = sum(job.trials for job in plan.jobs)
    sys.stderr.write(f"run {'this trial' if number == 1 else f'these {number} trials'}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _say(lines: Iterator[str] | Sequence[str]) -> None:
    """On standard error: standard output is the run's."""
    for line in lines:
        sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _watch(args: argparse.Namespace) -> Watch:
    if args.plain:
        return "plain"
    return "headless" if args.headless else "detach" if args.detach else "console"


def _parser() -> Parser:
    parser = Parser(
        "bench mop-up",
        "Runs again what failed for reasons that are not the agent's, in a new job of exactly those tasks; the old one "
        "is not touched.",
        _EPILOG,
    )
    parser.register("type", Path, _path)
    add = parser.add_argument
    add("dirs", nargs="+", type=Path, metavar="DIR", help="the job; behind it, jobs that ran some of it again by hand")
    choice = parser.add_argument_group("what runs")
    add = choice.add_argument
    add(
        "--class",
        dest="classes",
        action="append",
        default=[],
        metavar="CLASS[/CAUSE]",
        help="attempts of this class, too",
    )
    add("--task", action="append", default=[], metavar="GLOB", help="only tasks of this name; repeat for more")
    add("--except", dest="excepted", action="append", default=[], metavar="GLOB", help="no task of this name")
    add("--mended", action="store_true", help="a wrong key or option was put right: configuration, too")
    add("--force", action="store_true", help="graded attempts of the tasks named by --task, too")
    add("--ceiling", type=int, default=3, metavar="N", help="mop-ups of an attempt before it is final (default: 3)")
    add("--rules", type=Path, metavar="FILE", help="your own rules and overrides, see below")
    add("--no-cache", action="store_true", help="judge every trial anew, and keep nothing")
    changes = parser.add_argument_group("what is otherwise")
    add = changes.add_argument
    add("--api-base", default="", metavar="URL", help="where the model is served now")
    add("--key-name", default="", metavar="NAME", help="environment variable with its key; never a key itself")
    add("--agent-env", action="append", default=[], metavar="NAME=${VAR}", help="a variable of the agent")
    add("--n-concurrent", type=int, metavar="N", help="trials at once")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="another value, by its dotted key")
    add("--force-change", action="store_true", help="even if it changes what is measured")
    add("--dataset-path", type=Path, metavar="DIR", help="where the job's local dataset is now")
    running = parser.add_argument_group("how")
    add = running.add_argument
    add("--dry-run", action="store_true", help="say what would run and what is wrong with it, and start nothing")
    add("--json", action="store_true", help="with --dry-run: one JSON object")
    add("--yes", action="store_true", help="do not ask")
    ways = running.add_mutually_exclusive_group()
    ways.add_argument("--headless", action="store_true", help="no console: JSON lines on stdout")
    ways.add_argument("--plain", action="store_true", help="no console: lines of text")
    ways.add_argument("--detach", action="store_true", help="start it and return; attach later")
    add("--throttle", choices=("advise", "auto", "off"), default="advise", help="when sandboxes fail (default: advise)")
    add("--no-early-stop", action="store_true", help="run to the end whatever fails")
    add_look(parser)
    return parser


def _path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("an empty path was given; write . for the working directory")
    return Path(text)
