"""Trials that are what they are because of their job: of several steps, cut off, tried again, all alike."""

from __future__ import annotations

import json
from typing import Any

from tests.bench.constructed.making import EXIT, ONE, REWARD, ZERO, Made, Want, ends, gives_up, raises

MARKS = "{marks}"
"""Replaced by the directory in which agents and sandboxes of a job leave their marks."""

HANG = {"script": "sleep 90"}
FAULT = f"echo 'no tests ran in 0.01s'; echo 0 > {REWARD}.txt"
DASH = "bash: line 1: agent: cannot run\nsh: 1: set: Illegal option -o pipefail"


def steps(
    kind: str, name: str, first: dict[str, Any], second: dict[str, Any], verdict: str, rule: str, text: str, *,
    reward: float | None, exception: str | None, more: str = "", test: str = ONE, file: str = "result.json",
    files: tuple[tuple[str, str], ...] = (),
) -> Made:  # fmt: skip
    """A task of two steps, `one` and `two`. `more`: of task.toml behind the second, `first` and `second`: do."""
    told = (("steps/one/instruction.md", json.dumps(first)), ("steps/two/instruction.md", json.dumps(second)))
    return ends(
        kind, name, test, verdict, rule, text, file=file, reward=reward, exception=exception,
        more=f'[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n{more}', files=(*told, *files),
    )  # fmt: skip


def cut(kind: str, name: str, **more: Any) -> Made:
    """A trial of the job that is killed, of which nothing but `notes` tells anything."""
    want = Want(
        verdict="unreadable/incomplete", rule="bench.incomplete", file="result.json", text="no result.json",
        notes=more.pop("notes", ()),
    )  # fmt: skip
    return Made(kind=kind, name=name, job="killed", want=want, **more)


def cut_later(name: str, verdict: str, rule: str, text: str, exception: str, does: dict[str, Any]) -> Made:
    """A trial of that job whose agent had failed before, so that exception.txt tells why."""
    want = Want(
        verdict=verdict, rule=rule, file="exception.txt", text=text, notes=("bench.no_result",), exception=exception
    )
    kind = "trial that was cut off after an exception"
    return Made(kind=kind, name=name, job="killed", want=want, does=does, test="sleep 90")


def running(name: str) -> Made:
    want = Want(verdict="unreadable/running", rule="bench.running", file="result.json", text="its job runs")
    return Made(kind="trial whose job runs", name=name, job="running", want=want)


def stopped(name: str, **more: Any) -> Made:
    want = Want(verdict="cancelled/operator", rule="bench.cancelled", file="exception.txt", text="CancelledError",
                exception="CancelledError")  # fmt: skip
    return Made(kind="trial that was cancelled", name=name, job="interrupted", want=want, **more)


def damaged(name: str, keep: int, text: str, exception: str | None = None) -> Made:
    """A copy of a trial that Harbor wrote, with its result cut to `keep` bytes."""
    want = Want(
        verdict="unreadable/corrupt", rule="bench.corrupt", file="result.json", text=text, exception=exception,
        notes=("bench.exception_text",) if exception else ("bench.reward_file",),
    )  # fmt: skip
    kind = "result that cannot be parsed" + (", beside an exception" if exception else "")
    return Made(kind=kind, name=name, job="damaged", by="cut", want=want, written={"keep": keep})


def alone(name: str, verdict: str, rule: str, file: str, text: str, **more: Any) -> Made:
    """A whole copy of such a trial, in a job that has no result."""
    want = Want(verdict=verdict, rule=rule, file=file, text=text, **more)
    kind = "trial of a job without a result"
    return Made(kind=kind, name=name, job="damaged", by="cut", want=want, written={"keep": None})


