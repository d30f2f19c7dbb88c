"""`quarterdeck attach` and `quarterdeck replay`: the console on a live run, or on a recorded one."""

from __future__ import annotations

from pathlib import Path

from console.commands.look import add_look, look_of
from console.commands.parsing import Parser
from console.control.runs import find_run, list_runs, run_behind
from console.errors import UsageError
from console.records.opening import is_plain_log
from console.tui.main import attach, choose, replay, require_terminal


def attach_main(argv: list[str]) -> int:
    """Run `attach`; the exit code."""
    parser = Parser(
        "attach",
        description="Opens the console on a live run; one that has ended opens as a recording, at its end. Leaving it "
        "(q, d, a dropped line) leaves the run alone. A plain log directory of the Tinker cookbook opens too, with "
        "what it has.",
        epilog="examples:\n"
        "  quarterdeck attach             the only live run, else a list to choose from\n"
        "  quarterdeck attach 20261129    a run by the start of its id, its name, or its directory\n"
        "  quarterdeck attach --socket /tmp/q.sock    through a forwarded socket",
    )
    parser.add_argument(
        "run", nargs="?", help="run id or its start, name, or run directory; if left out the only live run, or a list"
    )
    parser.add_argument("--socket", type=Path, help="the engine's socket, for instance one forwarded over SSH")
    parser.add_argument("--read-only", action="store_true", help="hide and refuse the keys that act on the run")
    parser.add_argument("--headless", action="store_true", help="follow as JSON lines instead; the run is not owned")
    parser.add_argument("--plain", action="store_true", help="follow as readable lines instead")
    add_look(parser)
    args = parser.parse_args(argv)
    if args.socket is not None:
        if args.run is not None:
            raise UsageError("name a run or --socket, not both")
        if not args.socket.is_socket():
            raise UsageError(f"--socket {args.socket}: no socket there; forward the engine's, `runs --json` names it")
    if args.headless or args.plain:
        from console.headless import follow_headless

        if args.run is not None and is_plain_log(args.run):
            raise UsageError(f"{args.run}: a plain log of the cookbook, nothing to follow: replay or export it")
        run = find_run(args.run) if args.socket is None else run_behind(args.socket) or args.socket
        return follow_headless(run, plain=args.plain)
    look = look_of(args)
    if args.socket is not None:
        return attach(args.socket, look=look)
    if args.run is not None and is_plain_log(args.run):
        return attach(Path(args.run), look=look)
    if args.run is None and _has_terminal() and sum(run.state == "live" for run in list_runs()) != 1:
        return choose(look)
    info = find_run(args.run)
    live = info.state == "live" and info.socket is not None
    return attach(
        Path(info.socket) if live and info.socket else Path(info.run_dir), run_dir=Path(info.run_dir), look=look
    )


def _has_terminal() -> bool:
    try:
        require_terminal()
    except UsageError:
        return False
    return True


def replay_main(argv: list[str]) -> int:
    """Run `replay`; the exit code."""
    parser = Parser(
        "replay",
        description="Plays a recorded run through the console: space pauses, < > change the speed, [ ] step by event, "
        "{ } by training step, ! to the next alarm, ctrl+g to a time or step, | scrubs. A run that still runs or was "
        "killed can be replayed too, and a plain log directory of the Tinker cookbook.",
        epilog="example:  quarterdeck replay RUN --speed 8",
    )
    parser.add_argument("run", help="run directory, or run id, its start, or name")
    parser.add_argument(
        "--speed", help="times real time, 0.25 to 64, or max; the default makes the recording watchable"
    )
    add_look(parser)
    args = parser.parse_args(argv)
    from console.tui.replay import parse_speed

    try:
        speed = parse_speed(args.speed) if args.speed is not None else None
    except ValueError:
        raise UsageError(f"--speed {args.speed}: give 0.25 to 64, or max") from None

    run_dir = Path(args.run)
    if not run_dir.is_dir():
        run_dir = Path(find_run(args.run).run_dir)
    return replay(run_dir, speed=speed, look=look_of(args))
