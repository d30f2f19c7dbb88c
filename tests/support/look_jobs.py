"""Two benchmark jobs with one of each kind of trouble, for tests of the screens of `bench look`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harbor_jobs import HarborJob

KEY = "sk-abcdefghijklmnopqrstuv"
WORK = {
    "agent/trajectory.json": '{"schema_version": "ATIF-v1.5", "steps": [{"source": "agent", "tool_calls": '
    '[{"tool_call_id": "1"}]}]}'
}
PASSED = {**WORK, "verifier/test-stdout.txt": "== 3 passed in 0.1s ==\n"}
NO_TOOLS = {
    **WORK,
    "verifier/test-stdout.txt": "begin\ncurl: (28) timed out\n/tests/test.sh: line 5: uvx: command not found\nend\n",
}
TIMEOUT = ("AgentTimeoutError", "Agent execution timed out after 3600.0 seconds")
DEAD = ("SandboxError", "the sandbox was not found")
REFUSED = ("NonZeroAgentExitCodeError", f"agent exited 1: Incorrect API key provided: {KEY}")


def first_job(path: Path, **job: Any) -> HarborJob:
    """20 trials of 20 tasks: 8 passed, 4 failed, 2 timed out, 3 sandboxes died, 2 verifiers had no tools, 1 bad key."""
    made = HarborJob(path, **job)
    for at in range(20):
        task = f"org/task-{at:02}"
        if at < 12:
            made.trial(task, float(at < 8), files=PASSED)
        elif at < 14:
            made.trial(task, float(at == 12), error=TIMEOUT, seconds={"agent": 3600}, tokens=(10, 0, 90), files=WORK)
        elif at < 17:
            made.trial(task, error=DEAD, files=WORK, seconds={"agent": 60.0 + 50 * at})
        elif at < 19:
            made.trial(task, 0.0, files=NO_TOOLS)
        else:
            made.trial(task, 0.0, error=REFUSED, files={**WORK, "agent/out.txt": f"Error: 401 Unauthorized {KEY}\n"})
    made.write()
    return made


def second_job(path: Path, **job: Any) -> HarborJob:
    """The same tasks, by another agent with more time: 0 to 2 failed, 3 to 15 passed, the others' sandboxes died."""
    made = HarborJob(path, agent="mini-swe-agent", model="openai/other", agent_timeout_multiplier=4.0, **job)
    for at in range(20):
        if at < 16:
            made.trial(f"org/task-{at:02}", float(at >= 3), files=PASSED)
        else:
            made.trial(f"org/task-{at:02}", error=DEAD, files=WORK)
    made.write()
    return made