TRIALS: tuple[Made, ...] = (
    steps("step that fails", "two-steps", {}, {"error": "OddError: odd"}, "agent_failure/crash", "type.unknown",
          "OddError: odd", reward=1.0, exception="OddError"),
    steps("step that fails", "two-steps-key", {"script": "echo 'Error: HTTP 401 Unauthorized' >&2; exit 1"}, {},
          "configuration/key", "text.auth", "HTTP 401 Unauthorized", reward=0.0, exception=EXIT, test=ZERO),
    steps("step that is late", "two-steps-late", {}, {"script": "sleep 60"}, "agent_timeout", "type.allowed",
          "AgentTimeoutError", reward=1.0, exception="AgentTimeoutError", more="[steps.agent]\ntimeout_sec = 1"),
    steps("step that is late", "two-steps-late-lost", {}, {"script": "sleep 60"}, "agent_timeout", "type.allowed",
          "AgentTimeoutError", reward=0.0, exception="AgentTimeoutError", test=ZERO,
          more="[steps.agent]\ntimeout_sec = 1.5"),
    steps("step that cannot be set up", "two-steps-setup", {}, {}, "infrastructure/setup", "phase.setup",
          "setup.sh exited with code 4", reward=None, exception="RuntimeError",
          files=(("steps/one/workdir/setup.sh", "exit 4\n"),)),
    steps("step that cannot be set up", "two-steps-setup-two", {}, {}, "infrastructure/setup", "phase.setup",
          "setup.sh exited with code 5", reward=1.0, exception="RuntimeError",
          files=(("steps/two/workdir/setup.sh", "exit 5\n"),)),
    steps("step whose sandbox is not healthy", "two-steps-ill", {}, {}, "infrastructure/sandbox", "type.sandbox",
          "HealthcheckError", reward=1.0, exception="HealthcheckError",
          more='[steps.healthcheck]\ncommand = "false"\nretries = 1\ninterval_sec = 0.1'),
    steps("step whose sandbox is not healthy", "two-steps-no-server", {}, {}, "infrastructure/sandbox", "type.sandbox",
          "HealthcheckError", reward=1.0, exception="HealthcheckError",
          more='[steps.healthcheck]\ncommand = "test -e /no/pid"\nretries = 1\ninterval_sec = 0.1'),
    steps("verifier's fault in the last step", "two-steps-fault", {}, {}, "bad_reward/verifier_fault",
          "text.verifier_no_tests", "no tests ran", reward=0.0, exception=None, test=FAULT,
          file="steps/two/verifier/test-stdout.txt"),
    steps("verifier's fault in the last step", "two-steps-uvx", {}, {}, "bad_reward/verifier_fault",
          "text.verifier_bootstrap", "uvx: command not found", reward=0.0, exception=None,
          test=f"uvx pytest; echo 0 > {REWARD}.txt", file="steps/two/verifier/test-stdout.txt"),
    ends("trial that Harbor tried again", "flaky", ONE, "completed", "end.clean", '"reward": 1.0', reward=1.0,
         job="retried", does={"fuse": f"{MARKS}/fuse-1", "error": "SandboxError: gone"}),
    ends("trial that Harbor tried again", "flaky-lost", ZERO, "completed", "end.clean", '"reward": 0.0', reward=0.0,
         job="retried", does={"fuse": f"{MARKS}/fuse-2", "error": "httpx:ReadError: "}),
    raises("trial that Harbor tried again in vain", "dead", "SandboxError: gone", "infrastructure/sandbox",
           "type.sandbox", reward=0.0, job="retried"),
    raises("trial that Harbor tried again in vain", "dead-net", "httpx:ReadTimeout: ", "infrastructure/network",
           "type.network", reward=0.0, job="retried"),
    gives_up("failure whose policy the job has changed", "renamed-exit", "something odd", "agent_failure/crash",
             "exit.crash", code=3, text="exit 3", reward=None, job="overridden"),
    raises("failure whose policy the job has changed", "renamed-box", "SandboxError: gone", "infrastructure/sandbox",
           "type.sandbox", reward=1.0, test=ONE, job="overridden"),
    *(gives_up("job that fails in one way", f"dash-{at}", DASH, "infrastructure/setup", "text.shell", code=2,
               text="Illegal option -o pipefail", job="dash") for at in range(4)),
    *(ends("trial before the key was refused", f"keys-good-{at}", ONE, "completed", "end.clean", '"reward": 1.0',
           reward=1.0, job="keys") for at in range(2)),
    *(gives_up("job whose key is refused", f"keys-{at}", "Error: HTTP 401 Unauthorized: token expired",
               "configuration/key", "bench.key", text="401 Unauthorized", job="keys") for at in range(3)),
    ends("task that nobody can score", "unscorable", f"uvx pytest; echo 0 > {REWARD}.txt",
         "bad_reward/verifier_fault", "text.verifier_bootstrap", "uvx: command not found",
         file="verifier/test-stdout.txt", reward=0.0, job="repeats", attempts=2),
    gives_up("task that fails the same way each time", "hyphen-again", "error: unknown option '- You are given'",
             "agent_failure/agent_bug", "bench.option", job="repeats", attempts=2),
    stopped("hang-agent", does={"mark": f"{MARKS}/agent", **HANG}),
    stopped("hang-agent-too", does={"mark": f"{MARKS}/agent-too", **HANG}),
    stopped("hang-setup", room={"install": "sleep 90"}),
    stopped("hang-verifier", test="sleep 90", does={"mark": f"{MARKS}/verifier"}),
    running("hang-agent"),
    running("hang-agent-too"),
    cut("trial that was cut off", "cut-agent", does={"mark": f"{MARKS}/cut-1", **HANG}),
    cut("trial that was cut off", "cut-agent-too", does={"mark": f"{MARKS}/cut-2", **HANG}),
    cut("trial that was cut off after its verifier", "cut-reward", room={"stop_mark": f"{MARKS}/cut-3"}, test=ONE,
        notes=("bench.reward_file",)),
    cut("trial that was cut off after its verifier", "cut-reward-json", room={"stop_mark": f"{MARKS}/cut-4"},
        test=f"echo '{{\"reward\": 0.5}}' > {REWARD}.json", notes=("bench.reward_file",)),
    cut_later("cut-key", "configuration/key", "text.auth", "401 Unauthorized", EXIT,
              {"script": "echo 'Error: HTTP 401 Unauthorized' >&2; exit 1"}),
    cut_later("cut-box", "infrastructure/sandbox", "type.sandbox", "SandboxError", "SandboxError",
              {"error": "SandboxError: gone"}),
    damaged("pass", 900, "is no JSON"),
    damaged("fail", 0, "is empty"),
    damaged("crash", 900, "is no JSON", EXIT),
    damaged("box-hf", 1, "is no JSON", "SandboxError"),
    alone("partial", "completed", "end.clean", "result.json", '"reward": 0.25', reward=0.25),
    alone("late-lost", "agent_timeout", "type.allowed", "exception.txt", "AgentTimeoutError", reward=0.0,
          exception="AgentTimeoutError"),
)  # fmt: skip
