"""`quarterdeck bench run`: start a Harbor job, its mistakes told before, and stand watch over it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from console.bench.running.job_file import find_job, read_job
from console.bench.running.launch import require_harbor
from console.bench.running.options import BenchOptions
from console.bench.running.preflight.places import default_run_dir
from console.commands.bench_start import examined, start_benchmark
from console.commands.look import add_look, look_of
from console.commands.parsing import Parser
from console.commands.start import Watch
from console.commands.train import tell


def run_main(argv: Sequence[str]) -> int:
    """Run `bench run`; the exit code."""
    args = _parser().parse_args(argv)
    require_harbor()
    path = find_job(args.job)
    job = read_job(path, args.set)
    run_dir = Path(os.path.normpath(Path.cwd() / args.run_dir.expanduser())) if args.run_dir else default_run_dir(job)
    options = BenchOptions(
        job=job,
        job_file=str(path.resolve()),
        run_dir=str(run_dir),
        name=args.name or job["job_name"],
        throttle=args.throttle,
        early_stop=not args.no_early_stop,
    )
    if args.check:
        return tell(examined(options).examination.findings, args.json)
    return start_benchmark(options, _watch(args), look_of(args))


def _watch(args: argparse.Namespace) -> Watch:
    if args.plain:
        return "plain"
    return "headless" if args.headless else "detach" if args.detach else "console"


def _parser() -> Parser:
    parser = Parser("bench run", "Start a job of Harbor's, its mistakes told before, and stand watch over it.", "")
    parser.add_argument(
        "job", metavar="JOB", help="a job file of Harbor's (YAML or JSON), or the name of a bundled one"
    )
    parser.add_argument("set", nargs="*", metavar="KEY=VALUE", help="values to replace in it, by dotted keys")
    parser.add_argument("--headless", action="store_true", help="no console: JSON lines on stdout")
    parser.add_argument("--plain", action="store_true", help="no console: lines of text")
    parser.add_argument("--detach", action="store_true", help="start it and return; attach later")
    parser.add_argument("--check", action="store_true", help="tell what is wrong and what would run; start nothing")
    parser.add_argument("--json", action="store_true", help="with --check: one JSON object")
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="where the run's journal goes")
    parser.add_argument("--name", default="", help="of the run, for the screens")
    parser.add_argument("--throttle", choices=("advise", "auto", "off"), default="advise")
    parser.add_argument("--no-early-stop", action="store_true", help="run to the end whatever fails")
    add_look(parser)
    return parser
