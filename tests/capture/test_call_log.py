"""The call journal holds whole lines, whatever the disk and a kill do."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from console.capture.base import CapturedCall
from console.capture.call_log import CallLog


def call(size: int) -> CapturedCall:
    return CapturedCall(prompt_P=list(range(size)), tokens_T=[1], logprobs_T=[-0.5], stop_reason="stop", seconds=0.1)


def lines(path: Path) -> list[int]:
    return [len(json.loads(line)["prompt_P"]) for line in path.read_text().splitlines()]


async def test_a_write_that_stops_halfway_is_taken_back(tmp_path):
    log = CallLog(tmp_path)
    log.write(0, "k", 0, call(100))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    path = tmp_path / "calls-000000.jsonl"
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 4096, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            log.write(0, "k", 1, call(10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    log.write(0, "k", 2, call(7))
    assert lines(path) == [100, 7]
    await log.close()


async def test_a_line_torn_by_a_kill_spoils_no_other(tmp_path):
    path = tmp_path / "calls-000002.jsonl"
    path.write_text('{"trial": "k", "prom')
    log = CallLog(tmp_path)
    log.write(2, "k", 0, call(3))
    await log.close()
    assert path.read_text().splitlines()[0] == '{"trial": "k", "prom'
    assert len(json.loads(path.read_text().splitlines()[1])["prompt_P"]) == 3
