"""What is left when the console is: one line on stdout with the command that goes on from there, and the exit code."""

from __future__ import annotations

import shlex

from console.control.messages import read_last_word
from console.state.bench_words import passed_text
from console.state.benchmark import infra_excluded
from console.state.model import RunState
from console.state.reduce import RunView
from console.state.sanitize import sanitize
from console.state.words import BENCHMARK
from console.tui.picture import ENDED, stop_text
from console.tui.source import Source

EXIT_DIED = 7


def farewell(source: Source, *, told_after: bool = False) -> str:
    """One line; empty for a recording and for a run that was never seen.

    `told_after`: whoever opened the console says next what the benchmark left, and the command that runs it again.
    """
    state = source.view.state
    if source.mode == "replay" or not state.run_id:
        return ""
    name = shlex.quote(sanitize(state.run_id, limit=60))
    if state.status in ENDED:
        return f"run {name} {state.status}, exit {state.exit_code}{_how(source.view, told_after)}"
    if source.link().status == "dead":
        gone = source.link().detail or "the engine is gone"
        text = f"{gone}: quarterdeck train with the same options resumes it"
        if state.kind == BENCHMARK:
            again = f", {said}" if not told_after and (said := _mop_up(state)) else ""  # the other way on
            text = f"{gone}: quarterdeck bench run JOB --continue goes on with the job{again}"
        where = shlex.quote(sanitize(state.run_dir, limit=1000))
        return f"{text}; quarterdeck replay {where} shows what was recorded" if state.run_dir else text
    if state.stop_requested:
        by = _author(state)
        paused = ", its dispatch is paused" if state.paused else ""
        return f"the run {stop_text(state)}{f' (asked for by {by})' if by else ''}{paused}: quarterdeck attach {name}"
    if state.paused:
        by = sanitize(state.paused_by, limit=60)
        return f"dispatch is paused{f' (by {by})' if by else ''}, the run waits: quarterdeck attach {name}"
    return f"the run goes on: quarterdeck attach {name}"


def exit_code(source: Source) -> int:
    """That of the run for the command that started it: 0 as long as the run goes on, and 7 for an engine that is gone
    without a word."""
    code, link = source.view.state.exit_code, source.link()
    if code is not None or link.status != "dead":
        return code or 0
    end = read_last_word(link.detail)
    return EXIT_DIED if end is None else end[1]


def _mop_up(state: RunState) -> str:
    """A new job with what was lost; empty where nothing was."""
    if not (state.bench.job_dir and state.bench.finished.get("infrastructure")):
        return ""
    return f"{_command('mop-up', state.bench.parent or state.bench.job_dir)} runs again what infrastructure lost"


def _command(name: str, job_dir: str) -> str:
    return f"quarterdeck bench {name} {shlex.quote(sanitize(job_dir, limit=1000))}"


def _how(view: RunView, told_after: bool) -> str:
    """Why it did not complete, or what came of it."""
    state = view.state
    if state.kind == BENCHMARK:
        return _job(state, told_after)
    if state.exit_code != 0:
        return f": {sanitize(state.reason, limit=400)}" if state.reason else ""
    known = [row.reward_mean for row in view.history.rows if row.reward_mean is not None]
    if not known:
        return ""
    steps = f"in {state.steps_done} step{'' if state.steps_done == 1 else 's'}"
    return (
        f": reward {known[0]:.2f} -> {known[-1]:.2f} {steps}" if len(known) > 1 else f": reward {known[0]:.2f} {steps}"
    )


def _job(state: RunState, told_after: bool) -> str:
    """What came of a benchmark, and the commands that read it, or run again what was lost."""
    b, passed = state.bench, infra_excluded(state)
    out = f", {passed.left_out} left out" if passed.left_out else ""
    parts = [sanitize(state.reason, limit=400)] if state.exit_code != 0 and state.reason else []
    if passed.value is not None:
        parts.append(f"passed {passed_text(state, interval=False)}{out}")
    if b.job_dir and b.done:
        again = "" if told_after else _mop_up(state)  # how many it runs, the job's directory alone knows
        parts.append(again or f"{_command('tally', b.job_dir)} has more")
    return f": {'; '.join(parts)}" if parts else ""


def _author(state: RunState) -> str:
    """Who asked for the stop; empty when it did not come from a command that is still known."""
    wanted = "stop_now" if state.stop_requested == "now" else "stop_after_step"
    asked = [c for c in state.commands.values() if c.command == wanted and c.status in ("accepted", "done")]
    return sanitize(asked[-1].author, limit=60) if asked else ""
