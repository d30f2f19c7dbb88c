"""All checks, in the order in which they are told, and the choice of some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from console.doctor import (
    checks_environment,
    checks_gateway,
    checks_host,
    checks_options,
    checks_packages,
    checks_sandboxes,
    checks_session,
    checks_state,
    checks_terminal,
)
from console.doctor.case import Case
from console.doctor.report import Check, Question
from console.errors import UsageError


class Part(NamedTuple):
    """A function that makes checks; `open`: it makes some of other codes, which only its results tell."""

    look: Callable[[Case], Iterable[Check]]
    questions: tuple[Question, ...]
    open: bool = False


_host, _session, _term, _pkg = checks_host, checks_session, checks_terminal, checks_packages
_env, _state, _box, _gateway = checks_environment, checks_state, checks_sandboxes, checks_gateway

PARTS = (
    Part(_host.platform, (_host.PLATFORM,)),
    Part(_host.memory, (_host.MEMORY,)),
    Part(_host.disk, (_host.DISK,)),
    Part(_host.fds, (_host.FDS,)),
    Part(_host.processes, (_host.PROCESSES,)),
    Part(_host.userns, (_host.USERNS,)),
    Part(_host.clock, (_host.CLOCK,)),
    Part(_session.logout, (_session.LOGOUT,)),
    Part(_session.container, (_session.CONTAINER,)),
    Part(_session.batch, (_session.BATCH,)),
    Part(_session.sleep, (_session.SLEEP,)),
    Part(_session.ssh, (_session.SSH,)),
    Part(_term.tty, (_term.TTY,)),
    Part(_term.kind, (_term.KIND,)),
    Part(_term.utf8, (_term.UTF8,)),
    Part(_term.colours, (_term.COLOURS,)),
    Part(_term.size, (_term.SIZE,)),
    Part(_pkg.python, (_pkg.PYTHON,)),
    Part(_pkg.packages, (_pkg.BASE, _pkg.ENGINE, _pkg.SAME, _pkg.CLASH), open=True),
    Part(_env.tinker_key, (_env.KEY,)),
    Part(_env.tinker_url, (_env.BASE_URL,)),
    Part(_env.proxy, (_env.PROXY,)),
    Part(_env.certificates, (_env.CERTIFICATES,)),
    Part(_env.telemetry, (_env.TELEMETRY,)),
    Part(_env.insecure, (_env.INSECURE,)),
    Part(_env.ci, (_env.CI,)),
    Part(_state.directory, (_state.DIRECTORY,)),
    Part(_state.registry, (_state.REGISTRY_FILE,)),
    Part(_state.listening, (_state.SOCKET,)),
    Part(_state.dead_runs, (_state.DEAD,)),
    Part(_state.orphaned_sandboxes, (_state.ORPHANED,)),
    Part(_box.bubblewrap, (_box.BUBBLEWRAP,)),
    Part(_box.docker, (_box.DOCKER,)),
    Part(_box.e2b_key, (_box.E2B_KEY,)),
    Part(_box.e2b, (_box.E2B,)),
    Part(_gateway.gateway, (_gateway.ANSWERS, _gateway.PROFILE, _gateway.CLOCK)),
    Part(checks_options.preflight, (checks_options.OPTIONS,), open=True),
)

QUESTIONS = tuple(question for part in PARTS for question in part.questions)


def examine(case: Case, only: tuple[str, ...] = ()) -> list[Check]:
    """Make the checks whose code begins with one of `only`; all when there are none.

    Raises:
        UsageError: no check has such a code.
    """
    checks: list[Check] = []
    exact = {question.code for question in QUESTIONS}.issuperset(only)
    for part in PARTS:
        codes = [question.code for question in part.questions]
        if not only or (part.open and not exact) or any(code.startswith(only) for code in codes):
            checks += [check for check in _look(part, case) if not only or check.code.startswith(only)]
    if only and not checks:
        subjects = dict.fromkeys(question.code.partition(".")[0] for question in QUESTIONS)
        raise UsageError(f"no check has a code that begins with {' or '.join(only)}: there are {', '.join(subjects)}")
    return checks


def _look(part: Part, case: Case) -> Iterator[Check]:
    """A check that fails is told of like one that could not be made: the others go on."""
    try:
        yield from part.look(case)
    except OSError as error:
        named = f" ({error.filename})" if error.filename else ""
        yield part.questions[0].skipped(f"cannot be looked at: {error.strerror or error}{named}")
    except Exception as error:
        yield part.questions[0].skipped(f"the check itself failed, which is a bug: {type(error).__name__}: {error}")
