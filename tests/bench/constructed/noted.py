"""Trials whose class is plain, and beside which triage has something to say; and the same without a reason to."""

from __future__ import annotations

import json
from typing import Any

from tests.bench.constructed.making import EXIT, ONE, ZERO, Made, ends, gives_up, raises

LATE = "AgentTimeoutError"
OLD = "2026-01-01T00:00:00Z"


def trajectory(calls: int = 1, steps: int = 3, reasoning: int | None = None, at: str = "") -> dict[str, str]:
    """The files of an agent that recorded what it did."""
    step: dict[str, Any] = {"source": "agent", "tool_calls": [{"function_name": "bash"}] * calls}
    if at:
        step["timestamp"] = at
    if reasoning is not None:
        step["metrics"] = {"extra": {"reasoning_tokens": reasoning}}
    return {"trajectory.json": json.dumps({"schema_version": "ATIF-v1.6", "steps": [step] * steps})}


def late(kind: str, name: str, does: dict[str, Any], **more: Any) -> Made:
    return ends(
        kind, name, ZERO, "agent_timeout", "type.allowed", "timed out after 2.0 seconds", file="exception.txt",
        reward=0.0, exception=LATE, does={"script": "sleep 60", **does}, agent=2, **more,
    )  # fmt: skip


def won(kind: str, name: str, does: dict[str, Any], **more: Any) -> Made:
    return ends(kind, name, ONE, "completed", "end.clean", '"reward": 1.0', reward=1.0, does=does, **more)


ALL = ("bench.runaway_thinking", "bench.low_output", "bench.tokens_missing")
NONE = ("bench.idle_pass",)

TRIALS: tuple[Made, ...] = (
    late("runaway thinking", "thinks", {"tokens": [500, 1], "files": trajectory(reasoning=900)},
         notes=("bench.runaway_thinking",)),
    late("runaway thinking", "thinks-pending", {"tokens": [500, 1], "files": trajectory(at=OLD)},
         notes=("bench.runaway_thinking",)),
    late("low output for no known reason", "silent", {"tokens": [500, 1]}, notes=("bench.low_output",)),
    late("low output for no known reason", "silent-traced", {"tokens": [500, 1], "files": trajectory()},
         notes=("bench.low_output",)),
    late("time-out that counts no token", "uncounted", {"tokens": [0, 0]}, notes=("bench.tokens_missing",)),
    late("time-out that counts no token", "uncounted-in", {"tokens": [900, 0]}, notes=("bench.tokens_missing",)),
    late("time-out of an agent that was at work", "busy", {"tokens": [5000, 1000], "files": trajectory(reasoning=40)},
         silent=ALL),
    late("time-out of an agent that was at work", "busy-unknown", {}, silent=ALL),
    won("pass without work that shows", "idle-pass", {"tokens": [10, 0]}, notes=NONE),
    won("pass without work that shows", "idle-no-tools", {"tokens": [10, 5], "files": trajectory(calls=0)}, notes=NONE),
    won("pass with work that shows", "true-pass", {"tokens": [900, 300], "files": trajectory()}, silent=NONE),
    won("pass with work that shows", "true-pass-unknown", {"tokens": [900, 300]}, silent=NONE),
    raises("infrastructure after work", "worked-box", "SandboxError: gone", "infrastructure/sandbox", "type.sandbox",
           reward=0.0, does={"tokens": [900, 300]}, notes=("bench.work_done",)),
    gives_up("infrastructure after work", "worked-api", "Error: 503 Service down", "infrastructure/api", "text.api",
             does={"files": trajectory()}, notes=("bench.work_done",)),
    raises("infrastructure before any work", "unworked-box", "SandboxError: gone", "infrastructure/sandbox",
           "type.sandbox", reward=0.0, silent=("bench.work_done",)),
    gives_up("infrastructure before any work", "unworked-api", "Error: 503 Service down", "infrastructure/api",
             "text.api", silent=("bench.work_done",)),
    raises("sandbox that was killed when idle", "idle-log", "httpx:RemoteProtocolError: Server disconnected",
           "infrastructure/sandbox", "bench.idle_killed", text="idle for 601917ms", reward=0.0,
           file="agent/sandbox.log",
           does={"files": {"sandbox.log": "up\nsbx-server: idle for 601917ms, shutting down\n"}}),
    raises("sandbox that was killed when idle", "idle-said",
           "SandboxError: lost, sbx-server: idle for 600004ms, shutting down", "infrastructure/sandbox",
           "bench.idle_killed", text="idle for 600004ms", reward=0.0),
    ends("no model, no tokens, no cost", "bare", ZERO, "completed", "end.clean", '"reward": 0.0', reward=0.0),
    ends("no model, no tokens, no cost", "bare-crash", ZERO, "agent_failure/crash", "exit.crash", "exit 9", reward=0.0,
         exception=EXIT, file="exception.txt", does={"script": "exit 9"}),
)  # fmt: skip
